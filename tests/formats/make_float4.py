"""Makes the fixture of 4-bit floats of tests/formats: matrices of compressed-tensors, and the values
that the package's functions give them in float32.

    python tests/formats/make_float4.py

Needs: torch, compressed-tensors, safetensors. Nothing is downloaded.
"""

from pathlib import Path

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file

OUT = Path(__file__).parent / "fixtures" / "float4"
SHAPE = [24, 64]
FORMATS = {
    "nvfp4": (NVFP4PackedCompressor, 16, "tensor_group"),
    "mxfp4": (MXFP4PackedCompressor, 32, "group"),
}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(3)
    stored, expected = {}, {}
    for name, (compressor, size, strategy) in FORMATS.items():
        args = QuantizationArgs(num_bits=4, type="float", strategy=strategy, group_size=size)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        weight = torch.randn(SHAPE) * 0.3
        largest = weight.reshape(SHAPE[0], -1, size).abs().amax(-1) / 6
        state = {"weight": weight}
        if name == "nvfp4":
            state["weight_global_scale"] = (448 / largest.max()).reshape(1)
            scales = (largest * state["weight_global_scale"]).to(torch.float8_e4m3fn).float()
        else:
            scales = torch.exp2(largest.log2().ceil())
        packed = compressor.compress(state | {"weight_scale": scales}, scheme)
        stored |= {f"{name}.{part}": tensor.contiguous() for part, tensor in packed.items()}
        codes = unpack_fp4_from_uint8(packed["weight_packed"], *SHAPE, dtype=torch.float32)
        scales = compressor._decompress_scale(packed["weight_scale"], torch.float32)
        factor = packed.get("weight_global_scale")
        expected[name] = dequantize(codes, scales, global_scale=factor, args=args).contiguous()
        print(name, float((expected[name] - weight).abs().max()))
    save_file(stored, OUT / "model.safetensors")
    save_file(expected, OUT / "expected.safetensors")


main()
