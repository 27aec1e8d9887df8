#!/usr/bin/env python3
"""Makes tiny DeepSeek-V3, V3.2 and V4 checkpoints and records what transformers computes with them.

Needs transformers 5.23 or later, torch and safetensors:

    python/record_deepseek_vectors.py --output tests/golden/models

Layout of the files as in record_model_vectors.py. Tensor names and config.json are spelled as DeepSeek publishes them;
transformers reads both spellings. Top-k choices are discontinuous, so a seed under which two candidates are nearly
equal, which another order of sums might swap, is given up for the next one.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import pathlib
import shutil
import zlib

import torch
import transformers
from record_model_vectors import VOCAB, fill, quantize_block_fp8, spell_as_version_4, write_vectors
from safetensors.torch import load_file, save_file

# What is published in fp32, by the endings of transformers' names and of DeepSeek's.
EXACT = ("_fn", "_base", "_scale", "hc.fn", "hc.base", "hc.scale", "sinks", "attn_sink", "position_bias", "ape") + (
    "gate.bias",
    "e_score_correction_bias",
    "tid2eid",
)
V4_BLOCK = (4, 32)  # elements of FP8 that share a scale; published are 128 x 128, which tiny matrices do not fill
FP4_GRID = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
CLEAR_GAP = 1e-5  # between the last chosen and the first left out, relative to the largest candidate

BASE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    num_attention_heads=4,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    n_shared_experts=1,
    n_routed_experts=8,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
    tie_word_embeddings=False,
)

MLA = BASE | dict(
    intermediate_size=48,
    num_key_value_heads=4,
    q_lora_rank=24,
    kv_lora_rank=24,
    qk_nope_head_dim=16,
    qk_rope_head_dim=8,
    v_head_dim=20,
    n_routed_experts=12,
    n_group=4,
    topk_group=2,
    num_experts_per_tok=3,
)

# As published: layers 0 and 1 see the window alone, then the two ratios alternate; the first layers route by token id.
V4 = BASE | dict(
    num_hidden_layers=4,
    num_key_value_heads=1,
    head_dim=32,
    qk_rope_head_dim=8,
    q_lora_rank=24,
    o_groups=2,
    o_lora_rank=12,
    moe_intermediate_size=32,
    sliding_window=12,
    compress_ratios=[0, 4, 128, 4, 0],  # the last belongs to the layer that predicts a further token
    num_hash_layers=2,
    compress_rope_theta=160000.0,
    rope_theta=10000.0,
    index_n_heads=12,
    index_head_dim=16,
    index_topk=6,
    hc_mult=4,
    hc_sinkhorn_iters=20,
    swiglu_limit=1.5,
    routed_scaling_factor=1.5,
    num_nextn_predict_layers=1,
)

YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32, beta_slow=1)


@dataclasses.dataclass
class Variant:
    config: type
    fields: dict
    prompt_lengths: tuple = (70, 7)
    dtype: torch.dtype = torch.bfloat16
    block_fp8: bool = False
    with_mtp: bool = False  # tensors of a layer that predicts a further token, which engines may leave unread


def variants():
    v3, v32, v4 = transformers.DeepseekV3Config, transformers.DeepseekV32Config, transformers.DeepseekV4Config
    yarn = YARN | dict(rope_theta=10000.0, mscale=0.7, mscale_all_dim=1.0)
    return {
        "deepseek_v3": Variant(
            v3, MLA | dict(num_hidden_layers=3, first_k_dense_replace=2, rope_parameters=yarn), with_mtp=True
        ),
        "deepseek_v3_direct": Variant(
            v3,
            MLA
            | dict(
                num_hidden_layers=2,
                first_k_dense_replace=1,
                q_lora_rank=None,
                n_group=1,
                topk_group=1,
                norm_topk_prob=False,
                n_shared_experts=2,
                n_routed_experts=6,
                moe_intermediate_size=8,
                num_attention_heads=2,
                num_key_value_heads=2,
                rope_interleave=False,
            ),
            dtype=torch.float32,
        ),
        "deepseek_v3_block_fp8": Variant(
            v3,
            MLA
            | dict(
                num_hidden_layers=2,
                first_k_dense_replace=1,
                hidden_size=136,
                intermediate_size=24,
                num_attention_heads=3,
                num_key_value_heads=3,
                qk_nope_head_dim=40,  # three heads' keys and values cross a block of scales
                n_routed_experts=6,
                n_group=2,
                topk_group=1,
                moe_intermediate_size=8,
                rope_parameters=yarn,
            ),
            block_fp8=True,
        ),
        "deepseek_v32": Variant(
            v32,
            MLA
            | dict(
                num_hidden_layers=3,
                first_k_dense_replace=1,
                index_n_heads=12,
                index_head_dim=16,
                index_topk=12,
                rope_parameters=yarn | dict(mscale=1.0),
            ),
        ),
        "deepseek_v4": Variant(v4, V4 | dict(rope_parameters=YARN), prompt_lengths=(270, 7), with_mtp=True),
    }


class UnclearChoice(Exception):
    pass


@contextlib.contextmanager
def clear_choices():
    """Every top-k taken inside must have a gap behind its last choice."""
    plain_function, plain_method = torch.topk, torch.Tensor.topk

    def checked(values, k, dim=-1, **options):
        if k < values.shape[dim]:
            best = plain_method(values, k + 1, dim=dim).values
            last, next_one = best.select(dim, k - 1), best.select(dim, k)
            real = next_one > -1e30  # not masked
            scale = values[values > -1e30].abs().max()
            if (real & (last - next_one < CLEAR_GAP * scale)).any():
                raise UnclearChoice
        return plain_method(values, k, dim=dim, **options)

    torch.topk = torch.Tensor.topk = checked
    try:
        yield
    finally:
        torch.topk, torch.Tensor.topk = plain_function, plain_method


def fill_special(model, seed):
    """What `fill` does not reach or leaves too small to matter: buffers and numbers that are added to others."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("tid2eid"):
                num_experts, top_k = model.config.n_routed_experts, buffer.shape[1]
                buffer.copy_(torch.stack([torch.randperm(num_experts, generator=generator)[:top_k] for _ in buffer]))
        for name, parameter in model.named_parameters():
            if name.endswith(("position_bias", "sinks", "hc.base", "hc_base")):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))


