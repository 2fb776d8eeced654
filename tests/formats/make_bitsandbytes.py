"""Makes the fixtures of bitsandbytes of tests/formats: small models, and the logits of transformers
in float32 over the weights that bitsandbytes dequantizes.

    python tests/formats/make_bitsandbytes.py

Needs: torch, transformers >= 5, bitsandbytes, safetensors. Nothing is downloaded.
"""

import json
import shutil
import tempfile
from pathlib import Path

import bitsandbytes as bnb
import torch
import transformers as hf

OUT = Path(__file__).parent / "fixtures"
PROMPTS = [[1, 5, 9, 33, 2, 60], [7], list(range(40))]
MODELS = {
    "bitsandbytes-nf4": dict(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    ),
    "bitsandbytes-fp4": dict(
        load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_compute_dtype=torch.float32
    ),
    "bitsandbytes-int8": dict(load_in_8bit=True, llm_int8_skip_modules=["lm_head", "o_proj"]),
}  # fmt: skip


def dequantized(module):
    """Returns the weight of a linear layer as floats."""
    weight = module.weight
    if isinstance(module, bnb.nn.Linear4bit):
        return bnb.functional.dequantize_4bit(weight.data, weight.quant_state).float()
    if isinstance(module, bnb.nn.Linear8bitLt):
        scales = weight.SCB if weight.SCB is not None else module.state.SCB
        return bnb.functional.int8_vectorwise_dequant(weight.data, scales).float()
    return weight.data.float()


def main():
    torch.manual_seed(5)
    config = hf.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2,
        max_position_embeddings=64,
    )  # fmt: skip
    dense = hf.LlamaForCausalLM(config).eval()
    for name, settings in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            dense.save_pretrained(folder)
            settings = hf.BitsAndBytesConfig(**settings)
            model = hf.AutoModelForCausalLM.from_pretrained(
                folder, quantization_config=settings, dtype=torch.float32
            )
        shutil.rmtree(OUT / name, ignore_errors=True)
        model.save_pretrained(OUT / name)
        (OUT / name / "generation_config.json").unlink(missing_ok=True)
        modules = dict(model.named_modules())
        weights = {
            key: dequantized(modules[key.removesuffix(".weight")]) for key in dense.state_dict()
        }
        reference = hf.LlamaForCausalLM(config).eval()
        reference.load_state_dict(weights)
        with torch.no_grad():
            rows = [reference(torch.tensor([ids])).logits[0, -1] for ids in PROMPTS]
        golden = [
            dict(ids=ids, logits=[float(f"{x:.7g}") for x in row.tolist()])
            for ids, row in zip(PROMPTS, rows)
        ]
        (OUT / name / "golden.json").write_text(json.dumps(golden) + "\n")
        print(name)


main()
