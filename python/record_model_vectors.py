#!/usr/bin/env python3
"""Makes the tiny checkpoints of tests/golden/models and records what transformers computes with them.

Needs transformers 5, torch, safetensors and, for the GGUF twins, the source of llama.cpp:

    python/record_model_vectors.py --output tests/golden/models --llama-cpp PATH/TO/llama.cpp

Every folder NAME holds a checkpoint with random weights, NAME.gguf its conversion by llama.cpp's own converter, and
NAME.vectors the logits after each token of two prompts, computed in fp32 with eager attention. Layout of a vectors
file, little endian: magic "TWVECTOR", int32 num_prompts, int32 vocab_size; per prompt int32 num_tokens, the ids as
int32, the logits [num_tokens, vocab_size] as float32.
"""

import argparse
import copy
import dataclasses
import json
import math
import pathlib
import shutil
import struct
import sys
import zlib

import torch
import transformers
from safetensors.torch import load_file, save_file

VOCAB = 64
PROMPT_LENGTHS = (70, 7)

BASE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)

LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN_ROPE = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)


@dataclasses.dataclass
class Variant:
    """One checkpoint. `rope_spelling` 4 writes rope_theta and rope_scaling as transformers 4 did."""

    config: type
    fields: dict
    dtype: torch.dtype = torch.bfloat16
    rope_spelling: int = 5
    num_shards: int = 1
    gguf_types: tuple = ()
    wrapped: str = ""  # prefix of the text model's tensors inside a multimodal checkpoint
    block_fp8: bool = False
    drop_from_config: tuple = ()


def variants():
    llama, qwen2 = transformers.LlamaConfig, transformers.Qwen2Config
    qwen3, qwen3_moe = transformers.Qwen3Config, transformers.Qwen3MoeConfig
    gemma3 = transformers.Gemma3TextConfig
    default_rope = dict(rope_type="default", rope_theta=10000.0)
    gemma = dict(
        num_hidden_layers=4,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
        query_pre_attn_scalar=24,
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0),
        ),
    )
    experts = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)
    return {
        "llama": Variant(llama, dict(tie_word_embeddings=True, rope_parameters=default_rope), gguf_types=("f32", "q8_0")),
        "llama_untied_f32": Variant(
            llama,
            dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True, num_hidden_layers=1),
            dtype=torch.float32,
            drop_from_config=("head_dim", "num_key_value_heads", "rope_parameters"),
        ),
        "llama_linear_f16": Variant(
            llama,
            dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
            dtype=torch.float16,
            rope_spelling=4,
            gguf_types=("f16",),
        ),
        "llama_llama3": Variant(llama, dict(rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True), gguf_types=("bf16",)),
        "llama_llama3_v4": Variant(llama, dict(rope_parameters=LLAMA3_ROPE, num_hidden_layers=1), rope_spelling=4),
        "llama_yarn": Variant(llama, dict(rope_parameters=YARN_ROPE), gguf_types=("bf16",)),
        "llama_yarn_v4": Variant(
            llama,
            dict(
                rope_parameters=YARN_ROPE | dict(attention_factor=1.3, beta_fast=16.0, beta_slow=2.0), num_hidden_layers=1
            ),
            rope_spelling=4,
        ),
        "llama_dynamic": Variant(
            llama,
            dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0), num_hidden_layers=1),
        ),
        "qwen2": Variant(qwen2, dict(tie_word_embeddings=False, rope_parameters=default_rope), gguf_types=("bf16",)),
        "qwen2_window": Variant(
            qwen2,
            dict(
                tie_word_embeddings=True,
                use_sliding_window=True,
                sliding_window=20,
                max_window_layers=1,
                rope_parameters=default_rope,
            ),
            rope_spelling=4,
        ),
        "qwen3_sharded": Variant(
            qwen3, dict(tie_word_embeddings=True, rope_parameters=default_rope), num_shards=3, gguf_types=("bf16",)
        ),
        "qwen3_block_fp8": Variant(
            qwen3,
            dict(hidden_size=160, intermediate_size=192, num_hidden_layers=1, rope_parameters=default_rope),
            block_fp8=True,
        ),
        "qwen3_moe": Variant(qwen3_moe, experts | dict(num_hidden_layers=1, rope_parameters=default_rope), gguf_types=("bf16",)),
        "qwen3_moe_mixed": Variant(
            qwen3_moe,
            experts | dict(norm_topk_prob=False, mlp_only_layers=[0], tie_word_embeddings=True, rope_parameters=default_rope),
        ),
        "gemma3": Variant(gemma3, gemma),
        # Five local layers to a global one is the only pattern that GGUF files of Gemma 3 express.
        "gemma3_v4": Variant(
            gemma3,
            gemma
            | dict(
                num_hidden_layers=6,
                intermediate_size=32,
                layer_types=None,
                sliding_window_pattern=6,
                query_pre_attn_scalar=16,  # nor another scale than the head size
            ),
            rope_spelling=4,
            gguf_types=("bf16",),
        ),
        "gemma3_wrapped": Variant(
            gemma3,
            gemma | dict(num_hidden_layers=2, layer_types=None, sliding_window_pattern=2),
            rope_spelling=4,
            wrapped="language_model.",
        ),
    }


