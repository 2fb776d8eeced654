"""Makes blocks-more.gguf: random blocks of the formats that make_fixtures.py has not, and their
values by `gguf.quants`.

    python tests/formats/make_blocks.py

Needs: gguf, numpy, safetensors. Nothing is downloaded.
"""

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

OUT = Path(__file__).parent / "fixtures"
# The places of 16-bit floats in a block.
HALVES = {
    T.Q4_1: [0, 2],
    T.Q5_0: [0],
    T.Q5_1: [0, 2],
    T.Q2_K: [80, 82],
    T.Q3_K: [108],
    T.Q5_K: [0, 2],
    T.IQ4_NL: [0],
    T.IQ4_XS: [0],
    T.MXFP4: [],
}
# Formats that are refused.
REFUSED = [T.IQ2_XXS, T.TQ1_0]

rng = np.random.default_rng(13)
writer = gguf.GGUFWriter(OUT / "blocks-more.gguf", "llama")
expected = {}
for kind, halves in HALVES.items():
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    columns = 512 if elements == 256 else 96
    blocks = rng.integers(0, 256, (2 * columns // elements, size), dtype=np.uint8)
    for at in halves:
        scale = rng.normal(0, 0.01, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
    if kind == T.MXFP4:
        blocks[:, 0] = rng.integers(110, 130, len(blocks))
    blocks = blocks.reshape(2, -1)
    writer.add_tensor(f"{kind.name}.weight", blocks, raw_dtype=kind)
    expected[kind.name] = gguf.quants.dequantize(blocks, kind).astype(np.float32)
for kind in REFUSED:
    size = gguf.GGML_QUANT_SIZES[kind][1]
    writer.add_tensor(f"{kind.name}.weight", np.zeros((1, size), np.uint8), raw_dtype=kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
save_file(expected, OUT / "blocks-more.expected.safetensors")
