"""Makes adapters of Phi-4-multimodal with PEFT, and records the answers of transformers with them.

    python tests/fidelity/make_phi4_adapters.py

They are for the models of `phi4/` in the form of the authors, and made over those in the form of
transformers, which have the same weights. `a` has the target modules of the published folders
`vision-lora` and `speech-lora`, and `b` those of a training of all attention.
Needs torch, transformers and peft.
"""

import json

import torch
from peft import LoraConfig, PeftModel
from transformers import Phi4MultimodalForCausalLM

from make_adapters import HERE, greedy, random_adapter

# The expression of the published folder.
PUBLISHED = r".*layers.*((self_attn\.(qkv_proj|o_proj))|(mlp\.(gate_up|down)_proj))"
NAMES = {"phi4mm": "phi4", "phi4mm-wide": "phi4-wide"}


def configs():
    yield "a", LoraConfig(
        r=4, lora_alpha=8, target_modules=PUBLISHED, lora_dropout=0.01, task_type="CAUSAL_LM",
    )
    # The vision tower has no layers of these names.
    yield "b", LoraConfig(
        r=3, lora_alpha=5, target_modules=r".*layers.*self_attn\.(qkv|o)_proj",
        use_rslora=True, task_type="CAUSAL_LM",
    )


def make(name, known):
    folder, out = HERE / "phi4" / known, HERE / "adapters_phi4" / name
    load = lambda: Phi4MultimodalForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(len(name))
    model = load()
    prompts = [torch.randint(3, 400, (length,), generator=generator).tolist() for length in (5, 19)]
    answers = [{"adapter": None, **greedy(model, prompt)} for prompt in prompts]
    for adapter, config in configs():
        random_adapter(load(), config, out / adapter, generator)
        tuned = PeftModel.from_pretrained(load(), out / adapter).eval()
        answers += [{"adapter": adapter, **greedy(tuned, prompt)} for prompt in prompts]
    (out / "answers.json").write_text(json.dumps(answers) + "\n")
    print(name, len(answers))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, known in NAMES.items():
        make(name, known)
