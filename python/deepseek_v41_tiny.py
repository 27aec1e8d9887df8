#!/usr/bin/env python3
"""Makes the weights of the tiny DeepSeek-V4.1 checkpoints that golden vectors were recorded on.

    python/deepseek_v41_tiny.py tests/golden/deepseek_v41 OUTPUT [--only NAME ...]

Needs numpy. The weights are numbers of NumPy's PCG64 in the order in which this file draws them, encoded as the
released checkpoint stores them (DeepSeek-V4.1 specification, sections 6.4, 6.5 and appendix B). Each line of models.txt
names a checkpoint, how it is drawn and the SHA-256 of its weights; NAME/config.json gives the sizes.

"plain" checkpoints have sublayers as large as the residual streams: they amplify every rounding, and are compared layer
by layer. "calm" ones have small sublayers, and experts that are chosen mostly by bias: they are compared end to end.
"""

import argparse
import hashlib
import json
import pathlib
import struct

import numpy as np

SEED = 1
QUANT_GROUP = 32  # channels, and rows of FP8 matrices, that share a scale


# ---- storage formats ------------------------------------------------------------------------------------------------
def bf16_bits(x):
    """To nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def narrow_codes(x, lowest_exponent, mantissa_bits, largest, sign_bit):
    """Codes of a small float type: how many of its numbers lie between zero and x, and the sign."""
    magnitude = np.minimum(np.abs(x), np.float32(largest))
    exponent = np.where(magnitude == 0, lowest_exponent, np.maximum(np.frexp(magnitude)[1] - 1, lowest_exponent))
    steps = np.rint(np.ldexp(magnitude, mantissa_bits - exponent)).astype(np.int32)
    codes = steps + ((exponent - lowest_exponent) << mantissa_bits)
    return (codes | np.signbit(x).astype(np.int32) << sign_bit).astype(np.uint8)


def e4m3_codes(x):
    return narrow_codes(x, -6, 3, 448, 7)


def e2m1_codes(x):
    return narrow_codes(x, 0, 1, 6, 3)


def power_of_two_scales(largest, format_largest, smallest):
    """(scale, its E8M0 code): the power of two that brings `largest` into the format."""
    wanted = np.maximum(largest, np.float32(smallest)) * np.float32(1 / format_largest)
    bits = wanted.view(np.uint32)
    codes = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
    return (codes.astype(np.uint32) << 23).view(np.float32), codes.astype(np.uint8)


def in_groups(x):
    return x.reshape(*x.shape[:-1], -1, QUANT_GROUP)


def fp8_tiles(x):
    """E4M3 with a scale per 32 x 32, cut at the edges."""
    num_rows, num_cols = x.shape
    padded = np.pad(x, ((0, -num_rows % QUANT_GROUP), (0, -num_cols % QUANT_GROUP)))
    tiles = in_groups(padded).reshape(-1, QUANT_GROUP, padded.shape[1] // QUANT_GROUP, QUANT_GROUP)
    scales, scale_codes = power_of_two_scales(np.abs(tiles).max((1, 3)), 448, 1e-4)
    codes = e4m3_codes(tiles / scales[:, None, :, None]).reshape(padded.shape)
    return codes[:num_rows, :num_cols], scale_codes


def fp8_rows(x):
    """E4M3 with a scale per 32 channels."""
    scales, scale_codes = power_of_two_scales(np.abs(in_groups(x)).max(-1), 448, 1e-4)
    return e4m3_codes(in_groups(x) / scales[..., None]).reshape(x.shape), scale_codes


def fp4_rows(x):
    """Two E2M1 codes per byte, the low half first, with a scale per 32 channels."""
    scales, scale_codes = power_of_two_scales(np.abs(in_groups(x)).max(-1), 6, 6 * 2.0**-126)
    codes = e2m1_codes(in_groups(x) / scales[..., None]).reshape(x.shape)
    return (codes[:, 0::2] | codes[:, 1::2] << 4).view(np.int8), scale_codes


def safetensors_bytes(tensors, metadata):
    """`tensors`: name to (dtype, array); stored in the order of names."""
    header, pieces, end = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors):
        dtype, array = tensors[name]
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, end]}
        pieces.append(np.ascontiguousarray(array).tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *pieces])


# ---- weights --------------------------------------------------------------------------------------------------------
class Draws:
    """Draws tensors one after another. Their order is part of the checkpoints: never change it."""

    def __init__(self, config, is_calm):
        self.config = config
        self.generator = np.random.default_rng(SEED)
        self.output_gain = 0.1 if is_calm else 1.0  # of what a sublayer adds to the streams
        self.bias_gain = 2.0 if is_calm else 0.3
        self.tensors = {}

    def normal(self, *shape):
        return self.generator.standard_normal(shape, dtype=np.float32)

    def bf16(self, name, values):
        self.tensors[name] = ("BF16", bf16_bits(values))

    def f32(self, name, values):
        self.tensors[name] = ("F32", np.asarray(values, np.float32))

    def projection(self, name, num_rows, num_cols, gain=1.0):
        self.bf16(name, self.normal(num_rows, num_cols) / np.float32(np.sqrt(num_cols)) * np.float32(gain))

    def norm(self, name, *shape):
        """Not all ones, which would hide a missing factor."""
        self.bf16(name, 1 + 0.25 * self.normal(*shape))

    def quantized(self, quantize, dtype, name, values):
        codes, scale_codes = quantize(values)
        self.tensors[name + ".weight"] = (dtype, codes)
        self.tensors[name + ".scale"] = ("F8_E8M0", scale_codes)

    def fp8(self, name, num_rows, num_cols, gain=1.0):
        self.quantized(fp8_tiles, "F8_E4M3", name, self.normal(num_rows, num_cols) * np.float32(gain / np.sqrt(num_cols)))

    def fp4(self, name, num_rows, num_cols, gain=1.0):
        self.quantized(fp4_rows, "I8", name, self.normal(num_rows, num_cols) * np.float32(gain / np.sqrt(num_cols)))

    def attention(self, prefix):
        c = self.config
        width = c["num_attention_heads"] * c["head_dim"]
        out_width = c["o_groups"] * c["o_lora_rank"]
        self.fp8(prefix + "wq_a", c["q_lora_rank"], c["hidden_size"])
        self.norm(prefix + "q_norm.weight", c["q_lora_rank"])
        self.fp8(prefix + "wq_b", width, c["q_lora_rank"], 1.5)
        self.fp8(prefix + "wkv", c["head_dim"], c["hidden_size"])
        self.norm(prefix + "kv_norm.weight", c["head_dim"])
        self.fp8(prefix + "wo_a", out_width, width // c["o_groups"])
        self.fp8(prefix + "wo_b", c["hidden_size"], out_width, self.output_gain)
        self.f32(prefix + "attn_sink", self.normal(c["num_attention_heads"]))

    def experts(self, prefix, num_experts):
        hidden, width = self.config["hidden_size"], self.config["moe_intermediate_size"]
        self.projection(prefix + "gate.weight", num_experts, hidden, 2)
        self.f32(prefix + "gate.bias", self.bias_gain * self.normal(num_experts))
        self.f32(prefix + "gate.bias_vl", self.bias_gain * self.normal(num_experts))
        for e in range(num_experts):
            expert = f"{prefix}experts.{e}."
            self.fp4(expert + "w1", width, hidden, 1.5)
            self.fp4(expert + "w3", width, hidden, 1.5)
            self.fp4(expert + "w2", hidden, width, self.output_gain)
        self.fp8(prefix + "shared_experts.w1", width, hidden)
        self.fp8(prefix + "shared_experts.w3", width, hidden)
        self.fp8(prefix + "shared_experts.w2", hidden, width, self.output_gain)

    def block(self, prefix, num_experts):
        c = self.config
        self.norm(prefix + "attn_norm.weight", c["hidden_size"])
        self.norm(prefix + "ffn_norm.weight", c["hidden_size"])
        self.attention(prefix + "attn.")
        self.experts(prefix + "ffn.", num_experts)
        num_mixed = c["hc_mult"] * (c["hc_mult"] + 2)
        width = c["hc_mult"] * c["hidden_size"]
        for mix in ("hc_attn", "hc_ffn"):
            self.f32(f"{prefix}{mix}_fn", self.normal(num_mixed, width) / np.float32(np.sqrt(width)))
            self.f32(f"{prefix}{mix}_base", 0.7 * self.normal(num_mixed))
            self.f32(f"{prefix}{mix}_scale", 0.6 + 0.3 * self.generator.random(3))

    def compressor(self, prefix, ratio):
        c = self.config
        self.projection(prefix + "compressor.wkv.weight", c["head_dim"], c["hidden_size"])
        self.norm(prefix + "compressor.norm.weight", c["head_dim"])
        if ratio > 1:
            self.projection(prefix + "compressor.wgate.weight", c["head_dim"], c["hidden_size"])
        self.projection(prefix + "indexer.wk.weight", c["index_head_dim"], c["head_dim"])
        self.norm(prefix + "indexer.k_norm.weight", c["index_head_dim"])

    def index(self, prefix):
        c = self.config
        self.fp8(prefix + "indexer.wq_b", c["index_n_heads"] * c["index_head_dim"], c["q_lora_rank"], 1.5)
        self.projection(prefix + "indexer.weights_proj.weight", c["index_n_heads"], c["hidden_size"])

    def engram(self, prefix, num_rows):
        c = self.config
        width = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"] * c["engram_head_dim"]
        table = self.normal(num_rows, c["engram_head_dim"])
        self.quantized(fp8_rows, "F8_E4M3", prefix + "embed", table)
        self.fp8(prefix + "wkv", c["hidden_size"] * (c["hc_mult"] + 1), width, self.output_gain)
        self.norm(prefix + "q_weight", c["hc_mult"], c["hidden_size"])
        self.norm(prefix + "k_weight", c["hc_mult"], c["hidden_size"])

    def draft_model(self, num_stages):
        c = self.config
        hidden, vocab, rank = c["hidden_size"], c["vocab_size"], c["dspark_markov_rank"]
        for n in range(num_stages):
            self.block(f"mtp.{n}.", c["dspark_n_routed_experts"])
        last = f"mtp.{num_stages - 1}."
        self.fp8("mtp.0.main_proj", hidden, hidden * len(c["dspark_target_layer_ids"]))
        self.norm("mtp.0.main_norm.weight", hidden)
        self.norm(last + "norm.weight", hidden)
        self.bf16(last + "markov_head.embed.weight", self.normal(vocab, rank))
        self.projection(last + "markov_head.head.weight", vocab, rank)
        self.projection(last + "confidence_head.proj.weight", 1, hidden + rank)

    def model(self):
        c = self.config
        self.bf16("embed.weight", self.normal(c["vocab_size"], c["hidden_size"]))
        self.projection("head.weight", c["vocab_size"], c["hidden_size"], 2)
        self.norm("norm.weight", c["hidden_size"])
        for layer in range(c["num_hidden_layers"]):
            prefix = f"layers.{layer}."
            self.block(prefix, c["n_routed_experts"])
            if layer in c["kv_source_layer_ids"]:
                self.compressor(prefix + "attn.", c["compress_ratios"][layer])
            if layer in c["index_source_layer_ids"]:
                self.index(prefix + "attn.")
            if layer in c["engram_layer_ids"]:
                num_rows = c["engram_num_embeddings"][c["engram_layer_ids"].index(layer)]
                self.engram(prefix + "engram.", num_rows)
        if c["num_nextn_predict_layers"] > 0:
            self.draft_model(c["num_nextn_predict_layers"])
        return self.tensors


# ---- checkpoints ----------------------------------------------------------------------------------------------------
def listed_models(golden):
    """name, "plain" or "calm", SHA-256 of model.safetensors"""
    lines = (golden / "models.txt").read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def make(golden, output, name, kind, wanted):
    config = json.loads((golden / name / "config.json").read_text())["text_config"]
    weights = safetensors_bytes(Draws(config, kind == "calm").model(), {"format": "pt"})
    found = hashlib.sha256(weights).hexdigest()
    if found != wanted:
        raise SystemExit(f"{name}: the weights have SHA-256 {found}, models.txt says {wanted}: this numpy "
                         f"({np.__version__}) draws or rounds other numbers than the golden vectors belong to")
    folder = output / name
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "model.safetensors.partial"
    unfinished.write_bytes(weights)
    unfinished.rename(folder / "model.safetensors")
    beside = [*(golden / name).iterdir(), golden / "tokenizer.json", golden / "engram_token_map.i32"]
    for source in beside:
        link = folder / source.name
        link.unlink(missing_ok=True)
        link.symlink_to(source.resolve())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=pathlib.Path, help="tests/golden/deepseek_v41")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of models.txt; all by default")
    arguments = parser.parse_args()
    for name, kind, wanted in listed_models(arguments.golden):
        if not arguments.only or name in arguments.only:
            make(arguments.golden, arguments.output, name, kind, wanted)


if __name__ == "__main__":
    main()