def mtp_tensors(config):
    """A predicting layer in the published spelling; only the names matter."""
    size = config["hidden_size"]
    zeros = lambda *shape: torch.zeros(shape, dtype=torch.bfloat16)
    if config["model_type"] == "deepseek_v4":
        prefix = "mtp.0."
        parts = {"e_proj.weight": zeros(size, 8), "enorm.weight": zeros(size), "hc_head_base": zeros(4)}
    else:
        prefix = f"model.layers.{config['num_hidden_layers']}."
        parts = {"eh_proj.weight": zeros(size, 8), "enorm.weight": zeros(size), "shared_head.norm.weight": zeros(size)}
    return {prefix + name: tensor for name, tensor in parts.items()}


def spell_as_published(config, fields):
    """config.json as DeepSeek writes it, without what transformers adds."""
    rope = config.get("rope_parameters", {})
    added = ("head_dim", "qk_head_dim", "mlp_layer_types", "layer_types", "compress_rates", "partial_rotary_factor")
    for field in added:
        if field not in fields or fields[field] is None:
            config.pop(field, None)
    config |= dict(scoring_func="sigmoid", topk_method="noaux_tc")
    if config["model_type"] != "deepseek_v4":
        if "rope_interleave" not in fields:  # one variant keeps the spelling of transformers 5
            spell_as_version_4(config, None)
        return
    config.pop("rope_parameters")
    yarn = dict(rope["compress"])
    for field in ("rope_theta", "partial_rotary_factor", "attention_factor"):
        yarn.pop(field)
    config["rope_scaling"] = dict(type=yarn.pop("rope_type"), **yarn)
    config["scoring_func"] = "sqrtsoftplus"
    for field in ("compress_ratios", "num_hash_layers", "compress_rope_theta", "rope_theta", "qk_rope_head_dim"):
        config[field] = fields[field]


def quantize_v3(tensors):
    """The published FP8 form, and the bf16 weights that engines hold of it."""
    odd, usual = "kv_a_proj_with_mqa.", "kv_a_proj."  # all other quantised matrices end in "proj"
    rename = lambda named, old, new: {name.replace(old, new): tensor for name, tensor in named.items()}
    stored, exact = quantize_block_fp8(rename(tensors, odd, usual))
    return rename(stored, usual, odd), rename(exact, usual, odd)


def load_v3(model, tensors):
    """Into transformers' stacked experts; other names are the same in this family."""
    state = model.state_dict()
    for name, tensor in tensors.items():
        if ".experts." not in name:
            state[name].copy_(tensor)
            continue
        experts, _, rest = name.partition(".experts.")
        expert, part, _ = rest.split(".")
        if part == "down_proj":
            state[experts + ".experts.down_proj"][int(expert)].copy_(tensor)
        else:
            half = state[experts + ".experts.gate_up_proj"][int(expert)].chunk(2)[part == "up_proj"]
            half.copy_(tensor)


