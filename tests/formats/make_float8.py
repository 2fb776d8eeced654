"""Makes the fixture of 8-bit floats of tests/formats: matrices, and the values that torch and
transformers read from them.

    python tests/formats/make_float8.py

Needs: torch, transformers >= 5, safetensors. Nothing is downloaded.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

OUT = Path(__file__).parent / "fixtures" / "float8"


def codes(rows, columns, seed):
    """Returns every code but the two NaN, in random order."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 256, (rows, columns), generator=generator, dtype=torch.uint8)
    bits[(bits & 0x7F) == 0x7F] = 0x38
    return bits.view(torch.float8_e4m3fn)


def scales(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.empty(shape).uniform_(0.001, 0.1, generator=generator)


def main():
    tensors, expected = {}, {}

    def add(name, weight, scale, value, part="weight_scale_inv"):
        tensors[f"{name}.weight"] = weight.clone()
        tensors[f"{name}.{part}"] = scale.clone()
        expected[name] = value.float().contiguous()

    read = lambda weight, scale: Fp8Dequantize(None)._dequantize_one(weight, scale, torch.float32)
    whole, scale = codes(8, 12, 1), scales((2, 3), 2)
    add("blocks", whole, scale, read(whole, scale))
    # The last blocks of both dimensions have less than four rows and columns.
    part, scale = codes(7, 10, 3), scales((2, 3), 4)
    spread = scale.repeat_interleave(4, 0)[:7].repeat_interleave(4, 1)[:, :10]
    add("partial", part, scale, part.float() * spread)
    rounded = scales((2, 3), 5).bfloat16()
    add("bfloat16", whole, rounded, read(whole, rounded))
    power = torch.randint(118, 130, (2, 3), dtype=torch.uint8)
    add("exponents", whole, power, read(whole, power))
    add("e8m0", whole, power.view(torch.float8_e8m0fnu), read(whole, power))
    for name, shape in dict(one=(), one_element=(1,)).items():
        scale = scales(shape, 6)
        add(name, whole, scale, whole.float() * scale, "weight_scale")
    rows = scales((8, 1), 7)
    add("rows", whole, rows, whole.float() * rows, "weight_scale")
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(tensors, OUT / "model.safetensors", metadata={"format": "pt"})
    save_file(expected, OUT / "expected.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
