"""Records the vectors of sentence-transformers for texts with a prompt whose tokens are not pooled:
`include_prompt: false` of `Pooling`.

    python tests/fidelity/make_prompts.py

The models are those of `make_poolers.py` and `make_encoders.py`, with other poolings and prompts.

Needs: torch, transformers >= 5, sentence-transformers >= 6. Nothing is downloaded.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from sentence_transformers import SentenceTransformer

from corpus import sentences

HERE = Path(__file__).parent
MODELS = ["poolers/llama-mean", "encoders/modernbert-mean", "encoders/t5-mean"]
MODES = [
    "mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", ["cls", "mean", "max"],
]  # fmt: skip
PROMPTS = {"query": "Find the text:", "document": "text:", "none": ""}
TEXTS = list(sentences(5, 2)) + ["a", " b"]


def main():
    torch.set_num_threads(1)
    recorded = []
    for name in MODELS:
        for mode in MODES:
            folder = Path(tempfile.mkdtemp()) / "model"
            shutil.copytree(HERE / name, folder)
            path = folder / "1_Pooling" / "config.json"
            fields = json.loads(path.read_text())
            fields = {k: v for k, v in fields.items() if not k.startswith("pooling_mode")}
            fields |= {"pooling_mode": mode, "include_prompt": False}
            path.write_text(json.dumps(fields))
            prompts = {"prompts": PROMPTS, "default_prompt_name": None}
            (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
            dtype = dict(dtype=torch.float32)
            model = SentenceTransformer(str(folder), device="cpu", model_kwargs=dtype)
            rows = []
            for prompt in PROMPTS:
                for text in TEXTS:
                    vector = model.encode(text, prompt_name=prompt, convert_to_tensor=True)
                    rows.append([prompt, text, [float(f"{x:.7g}") for x in vector.tolist()]])
            recorded.append(dict(model=name, pooling=fields, prompts=prompts, rows=rows))
            print(name, mode, len(rows[0][2]))
    (HERE / "prompts.json").write_text(json.dumps(recorded) + "\n")


main()
