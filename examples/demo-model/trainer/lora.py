"""Low-rank adapters (Hu et al. 2021) of every projection, kept in PEFT's format."""

import json

import torch
from safetensors.torch import save_file
from torch import nn

RANK, ALPHA = 8, 16
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class LoraLinear(nn.Module):
    """x W^T + (x A^T) B^T alpha / rank; only A [rank, in] and B [out, rank] are trained."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x)) * (ALPHA / RANK)


def adapt(model):
    """Freezes `model` and puts an adapter around each of its projections."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name in TARGETS:
            if isinstance(getattr(module, name, None), nn.Linear):
                setattr(module, name, LoraLinear(getattr(module, name)))
    return model


def save(model, folder):
    """Writes the adapter as PEFT would."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"base_model.model.{name}": weight.detach().to(torch.bfloat16).contiguous()
        for name, weight in model.named_parameters()
        if ".lora_" in name
    }
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    config = {
        "base_model_name_or_path": "..",
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": RANK,
        "target_modules": TARGETS,
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
