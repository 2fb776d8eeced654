"""Makes the fixtures of NVIDIA's Model Optimizer of tests/formats: matrices in its formats with the
values that the package gives them in float32, and a model with transformers' logits over them.

    python tests/formats/make_modelopt.py

Needs: torch, transformers >= 5, nvidia-modelopt, safetensors. Nothing is downloaded.
"""

import json
from pathlib import Path

import torch
from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

FIXTURES = Path(__file__).parent / "fixtures"
OUT = FIXTURES / "modelopt"
SHAPE = [24, 64]
BLOCKS = {-1: 16}


def make_model():
    """Makes a model as version 0.29 has written them: config.json does not mention the format."""
    folder = FIXTURES / "modelopt-nvfp4"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(6)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=64,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).eval()
    stored = {}
    for name, parameter in model.named_parameters():
        module = name.removesuffix(".weight")
        if not name.endswith("proj.weight"):
            stored[name] = parameter.detach().clone()
            continue
        packed, scales, scale_2 = NVFP4QTensor.quantize(parameter.detach(), 16)
        stored[name] = packed._quantized_data
        stored |= {f"{name}_scale": scales, f"{name}_scale_2": scale_2.reshape([])}
        stored[f"{module}.input_scale"] = torch.tensor(0.25)
        parameter.data = packed.dequantize(
            dtype=torch.float32, scale=scales, double_scale=scale_2, block_sizes=BLOCKS
        ).contiguous()
    for part in "kv":
        stored[f"model.layers.0.self_attn.{part}_proj.{part}_scale"] = torch.tensor(1.0)
    save_file(stored, folder / "model.safetensors", metadata=dict(format="pt"))
    fields = {k: v for k, v in config.to_dict().items() if k != "transformers_version"}
    fields |= dict(architectures=["LlamaForCausalLM"], dtype="bfloat16")
    own = dict(quant_algo="NVFP4", kv_cache_quant_algo="FP8", group_size=16)
    own = dict(producer=dict(name="modelopt", version="0.29.0"), quantization=own)
    own["quantization"]["exclude_modules"] = ["lm_head"]
    for name, content in [("config", fields), ("hf_quant_config", own)]:
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    prompts = []
    for length in (1, 6, 20):
        ids = torch.randint(3, 32, [1, length])
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0, -1]
        prompts.append(dict(ids=ids[0].tolist(), logits=[round(x, 4) for x in logits.tolist()]))
    (folder / "golden.json").write_text(json.dumps(prompts, separators=(",", ":")) + "\n")


def main():
    make_model()
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
