"""Records what gguf.quants makes of random blocks: src/kernels/linear/testdata/dequantize_vectors.txt.

Needs the packages gguf and numpy. One line per type: name, 512 weights as stored (hex), as little-endian fp32 (hex).

    python python/record_dequantize_vectors.py
"""

import pathlib

import gguf
import numpy as np
from gguf import quants

NUM_WEIGHTS = 512
OUTPUT = pathlib.Path(__file__).parent.parent / "src/kernels/linear/testdata/dequantize_vectors.txt"

# Where a block of each type keeps its f16 fields; random bits there would be mostly infinities and huge numbers.
F16_FIELDS = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def main() -> None:
    random = np.random.default_rng(20)
    lines = []
    for name, fields in F16_FIELDS.items():
        qtype = gguf.GGMLQuantizationType[name]
        block_size, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
        num_blocks = NUM_WEIGHTS // block_size
        blocks = random.integers(0, 256, (num_blocks, block_bytes), dtype=np.uint8)
        for field in fields:
            values = random.uniform(-0.1, 0.1, num_blocks).astype(np.float16)
            blocks[:, field : field + 2] = values.view(np.uint8).reshape(num_blocks, 2)
        weights = quants.dequantize(blocks.reshape(-1), qtype).astype("<f4")
        lines.append(f"{name} {blocks.tobytes().hex()} {weights.tobytes().hex()}\n")
    OUTPUT.write_text("".join(lines))


if __name__ == "__main__":
    main()