def power_of_two_scales(weight, block, largest):
    """Of each block, [row blocks, column blocks], and the same for each element."""
    rows, cols = (-(-size // step) for size, step in zip(weight.shape, block))
    scales = torch.ones(rows, cols)
    for i in range(rows):
        for j in range(cols):
            part = weight[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]]
            scales[i, j] = 2.0 ** math.ceil(math.log2(part.abs().max().item() / largest))
    spread = scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return scales, spread[: weight.shape[0], : weight.shape[1]]


def fp8(weight):
    scales, spread = power_of_two_scales(weight.float(), V4_BLOCK, 448.0)
    codes = (weight.float() / spread).to(torch.float8_e4m3fn)
    return codes, scales.to(torch.float8_e8m0fnu), codes.float() * spread


def fp4(weight):
    """Two codes in a byte, the even column's in the low half."""
    scales, spread = power_of_two_scales(weight.float(), (1, 32), 6.0)
    values = weight.float() / spread
    codes = (values.abs().unsqueeze(-1) - FP4_GRID).abs().argmin(-1)
    exact = FP4_GRID[codes] * values.sign() * spread
    codes = codes.to(torch.uint8) | ((values < 0).to(torch.uint8) << 3)
    packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).view(torch.int8)
    return packed, scales.to(torch.float8_e8m0fnu), exact


# Which weights are published quantised, by transformers' names and by DeepSeek's.
V4_FP8 = ("self_attn.q_a_proj", "q_b_proj", "self_attn.kv_proj", "o_a_proj", "o_b_proj", "shared_experts.")
V4_FP8_PUBLISHED = ("attn.wq_a", "wq_b", "attn.wkv", "wo_a", "wo_b", "shared_experts.")


def round_v4(model):
    """To numbers that have a quantised form; quantising them again finds it."""
    for name, parameter in model.named_parameters():
        if ".mlp.experts." in name:
            for expert in parameter:
                expert.copy_(fp4(expert)[2])
        elif any(part in name for part in V4_FP8):
            parameter.copy_(fp8(parameter)[2])


def quantize_v4(tensors):
    stored = {}
    for name, tensor in tensors.items():
        is_fp4, is_fp8 = ".experts." in name, any(part in name for part in V4_FP8_PUBLISHED)
        if is_fp4 or is_fp8:
            stored[name], stored[name.replace(".weight", ".scale")], _ = fp4(tensor) if is_fp4 else fp8(tensor)
        else:
            stored[name] = tensor
    return stored


def make_model(variant, seed):
    config = variant.config(**variant.fields)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    fill(model, seed)
    fill_special(model, seed)
    # What is published in fp32 stays so. Only parameters are rounded: model.to() would round rotary frequencies too.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith(EXACT):
                parameter.copy_(parameter.to(variant.dtype))
        if config.model_type == "deepseek_v4":
            round_v4(model)
    return model


def published_name(name):
    """transformers turns V4's names back imperfectly: what stays is its prefix and the norm of a row."""
    name = name.removeprefix("model.").replace("hc_head.hc_", "hc_head_").replace("embed_tokens", "embed")
    return name.replace(".attn.norm.", ".attn.kv_norm.")


def published_checkpoint(model, variant, work):
    """Through save_pretrained, which knows most of the published names. `model` gets the weights that are published."""
    model.save_pretrained(work)
    tensors = load_file(work / "model.safetensors")
    config = json.loads((work / "config.json").read_text())
    shutil.rmtree(work)
    spell_as_published(config, variant.fields)
    tensors = {n: t if n.endswith(EXACT) else t.to(variant.dtype) for n, t in tensors.items()}
    scheme = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic")
    if config["model_type"] == "deepseek_v4":
        tensors = quantize_v4({published_name(name): tensor for name, tensor in tensors.items()})
        config["expert_dtype"] = "fp4"
        config["quantization_config"] = scheme | dict(weight_block_size=V4_BLOCK, scale_fmt="ue8m0")
    if variant.block_fp8:
        tensors, dequantized = quantize_v3(tensors)
        load_v3(model, dequantized)
        config["quantization_config"] = scheme | dict(weight_block_size=[128, 128])
    if variant.with_mtp:
        tensors |= mtp_tensors(config)
    return tensors, config


def record(name, variant, output):
    seed = zlib.crc32(name.encode())
    while True:
        model = make_model(variant, seed)
        tensors, config = published_checkpoint(model, variant, output / (name + ".work"))
        try:
            with clear_choices():
                write_vectors(output / (name + ".vectors"), model, variant.prompt_lengths, seed)
            break
        except UnclearChoice:
            seed += 1
    folder = output / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
    size = sum(f.stat().st_size for f in [*folder.iterdir(), output / (name + ".vectors")])
    print(f"{name}: {size // 1024} KiB, seed {seed}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of variants; default all")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, variant in variants().items():
        if args.only and name not in args.only:
            continue
        shutil.rmtree(args.output / name, ignore_errors=True)
        record(name, variant, args.output)


if __name__ == "__main__":
    main()
