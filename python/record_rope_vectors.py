"""Records inverse frequencies of transformers' rotary embeddings for src/kernels/rope/rope/test.cc.

Run: python record_rope_vectors.py > ../src/kernels/rope/rope/recorded_frequencies.h
"""

import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# name in C++, call in C++, rope_dim, base, scaling
CASES = [
    ("linear", "rope_linear(256, 1e6, 8.0)", 256, 1e6, {"rope_type": "linear", "factor": 8.0}),
    (
        "llama3_2",
        "rope_llama3(64, 5e5, 32.0, 1.0, 4.0, 8192)",
        64,
        5e5,
        {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        "llama3_1",
        "rope_llama3(128, 5e5, 8.0, 1.0, 4.0, 8192)",
        128,
        5e5,
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        "yarn_qwen",
        "rope_yarn(128, 1e6, 4.0, 32768, 32.0, 1.0, 0.0)",
        128,
        1e6,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    ),
    (
        "yarn_given_factor",
        "rope_yarn(64, 1e4, 16.0, 4096, 16.0, 2.0, 0.75)",
        64,
        1e4,
        {
            "rope_type": "yarn",
            "factor": 16.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "attention_factor": 0.75,
        },
    ),
]

PROLOGUE = """#pragma once

#include <vector>

#include "kernels/rope/rope.h"

namespace thalweg::kernels::rotation {

struct RecordedFrequencies {
  const char* name;
  RopeFrequencies (*make)();
  float magnitude;
  std::vector<float> inverse;
};

// clang-format off"""


def default_frequencies(rope_dim, base):
    """Not in the table of scalings: the plain formula, in float64."""
    return [base ** (-2.0 * i / rope_dim) for i in range(rope_dim // 2)]


def print_case(name, call, frequencies, magnitude):
    print(f'    {{"{name}", [] {{ return {call}; }}, {magnitude:.9g},')
    values = ", ".join(f"{f:.9g}" for f in frequencies)
    print(f"     {{{values}}}}},")


def main():
    print(f"// Written by python/record_rope_vectors.py with transformers {transformers.__version__}.")
    print(PROLOGUE)
    print("inline const std::vector<RecordedFrequencies>& recorded_frequencies() {")
    print("  static const std::vector<RecordedFrequencies> cases{")
    print_case("default", "rope_default(64, 1e5)", default_frequencies(64, 1e5), 1.0)
    for name, call, rope_dim, base, scaling in CASES:
        config = LlamaConfig(
            hidden_size=rope_dim * 4,
            num_attention_heads=4,
            head_dim=rope_dim,
            max_position_embeddings=int(scaling.get("factor", 1) * scaling.get("original_max_position_embeddings", 4096)),
            rope_parameters={**scaling, "rope_theta": base},
        )
        frequencies, magnitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu")
        print_case(name, call, [float(f) for f in frequencies], float(magnitude))
    print("  };")
    print("  return cases;")
    print("}")
    print("// clang-format on")
    print("\n}  // namespace thalweg::kernels::rotation")


if __name__ == "__main__":
    main()
