"""Builds encoders whose code is in the folders of their authors, and records their answers.

    python tests/fidelity/make_authors_encoders.py             # all of them, into encoders
    python tests/fidelity/make_authors_encoders.py nomic-moe   # some of them

`authors_encoders.py` has the forward passes. The folders and `golden.json` are in the form of
`make_encoders.py`.

Needs what `make_encoders.py` needs. Nothing is downloaded.
"""

import json
import shutil
import sys

import torch
from safetensors.torch import save_file
from torch.nn.functional import linear, normalize

from authors_encoders import HIDDEN, jina_bert, nomic_moe, xlm_roberta_flash
from make_encoders import OUT, PAIRS, TEXTS, Maker, checked, rows_of

TASKS = ["retrieval.query", "separation", "text-matching"]


class Recorder:
    def __init__(self):
        self.tokenizers = Maker().tokenizers

    def inputs(self, tokenizer, model, text, pair=None):
        encoded = self.tokenizers[tokenizer](text, pair, return_tensors="pt")
        ids = encoded["input_ids"][0]
        types = encoded.get("token_type_ids", torch.zeros(1, len(ids), dtype=torch.long))[0]
        return ids, types.clamp(max=model.config.get("type_vocab_size", 1) - 1)

    def save(self, name, tokenizer, model, golden, modules=()):
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        save_file(model.weights.stored, folder / "model.safetensors", metadata=dict(format="pt"))
        self.tokenizers[tokenizer].save_pretrained(folder)
        config = dict(model.config, dtype="bfloat16")
        config.pop("eps")
        self.write(folder / "config.json", config)
        self.write(folder / "golden.json", golden, None)
        kinds = [("", "models.Transformer", None)]
        kinds += [(f"{at + 1}_{kind}", f"models.{kind}", own) for at, (kind, own) in enumerate(modules)]
        for path, _, own in kinds[1:]:
            (folder / path).mkdir()
            if own is not None:
                self.write(folder / path / "config.json", own)
        if modules:
            listed = [
                dict(idx=at, name=str(at), path=path, type=f"sentence_transformers.{kind}")
                for at, (path, kind, _) in enumerate(kinds)
            ]
            self.write(folder / "modules.json", listed)
            self.write(folder / "sentence_bert_config.json", dict(max_seq_length=500))

    def write(self, path, value, indent=1):
        path.write_text(json.dumps(value, indent=indent) + "\n")

    def vectors(self, name, tokenizer, model, pooling="mean", without_files=False):
        """Vectors of length 1: the mean of hidden states, or the first one. Without files of
        sentence-transformers, the config names the pooling.
        """

        def vector(model, *texts):
            hidden = model.of_tokens(model, *self.inputs(tokenizer, model, *texts))
            hidden = hidden.mean(0, keepdim=True) if pooling == "mean" else hidden[:1]
            return normalize(hidden, dim=-1)

        texts = TEXTS + [text for pair in PAIRS for text in pair]
        rows = checked(lambda model: [vector(model, text) for text in texts], model)
        of_pairs = iter(rows[len(TEXTS) :])
        pairs = [
            dict(text_1=a, text_2=b, score=float(next(of_pairs)[0] @ next(of_pairs)[0]))
            for a, b in PAIRS
        ]
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        golden = dict(task="embed", texts=texts, pairs=pairs)
        own = dict(word_embedding_dimension=HIDDEN, pooling_mode_mean_tokens=pooling == "mean")
        own |= dict(pooling_mode_cls_token=pooling != "mean")
        modules = [] if without_files else [("Pooling", own), ("Normalize", None)]
        self.save(name, tokenizer, model, golden, modules)


    def classes(self, name, tokenizer, model, pooler, labels):
        """Probabilities of classes from the first token, with the scores of pairs for one class."""
        model.config["id2label"] = {str(label): f"LABEL_{label}" for label in range(labels)}

        def probabilities(model, *texts):
            hidden = model.of_tokens(model, *self.inputs(tokenizer, model, *texts))[:1]
            logits = model.linear(model.linear(hidden, pooler).tanh(), "classifier")
            return logits.sigmoid() if labels == 1 else logits.softmax(-1)

        inputs = [(text,) for text in TEXTS] + PAIRS * (labels == 1)
        rows = checked(lambda model: [probabilities(model, *one) for one in inputs], model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        pairs = [
            dict(text_1=a, text_2=b, score=row.item())
            for (a, b), row in zip(PAIRS, rows[len(TEXTS) :])
        ]
        self.save(name, tokenizer, model, dict(task="classify", texts=texts, pairs=pairs))

    def by_token(self, name, tokenizer, model):
        """ColBERT: a projection of each token, of length 1."""

        def vectors(model, text):
            hidden = model.of_tokens(model, *self.inputs(tokenizer, model, text))
            return normalize(linear(hidden, model.tensors["linear.weight"]), dim=-1)

        rows = checked(lambda model: [vectors(model, text) for text in TEXTS], model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        self.save(name, tokenizer, model, dict(task="token_embed", texts=texts))


def projection(weights):
    weights.linear("linear", 16, HIDDEN, bias=False)


def classifier(pooler, labels):
    def add(weights):
        weights.linear(pooler, HIDDEN, HIDDEN)
        weights.linear("classifier", labels, HIDDEN)

    return add


def named(model, architecture):
    model.config["architectures"] = [architecture]
    return model


def recorders(recorder):
    vectors, classes, by_token = recorder.vectors, recorder.classes, recorder.by_token
    return {
        "nomic-moe": lambda n: vectors(n, "xlmr", nomic_moe(41, every=2, top_k=2)),
        "nomic-moe-plain": lambda n: vectors(
            n, "words", nomic_moe(42, every=3, top_k=1, biases=False, experts=5, types=2), "cls"
        ),
        "jina-bert-mean": lambda n: vectors(
            n, "words", named(jina_bert(43), "JinaBertForMaskedLM"), without_files=True
        ),
        "jina-bert-reglu": lambda n: vectors(n, "words", jina_bert(44, "reglu", heads=6), "cls"),
        "jina-bert-code": lambda n: vectors(n, "roberta", jina_bert(45, code=True)),
        "jina-bert-code-6": lambda n: vectors(
            n, "roberta", jina_bert(46, "reglu", heads=6, code=True), "cls"
        ),
        "jina-bert-score": lambda n: classes(
            n,
            "words",
            named(
                jina_bert(47, prefix="bert.", head=classifier("bert.pooler.dense", 1)),
                "JinaBertForSequenceClassification",
            ),
            "bert.pooler.dense",
            1,
        ),
        "jina-colbert-1": lambda n: by_token(
            n, "words", named(jina_bert(48, prefix="bert.", head=projection), "HF_ColBERT")
        ),
        "jina-flash-mean": lambda n: vectors(
            n, "xlmr", xlm_roberta_flash(49), without_files=True
        ),
        "jina-flash-tasks": lambda n: vectors(
            n, "xlmr", xlm_roberta_flash(54).with_tasks(TASKS, 4, 1)
        ),
        "jina-flash-task": lambda n: vectors(
            n, "xlmr", xlm_roberta_flash(55).with_tasks(TASKS, 3, 2, "separation"), "cls"
        ),
        "jina-colbert-2": lambda n: by_token(
            n, "xlmr", named(xlm_roberta_flash(50, "gelu_new", 9_000.0, projection), "HF_ColBERT")
        ),
    }


def main():
    torch.set_num_threads(1)
    known = recorders(Recorder())
    with torch.no_grad():
        for name in sys.argv[1:] or list(known):
            known[name](name)
            print(name, flush=True)


if __name__ == "__main__":
    main()
