"""Makes the fixture of NVIDIA's Model Optimizer of tests/formats: matrices in its formats, and the
values that the package gives them in float32.

    python tests/formats/make_modelopt.py

Needs: torch, nvidia-modelopt, safetensors. Nothing is downloaded.
"""

from pathlib import Path

import torch
from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from safetensors.torch import save_file

OUT = Path(__file__).parent / "fixtures" / "modelopt"
SHAPE = [24, 64]
BLOCKS = {-1: 16}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(5)
    stored, expected = {}, {}
    for name in ("nvfp4", "nvfp4_wide"):
        weight = torch.randn(SHAPE) * (0.3 if name == "nvfp4" else 900.0)
        packed, scales, scale_2 = NVFP4QTensor.quantize(weight, 16)
        parts = dict(
            weight=packed._quantized_data,
            weight_scale=scales,
            # Of any shape with one element.
            weight_scale_2=scale_2.reshape([] if name == "nvfp4" else [1]),
            input_scale=torch.tensor(0.25),
        )
        stored |= {f"{name}.{part}": tensor.contiguous() for part, tensor in parts.items()}
        expected[name] = packed.dequantize(
            dtype=torch.float32, scale=scales, double_scale=scale_2, block_sizes=BLOCKS
        ).contiguous()
    weight = torch.randn(SHAPE)
    packed, scale = FP8QTensor.quantize(weight)
    stored |= {"fp8.weight": packed._quantized_data, "fp8.weight_scale": scale.reshape([])}
    stored["fp8.input_scale"] = torch.tensor(0.5)
    expected["fp8"] = packed.dequantize(dtype=torch.float32, scale=scale).contiguous()
    for name, tensor in stored.items():
        print(name, tensor.dtype, list(tensor.shape))
    for name, values in expected.items():
        print(name, values.abs().max().item())
    save_file(stored, OUT / "model.safetensors")
    save_file(expected, OUT / "expected.safetensors")


main()
