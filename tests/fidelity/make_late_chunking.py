"""Records late chunking by sentence-transformers, for models that `make_encoders.py` and
`make_poolers.py` made.

    python tests/fidelity/make_late_chunking.py

The texts of a list are joined and tokenized as one. The model computes its tokens once. The vector
of a text is the mean of its tokens, and goes through the modules behind the pooling. A token of two
texts is the later one's; tokens without a place in the text are those of the first or the last
text. All answers are in float32.

Needs: torch, sentence-transformers >= 6. Nothing is downloaded.
"""

import json
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from sentence_transformers import SentenceTransformer

HERE = Path(__file__).parent
MODELS = [
    "encoders/bert-mean", "encoders/roberta-mean", "encoders/modernbert-mean",
    "encoders/t5-gated-mean", "poolers/llama-mean", "poolers/gemma2-mean-dense",
    "poolers/mistral-mean-dense",
]
LISTS = [
    ["The kettle is on the stove.", " It whistles.", " Nobody hears it, for all are at the theatre."],
    ["One text alone."],
    ["Über den Dächern", " — a café;", " naïve 日本語 words. ", "The END", "ing is cut within a word."],
    ["A long text. " * 12, "b", " The last one"],
]


def owner(start, end, place):
    """Returns the text that a token belongs to, given the bounds of the texts."""
    return max(index for index, begin in enumerate(place) if index == 0 or begin < end)


def record(folder):
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    modules = list(model)
    answers = []
    for texts in LISTS:
        place = [sum(map(len, texts[:index])) for index in range(len(texts))]
        encoded = model.tokenizer(
            "".join(texts), return_offsets_mapping=True, return_special_tokens_mask=True,
            return_tensors="pt",
        )
        offsets = encoded.pop("offset_mapping")[0].tolist()
        special = encoded.pop("special_tokens_mask")[0].tolist()
        inputs = {key: encoded[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in encoded}
        with torch.no_grad():
            hidden = modules[0].auto_model(**inputs).last_hidden_state[0]
        owners = [None if mask else owner(*offset, place) for mask, offset in zip(special, offsets)]
        known = [index for index, text in enumerate(owners) if text is not None]
        for index in range(len(owners)):
            if owners[index] is None:
                owners[index] = 0 if index < known[0] else len(texts) - 1
        assert owners == sorted(owners) and set(owners) == set(range(len(texts))), owners
        rows = []
        for text in range(len(texts)):
            mean = hidden[[index for index, of in enumerate(owners) if of == text]].mean(0)
            features = {"sentence_embedding": mean[None]}
            with torch.no_grad():
                for module in modules[2:]:
                    features = module(features)
            rows.append([round(value, 7) for value in features["sentence_embedding"][0].tolist()])
        answers.append({"texts": texts, "rows": rows, "num_tokens": len(owners)})
    # A list of one text has the vector of that text.
    whole = torch.tensor(model.encode(LISTS[1])[0])
    assert torch.allclose(whole, torch.tensor(answers[1]["rows"][0]), atol=1e-5)
    return answers


if __name__ == "__main__":
    recorded = {name: record(HERE / name) for name in MODELS}
    (HERE / "late_chunking.json").write_text(json.dumps(recorded, ensure_ascii=False) + "\n")
