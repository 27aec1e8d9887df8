#!/usr/bin/env python3
"""Records what an independent implementation of DeepSeek-V4.1 computes on the tiny checkpoints.

    python/deepseek_v41_tiny.py tests/golden/deepseek_v41 MODELS
    python/deepseek_v41_golden.py tests/golden/deepseek_v41 MODELS --implementation FILE.py [--only NAME ...]

Needs numpy. FILE.py is a Python module with `State()` and `Model(folder, mode)`, where mode is "fp32" (only caches are
quantised) or "ref" (every rounding of the specification); `forward(ids, state, trace)` gives the logits of all ids and
leaves each layer's values in `trace[layer]`, `draft(state, anchor, trace=)` gives ids, logits and confidence logits of a
draft and leaves each stage's values in `trace[stage]`.
tests/golden/deepseek_v41/README.md says which implementation the committed files are from.

Every checkpoint gets its layers' values for a short and a longer prompt; a calm one also whole runs: logits, greedy
continuations and drafts, of the shortest the hidden states of the draft model too. Values that follow from others at once are left out of the longer prompt: files stay small.
"""

import argparse
import importlib.util
import json
import pathlib

import numpy as np
from deepseek_v41_tiny import SEED, listed_models, safetensors_bytes

RUN_LENGTHS = (7, 64, 300)
LAYER_LENGTHS = (7, 40)
ROUNDED = ("micro-calm",)  # recorded in mode "ref" too
LOGITS_OF_ALL_TOKENS = {"heads-calm": 64}  # where single tokens are near ties, which a test must know

LAYER_VALUES = ("X", "pre", "route_idx", "route_w", "topk", "compressed_kv", "index_k", "engram_rows", "engram_gate")
SHORT_LAYER_VALUES = ("latent", "attn_in", "attn_core", "attn_out", "ffn_in", "ffn_out")
ROUNDED_LAYER_VALUES = ("X", "pre")
SHORT_ROUNDED_LAYER_VALUES = ("attn_in", "attn_out", "ffn_in", "ffn_out")


def make_prompts(vocab_size):
    """By length. The last third repeats the first, so that n-grams come twice."""
    generator = np.random.default_rng(SEED + 1000)
    prompts = {}
    for length in sorted({*RUN_LENGTHS, *LAYER_LENGTHS}, key=(*RUN_LENGTHS, *LAYER_LENGTHS).index):
        ids = generator.integers(3, vocab_size, length)
        ids[0] = 0
        third = length // 3
        if third > 4:
            ids[2 * third : 3 * third] = ids[:third]
        prompts[length] = ids
    return prompts


class Recording:
    def __init__(self):
        self.tensors = {}

    def put(self, name, values):
        values = np.asarray(values)
        dtype, stored = ("I32", np.int32) if values.dtype.kind in "iub" else ("F32", np.float32)
        self.tensors[name] = (dtype, np.ascontiguousarray(values, stored))

    def layers(self, model, state, prompts, is_rounded):
        for length in LAYER_LENGTHS:
            trace = {}
            model.forward(prompts[length], state(), trace)
            self.put(f"len{length}.ids", prompts[length])
            names = ROUNDED_LAYER_VALUES if is_rounded else LAYER_VALUES
            if length == min(LAYER_LENGTHS):
                names += SHORT_ROUNDED_LAYER_VALUES if is_rounded else SHORT_LAYER_VALUES
            for layer in range(model.c["num_hidden_layers"]):
                for name in names:
                    if name in trace[layer]:
                        self.put(f"len{length}.layer{layer}.{name}", trace[layer][name])

    def runs(self, model, state, prompts, whole_logits, is_rounded):
        for length in RUN_LENGTHS:
            prefix = f"len{length}."
            sequence = state()
            trace = {}
            logits = model.forward(prompts[length], sequence, trace)
            self.put(prefix + "ids", prompts[length])
            self.put(prefix + "argmax", logits.argmax(-1))
            if is_rounded:
                continue
            self.put(prefix + "logits_last8", logits[-8:])
            if length == whole_logits:
                self.put(prefix + "logits", logits)
            anchor = int(logits[-1].argmax())
            stages = {}
            ids, draft_logits, confidence = model.draft(sequence, anchor, trace=stages)
            if length == min(RUN_LENGTHS):
                self.put(prefix + "draft.main_x", trace["main_x"])
                self.put(prefix + "draft.base", stages["base"])
                for stage in range(model.c["num_nextn_predict_layers"]):
                    self.put(f"{prefix}draft.stage{stage}.X", stages[stage]["X"])
            for name, values in (("anchor", [anchor]), ("ids", ids), ("logits", draft_logits), ("conf_logit", confidence)):
                self.put(f"{prefix}draft.{name}", values)
            greedy = [anchor]
            while len(greedy) < 8:
                greedy.append(int(model.forward(greedy[-1:], sequence)[-1].argmax()))
            self.put(prefix + "greedy8", greedy)

    def write(self, path, mode):
        path.write_bytes(safetensors_bytes(self.tensors, {"mode": mode}))


def record(implementation, golden, folder, name, kind):
    vocab_size = json.loads((golden / name / "config.json").read_text())["text_config"]["vocab_size"]
    prompts = make_prompts(vocab_size)
    for mode in ("fp32", "ref") if name in ROUNDED else ("fp32",):
        model = implementation.Model(str(folder), mode)
        model.c.setdefault("candidate_source_layer_id", -1)
        recording = Recording()
        recording.layers(model, implementation.State, prompts, mode == "ref")
        if kind == "calm":
            recording.runs(model, implementation.State, prompts, LOGITS_OF_ALL_TOKENS.get(name), mode == "ref")
        recording.write(golden / name / f"golden_{mode}.safetensors", mode)


def load_module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=pathlib.Path, help="tests/golden/deepseek_v41")
    parser.add_argument("models", type=pathlib.Path, help="what deepseek_v41_tiny.py has made")
    parser.add_argument("--implementation", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of models.txt; all by default")
    arguments = parser.parse_args()
    implementation = load_module(arguments.implementation)
    for name, kind, _ in listed_models(arguments.golden):
        if not arguments.only or name in arguments.only:
            record(implementation, arguments.golden, arguments.models / name, name, kind)


if __name__ == "__main__":
    main()