def fill(model, seed):
    """Weights large enough that the logits have a clear winner and every part matters."""
    generator = torch.Generator().manual_seed(seed)
    gemma = "gemma" in model.config.model_type
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(0.2 * noise + (0.0 if gemma else 1.0))
            elif name.endswith("bias"):
                parameter.copy_(0.2 * noise)
            elif "embed_tokens" in name:
                parameter.copy_(noise / (math.sqrt(model.config.hidden_size) if gemma else 1.0))
            else:
                parameter.copy_(1.5 * noise / math.sqrt(parameter.shape[-1]))


def quantize_block_fp8(tensors):
    """OCP FP8 with one scale per 128 x 128 block, as DeepSeek and Qwen publish it; returns the dequantised twin too."""
    stored, exact = {}, {}
    for name, weight in tensors.items():
        if not name.endswith("proj.weight"):
            stored[name] = exact[name] = weight
            continue
        rows, cols = weight.shape
        scale = torch.zeros(-(-rows // 128), -(-cols // 128))
        packed = torch.zeros(rows, cols, dtype=torch.float8_e4m3fn)
        wide = torch.zeros(rows, cols)
        for i in range(scale.shape[0]):
            for j in range(scale.shape[1]):
                block = (slice(i * 128, (i + 1) * 128), slice(j * 128, (j + 1) * 128))
                scale[i, j] = weight[block].float().abs().max() / 448.0
                packed[block] = (weight[block].float() / scale[i, j]).to(torch.float8_e4m3fn)
                wide[block] = packed[block].float() * scale[i, j]
        stored[name], stored[name + "_scale_inv"] = packed, scale
        # Engines hold such weights in bf16; so does the reference.
        exact[name] = wide.to(torch.bfloat16)
    return stored, exact


def spell_as_version_4(config, pattern):
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
        config["sliding_window_pattern"] = pattern
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config.pop("layer_types", None)


def write_checkpoint(folder, variant, config, tensors):
    folder.mkdir(parents=True)
    if variant.rope_spelling == 4:
        spell_as_version_4(config, variant.fields.get("sliding_window_pattern"))
    for field in variant.drop_from_config:
        config.pop(field, None)
    if variant.block_fp8:
        config["quantization_config"] = dict(quant_method="fp8", weight_block_size=[128, 128], activation_scheme="dynamic")
    if variant.wrapped:
        config.pop("architectures")
        config = dict(
            architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3", text_config=config, vision_config={}
        )
        tensors = {variant.wrapped + name: tensor for name, tensor in tensors.items()}
        tensors["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(4, dtype=torch.bfloat16)
        tensors["multi_modal_projector.mm_soft_emb_norm.weight"] = torch.ones(4, dtype=torch.bfloat16)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    if variant.num_shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
        return
    weight_map = {}
    names = sorted(tensors)
    for shard in range(variant.num_shards):
        file = f"model-{shard + 1:05d}-of-{variant.num_shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard :: variant.num_shards]}
        save_file(part, folder / file, metadata=dict(format="pt"))
        weight_map |= {name: file for name in part}
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = dict(metadata=dict(total_size=total), weight_map=weight_map)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def write_vectors(path, model, lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    with open(path, "wb") as file:
        file.write(b"TWVECTOR" + struct.pack("<ii", len(lengths), VOCAB))
        for length in lengths:
            ids = torch.randint(0, VOCAB, (1, length), generator=generator)
            with torch.no_grad():
                logits = model(input_ids=ids, use_cache=False).logits[0].float()
            assert logits.shape == (length, VOCAB) and logits.isfinite().all()
            file.write(struct.pack("<i", length))
            file.write(ids[0].numpy().astype("<i4").tobytes())
            file.write(logits.numpy().astype("<f4").tobytes())


def convert_to_gguf(folder, outtype, path, llama_cpp):
    """Runs llama.cpp's converter on `folder`; these checkpoints have no tokenizer, so the vocabulary is left out."""
    sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    with open(folder / "config.json", encoding="utf-8") as file:
        hparams = json.load(file)
    model_class = get_model_class(get_model_architecture(hparams, ModelType.TEXT))

    class WithoutVocabulary(model_class):
        model_arch = model_class.model_arch

        def set_vocab(self):
            self.gguf_writer.add_tokenizer_model("no_vocab")

    file_type = {
        "f32": gguf.LlamaFileType.ALL_F32,
        "f16": gguf.LlamaFileType.MOSTLY_F16,
        "bf16": gguf.LlamaFileType.MOSTLY_BF16,
        "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    }[outtype]
    tokenizer = folder / "tokenizer.json"  # Gemma's converter counts the entries
    vocab = {f"t{i}": i for i in range(VOCAB)}
    tokenizer.write_text(json.dumps(dict(added_tokens=[], model=dict(vocab=vocab))))
    try:
        WithoutVocabulary(folder, file_type, path, hparams=ModelBase.load_hparams(folder, False)).write()
    finally:
        tokenizer.unlink()


def record(name, variant, output, llama_cpp):
    seed = zlib.crc32(name.encode())
    fields = BASE | variant.fields
    if "head_dim" in variant.drop_from_config:
        fields["head_dim"] = fields["hidden_size"] // fields["num_attention_heads"]
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    config = variant.config(**fields)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    fill(model, seed)
    # Only parameters are rounded: model.to() would round the rotary frequencies too.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(variant.dtype))
    work = output / (name + ".work")
    copy.deepcopy(model).to(variant.dtype).save_pretrained(work)
    tensors = load_file(work / "model.safetensors")
    written = json.loads((work / "config.json").read_text())
    if variant.block_fp8:
        tensors, exact = quantize_block_fp8(tensors)
        model.load_state_dict(exact, strict=False)  # the tied head is absent
    shutil.rmtree(work)
    folder = output / name
    write_checkpoint(folder, variant, written, tensors)
    write_vectors(output / (name + ".vectors"), model, PROMPT_LENGTHS, seed)
    for outtype in variant.gguf_types:
        convert_to_gguf(folder, outtype, output / f"{name}.{outtype}.gguf", llama_cpp)
    size = sum(f.stat().st_size for f in output.rglob("*") if f.relative_to(output).parts[0].split(".")[0] == name)
    print(f"{name}: {size // 1024} KiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of variants; default all")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, variant in variants().items():
        if args.only and name not in args.only:
            continue
        for old in args.output.glob(name + "*"):
            if old.name.split(".")[0] == name:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        record(name, variant, args.output, args.llama_cpp)


if __name__ == "__main__":
    main()
