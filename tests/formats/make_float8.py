"""Makes the fixture of 8-bit floats of tests/formats: matrices, and the values that torch,
transformers and compressed-tensors read from them.

    python tests/formats/make_float8.py

Needs: torch, transformers >= 5, compressed-tensors, safetensors. Nothing is downloaded.
"""

from pathlib import Path

import torch
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, _dequantize_fp8_weight

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


def compressed(weight, scale, **strategy):
    """Returns what compressed-tensors reads from a matrix."""
    args = QuantizationArgs(num_bits=8, type="float", symmetric=True, **strategy)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    stored = dict(weight=weight, weight_scale=scale)
    return NaiveQuantizationCompressor.decompress(stored, scheme)["weight"]


def main():
    tensors, expected = {}, {}

    def add(name, weight, scale, value, part="weight_scale_inv"):
        tensors[f"{name}.weight"] = weight.clone()
        tensors[f"{name}.{part}"] = scale.clone()
        expected[name] = value.float().contiguous()

    read = lambda weight, scale: Fp8Dequantize(None)._dequantize_one(weight, scale, torch.float32)
    whole, scale = codes(8, 12, 1), scales((2, 3), 2)
    add("blocks", whole, scale, read(whole, scale))
    # The last blocks of both dimensions have fewer than four rows and columns. Divided by the
    # number of scales, both dimensions would make blocks of three.
    part, scale = codes(6, 9, 3), scales((2, 3), 4)
    add("partial", part, scale, _dequantize_fp8_weight(part, scale, [4, 4], torch.float32))
    blocks = compressed(part, scale, strategy="block", block_structure=[4, 4])
    add("compressed_partial", part, scale, blocks, "weight_scale")
    # Three matrices in one tensor.
    stacked, scale = codes(18, 9, 8).reshape(3, 6, 9), scales((3, 2, 3), 9)
    add("stacked", stacked, scale, _dequantize_fp8_weight(stacked, scale, [4, 4], torch.float32))
    ones = scales((3,), 10)
    add("stacked_ones", stacked, ones, stacked.float() * ones[:, None, None], "weight_scale")
    of_rows = scales((3, 6, 1), 11)
    add("stacked_rows", stacked, of_rows, stacked.float() * of_rows, "weight_scale")
    rounded = scales((2, 3), 5).bfloat16()
    add("bfloat16", whole, rounded, read(whole, rounded))
    generator = torch.Generator().manual_seed(12)
    power = torch.randint(118, 130, (2, 3), generator=generator, dtype=torch.uint8)
    add("exponents", whole, power, read(whole, power))
    add("e8m0", whole, power.view(torch.float8_e8m0fnu), read(whole, power))
    for name, shape in dict(one=(), one_element=(1,)).items():
        scale = scales(shape, 6)
        value = compressed(whole, scale.reshape(1), strategy="tensor")
        add(name, whole, scale, value, "weight_scale")
    rows = scales((8, 1), 7)
    add("rows", whole, rows, compressed(whole, rows, strategy="channel"), "weight_scale")
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(tensors, OUT / "model.safetensors", metadata={"format": "pt"})
    save_file(expected, OUT / "expected.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
