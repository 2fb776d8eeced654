"""Makes adapters with PEFT for encoders whose code is in the folders of their authors.

    python3 make_authors_adapters.py            all models
    python3 make_authors_adapters.py NAME ...   some of them

PEFT wraps modules with the names and parameters of the authors' classes, and merges its matrices
into them. The forward passes of `authors_encoders.py` compute the answers with these weights. The
folders are in the form of `make_pooler_adapters.py`. An adapter of a Nomic encoder changes both
parameters of its experts (`a`), one of them beside the linear layers (`b`), or the other one (`c`).

Needs what `make_encoders.py` needs, and peft.
"""

import json
import shutil
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch.nn.functional import normalize
from transformers import PreTrainedTokenizerFast

from authors_encoders import nomic_moe
from make_authors_encoders import Recorder
from make_encoders import OUT, rows_of

ADAPTERS = OUT.parent / "pooler_adapters"
# Models, each with its forward pass and its pooling.
MODELS = {
    "nomic-moe": (lambda: nomic_moe(41, every=2, top_k=2), "mean"),
    "nomic-moe-plain": (
        lambda: nomic_moe(42, every=3, top_k=1, biases=False, experts=5, types=2), "cls",
    ),
}
LINEARS = ["Wqkv", "out_proj", "fc1", "fc2", "layer"]
CONFIGS = {
    "a": dict(
        r=3, lora_alpha=5, target_modules=["Wqkv"],
        target_parameters=["experts.mlp.w1", "experts.mlp.w2"], rank_pattern={"mlp.w2": 2},
    ),
    "b": dict(r=4, lora_alpha=6, use_rslora=True, target_modules=LINEARS,
              target_parameters=["mlp.experts.mlp.w2"]),
    "c": dict(r=2, lora_alpha=6, target_modules=["fc2"], target_parameters=["experts.mlp.w1"]),
}


class Modules(torch.nn.Module):
    """Modules with these tensors: linear layers, and others with parameters of their own."""

    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            *path, last = name.split(".")
            module = self
            for at, part in enumerate(path):
                if not hasattr(module, part):
                    is_linear = at + 1 == len(path) and last == "weight" and tensor.dim() == 2
                    is_linear = is_linear and "embeddings" not in name
                    bias = f"{name.removesuffix('weight')}bias" in tensors
                    make = lambda: torch.nn.Linear(*reversed(tensor.shape), bias=bias)
                    module.add_module(part, make() if is_linear else torch.nn.Module())
                module = getattr(module, part)
            module.register_parameter(last, torch.nn.Parameter(tensor.float()))


def randomized(tuned, generator):
    for key, parameter in tuned.named_parameters():
        if "lora_" in key:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = noise * (0.3 if "lora_A" in key else 0.2)
    return tuned


def make(name):
    forward, pooling = MODELS[name]
    out, recorder = ADAPTERS / name, Recorder()
    recorder.tokenizers = {name: PreTrainedTokenizerFast.from_pretrained(OUT / name)}
    shutil.rmtree(out, ignore_errors=True)
    golden = json.loads((OUT / name / "golden.json").read_text())
    texts = [one["text"] for one in golden["texts"]][:3]
    # The order in which the classes declare their tensors: PEFT follows it.
    declared = list(forward().weights.stored)
    stored = load_file(OUT / name / "model.safetensors")
    modules = lambda: Modules({key: stored[key] for key in declared})
    generator = torch.Generator().manual_seed(len(name))

    def answers(adapter, tensors):
        model = forward()
        model.tensors = {key: tensor.detach().float() for key, tensor in tensors.items()}
        for text in texts:
            hidden = model.of_tokens(model, *recorder.inputs(name, model, text))
            hidden = hidden.mean(0, keepdim=True) if pooling == "mean" else hidden[:1]
            yield dict(adapter=adapter, text=text, row=rows_of(normalize(hidden, dim=-1))[0])

    recorded = list(answers(None, stored))
    for adapter, fields in CONFIGS.items():
        tuned = get_peft_model(modules(), LoraConfig(**fields))
        randomized(tuned, generator).save_pretrained(out / adapter)
        (out / adapter / "README.md").unlink(missing_ok=True)
        merged = PeftModel.from_pretrained(modules(), out / adapter).merge_and_unload()
        recorded += answers(adapter, dict(merged.named_parameters()))
        path = out / adapter / "adapter_config.json"
        config = json.loads(path.read_text())
        config["base_model_name_or_path"] = name
        config["target_modules"] = sorted(config["target_modules"])
        path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    for one, known in zip(recorded[: len(texts)], golden["texts"]):
        gap = max(abs(a - b) for a, b in zip(one["row"], known["rows"][0]))
        assert gap < 1e-5, f"{name}: the base model differs by {gap}"
    rows = [one["row"] for one in recorded]
    assert all(rows.count(row) == 1 for row in rows), f"{name}: an adapter has no effect"
    (out / "answers.json").write_text(json.dumps(recorded) + "\n")
    print(name, len(recorded))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        for name in sys.argv[1:] or MODELS:
            make(name)
