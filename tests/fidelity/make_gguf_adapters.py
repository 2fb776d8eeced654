"""Makes adapters for the GGUF files of `tests/formats/converted` with PEFT, and records the answers
of transformers with them.

    python3 make_gguf_adapters.py            all models
    python3 make_gguf_adapters.py NAME ...   some of them

The models are those that llama.cpp's converter made into the files: the script compares their
logits with the recorded ones. `adapters_gguf/NAME` has what `make_adapters.py` writes. Its
adapters have the names of transformers, as PEFT writes them.
Needs torch, transformers, peft and gguf.
"""

import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "formats")]

import torch  # noqa: E402
from gguf_models import CASES, tiny_model  # noqa: E402
from make_adapters import record  # noqa: E402

OUT = HERE / "adapters_gguf"
CONVERTED = HERE.parent / "formats" / "converted"
# Models, each with the modules that its second adapter replaces as a whole.
MODELS = {
    "llama-linear": ["lm_head"],
    "qwen3_moe": ["embed_tokens"],
    "bamba": [],
    "bloom": [],
    "deepseek_v2": [],
    "deepseek_v3": [],
    "falcon-groups": [],
    "gemma": [],
    "glm": [],
    "gpt2": [],
    "gpt_neox": [],
    "gpt_oss": [],
    "granite_hybrid": [],
    "lfm2": [],
    "llama4": [],
    "minimax": [],
    "mixtral": [],
    "nemotron_h": [],
    "phi3": [],
    "qwen2_moe": [],
    "qwen3_next": [],
    "seed_oss": [],
    "smollm3": [],
}


def require_same(name, model):
    """Compares the model's logits with those that were recorded beside its file."""
    for prompt in json.loads((CONVERTED / f"{name}.golden.json").read_text()):
        with torch.no_grad():
            logits = model(torch.tensor([prompt["ids"]]), use_cache=False).logits[0, -1]
        difference = (logits - torch.tensor(prompt["logits"])).abs().max().item()
        assert difference < 1e-3, f"{name}: not the model of the file: {difference}"


def make(name, saved):
    load = lambda: tiny_model(name, CASES[name])
    model = load()
    require_same(name, model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        record(name, saved, load, pathlib.Path(folder), OUT / name)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS.get(name, []))
