"""Compares encoders and classifiers of random configs with Hugging Face transformers.

    cargo build
    python tests/fidelity/random_encoders.py target/debug/playhouse
    python tests/fidelity/random_encoders.py target/debug/playhouse --seed 5 --count 10 Roberta Qwen3

Each model begins as a tiny one. Then random fields of its config change, as in `random_configs.py`,
whose words for results this script shares. A server loads the model in float32. Compared are the
vectors of all tokens, or the probabilities of the classes of a text or of its tokens. Classes that
transformers lacks are a base of transformers with layers of torch: vectors of ColBERT and of several
modules, and rewards. Needs what `make_encoders.py` needs. Nothing is downloaded.
"""

import argparse
import json
import random
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import torch
import transformers as hf

from safetensors.torch import save_file

import make_encoders as encoders
import make_poolers
import random_configs
from corpus import sentences

TOLERANCE = 2e-4
random_configs.SIZES |= {
    "hidden_dim": [24, 40, 64],
    "d_ff": [24, 40, 64],
    "embedding_size": [24, 48, 64],
    "n_layers": [1, 3],
    "num_layers": [1, 3],
    "num_attention_heads": [2, 4, 6],
    "n_heads": [2, 4, 6],
    "type_vocab_size": [1, 2],
    "local_attention": [4, 10, 32],
    "global_attn_every_n_layers": [1, 2, 4],
    "relative_attention_num_buckets": [8, 16, 32],
    "relative_attention_max_distance": [20, 128],
}
WORDS = {"classifier_pooling": ["cls", "mean"], "feed_forward_proj": ["relu", "gated-gelu"]}
# Sizes of nothing that a forward pass computes.
random_configs.IGNORED |= {
    "max_position_embeddings", "num_labels", "problem_type", "cls_token_id", "sep_token_id",
    "chunk_size_feed_forward", "reference_compile", "repad_logits_with_grad", "sparse_prediction",
    "dense_act_fn", "is_gated_act",
    "sparse_pred_ignore_index", "deterministic_flash_attn", "seq_classif_dropout", "sinusoidal_pos_embds",
}


def decoder(kind, **fields):
    return getattr(hf, f"{kind}Config")(**encoders.DECODER, **fields)


def starts():
    """Returns the classes by the name of their family: a base and heads, a config, a tokenizer."""
    tasks = ["Model", "ForSequenceClassification", "ForTokenClassification", "MultiVector"]
    both = tasks[:2]
    rows = [
        ("Bert", [*tasks, "ColBERT"], hf.BertConfig(**encoders.BERT), encoders.word_piece),
        ("Roberta", tasks, hf.RobertaConfig(**encoders.ROBERTA), encoders.roberta_bpe),
        ("XLMRoberta", tasks, hf.XLMRobertaConfig(**encoders.ROBERTA), encoders.xlmr_unigram),
        ("Camembert", tasks, hf.CamembertConfig(**encoders.ROBERTA), encoders.xlmr_unigram),
        ("DistilBert", tasks, hf.DistilBertConfig(**encoders.DISTIL), encoders.word_piece),
        ("MPNet", tasks, hf.MPNetConfig(**encoders.MPNET), encoders.word_piece_of_mpnet),
        ("DebertaV2", tasks[:3], hf.DebertaV2Config(**encoders.DEBERTA), encoders.word_piece),
        ("ModernBert", tasks, hf.ModernBertConfig(**encoders.MODERN), encoders.modern_bpe),
        ("EuroBert", tasks, hf.EuroBertConfig(**encoders.EURO), encoders.modern_bpe),
        ("T5Encoder", tasks[:1], hf.T5Config(**encoders.T5), encoders.t5_unigram),
        ("MT5Encoder", tasks[:1], hf.MT5Config(**encoders.T5), encoders.t5_unigram),
        ("Electra", tasks[:3], hf.ElectraConfig(**encoders.ELECTRA), encoders.word_piece),
        ("Ernie", tasks[:3], hf.ErnieConfig(**encoders.BERT), encoders.word_piece),
        ("XLMRobertaXL", tasks[:3], hf.XLMRobertaXLConfig(**encoders.ROBERTA), encoders.xlmr_unigram),
    ]
    for kind in ["Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Phi3"]:
        more = {"Qwen2": ["RewardModel", "ProcessRewardModel"], "Qwen3": ["MultiVector"]}.get(kind, [])
        rows.append((kind, both + more, decoder(kind), encoders.modern_bpe))
    rows.append(("InternLM2", ["RewardModel"], decoder("Llama"), encoders.modern_bpe))
    return rows


# The task of each class that is made here.
BY_HAND = {
    "ColBERT": "token_embed", "MultiVector": "token_embed", "RewardModel": "token_classify",
    "ProcessRewardModel": "token_classify",
}  # fmt: skip
ACTIVATIONS = ["Identity", "Tanh", "ReLU", "GELU", "Sigmoid"]


class OfTokens(torch.nn.Module):
    """A base with layers for each token."""

    def __init__(self, base, layers, finish):
        super().__init__()
        self.base, self.layers, self.finish = base, layers, finish

    def forward(self, input_ids):
        mask = torch.ones_like(input_ids)
        hidden = self.base(input_ids=input_ids, attention_mask=mask).last_hidden_state[0]
        return self.finish(self.layers(hidden))


def by_hand(kind, task, config, folder, rng):
    """Writes a model of a class that transformers lacks."""
    base_class = hf.LlamaModel if kind == "InternLM2" else getattr(hf, kind + "Model")
    base = encoders.randomize(base_class(config), rng.randrange(1_000)).float().eval()
    size, unit = config.hidden_size if hasattr(config, "hidden_size") else config.dim, torch.nn.functional.normalize
    if task == "ColBERT":
        layers = torch.nn.Sequential(torch.nn.Linear(size, rng.choice([8, 16, 40]), bias=False))
    elif task == "MultiVector":
        widths, parts = [size] + [rng.choice([12, 20, 32]) for _ in range(rng.choice([1, 2]))], []
        for inputs, outputs in zip(widths, widths[1:]):
            parts.append(torch.nn.Linear(inputs, outputs, bias=rng.random() < 0.5))
            parts.append(getattr(torch.nn, rng.choice(ACTIVATIONS))())
        layers = torch.nn.Sequential(*parts)
    elif kind == "InternLM2":
        layers = torch.nn.Sequential(torch.nn.Linear(size, 1, bias=False))
    else:
        labels = 1 if task == "RewardModel" else 2
        layers = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, labels))
    layers = encoders.randomize(layers, rng.randrange(1_000)).float().eval()
    classes = lambda logits: logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)
    model = OfTokens(base, layers, classes if "Reward" in task else lambda rows: unit(rows, dim=-1))
    folder.mkdir(exist_ok=True)
    if task == "MultiVector":
        base.save_pretrained(folder)
        modules = [dict(idx=0, name="0", path="", type="sentence_transformers.models.Transformer")]
        for index, (linear, activation) in enumerate(zip(layers[::2], layers[1::2]), start=1):
            path = folder / f"{index}_Dense"
            path.mkdir()
            name = f"torch.nn.modules.activation.{type(activation).__name__}"
            fields = dict(in_features=linear.in_features, out_features=linear.out_features,
                          bias=linear.bias is not None, activation_function=name,
                          module_input_name="token_embeddings", module_output_name="token_embeddings")
            (path / "config.json").write_text(json.dumps(fields))
            save_file({f"linear.{k}": v for k, v in linear.state_dict().items()}, path / "model.safetensors")
            modules.append(dict(idx=index, name=str(index), path=path.name, type="sentence_transformers.models.Dense"))
        (folder / "modules.json").write_text(json.dumps(modules))
        return model
    state = {("bert." if task == "ColBERT" else "model.") + k: v for k, v in base.state_dict().items()}
    if task == "ColBERT":
        state["linear.weight"] = layers[0].weight
        config.architectures = ["HF_ColBERT"]
    else:
        state |= {("score.weight" if kind == "InternLM2" else f"score.{k}"): v for k, v in layers.state_dict().items()}
        config.architectures = [f"{kind}For{task}"]
    state = {key: value.detach().contiguous() for key, value in state.items()}
    config.dtype = "float32"
    config.save_pretrained(folder)
    if kind == "InternLM2":
        state = make_poolers.internlm2_names(state | {"score.0.weight": state.pop("score.weight")}, config)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | dict(model_type="internlm2", bias=False)))
    save_file(state, folder / "model.safetensors", metadata=dict(format="pt"))
    return model


def changes_of(config, rng):
    fields = config.to_dict()
    changes = random_configs.random_changes(fields, rng)
    for name, words in WORDS.items():
        if name in fields and rng.random() < 0.4:
            changes[name] = rng.choice(words)
    return changes


def make(kind, task, start, changes, labels, tokenizer, folder, rng):
    """Writes a model of the class into `folder`."""
    fields = {name: value for name, value in start.to_dict().items()
              if name not in ("architectures", "dtype", "model_type", "transformers_version", "id2label", "label2id")}
    if changes.keys() & {"num_hidden_layers", "sliding_window", "global_attn_every_n_layers"}:
        fields.pop("layer_types", None)
    if "feed_forward_proj" in changes:
        for name in ("dense_act_fn", "is_gated_act"):
            fields.pop(name, None)
    config = type(start)(**fields | changes, num_labels=labels)
    config._attn_implementation = "eager"
    if task in BY_HAND:
        model = by_hand(kind, task, config, folder, rng)
        tokenizer.save_pretrained(folder)
        return model
    model = encoders.randomize(getattr(hf, kind + task)(config), rng.randrange(1_000)).float().eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def expected(model, task, ids):
    """Returns the vectors or the probabilities of one text."""
    inputs = torch.tensor([ids])
    with torch.no_grad():
        if task in BY_HAND:
            return model(inputs)
        out = model(input_ids=inputs, attention_mask=torch.ones_like(inputs))
    if task == "Model":
        return torch.nn.functional.normalize(out.last_hidden_state[0], dim=-1)
    logits = out.logits[0]
    return logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)


def answered(server, task, ids):
    tasks = {"Model": "token_embed", "ForSequenceClassification": "classify"} | BY_HAND
    body = {"model": "m", "input": ids, "task": tasks.get(task, "token_classify")}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/pooling", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    data = torch.tensor(json.load(urllib.request.urlopen(request, timeout=60))["data"][0]["data"])
    is_vector = task == "Model" or BY_HAND.get(task) == "token_embed"
    return torch.nn.functional.normalize(data, dim=-1) if is_vector else data


def check(program, kind, task, start, tokenizer, folder, rng):
    changes, labels = changes_of(start, rng), rng.choice([1, 2, 3, 5])
    texts = list(sentences(rng.randrange(1000), 3)) + ["a"]
    try:
        model = make(kind, task, start, changes, labels, tokenizer, folder, rng)
        prompts = [tokenizer(text)["input_ids"] for text in texts]
        rows = [expected(model, task, ids) for ids in prompts]
        exact = [expected(model.double(), task, ids).float() for ids in prompts]
    except Exception as error:  # Whatever transformers raises for settings that do not fit.
        return "skipped", changes, f"{type(error).__name__}: {str(error)[:100]}"
    try:
        by_token = task == "Model" or BY_HAND.get(task) == "token_embed"
        pooler = ["--pooler-config", '{"task": "token_embed"}'] if by_token else []
        with random_configs.Server(program, folder, ["--runner", "pooling", *pooler]) as server:
            gap = max(float((answered(server, task, ids) - row).abs().max()) for ids, row in zip(prompts, rows))
    except random_configs.Refused as error:
        text = str(error)
        is_named = re.search(r"config\.json: `[\w.]+`", text) and "panicked" not in text
        return ("refused" if is_named else "BROKEN"), changes, text.strip()[:300]
    except urllib.error.HTTPError as error:
        return "BROKEN", changes, error.read().decode()[:300]
    except (OSError, KeyError, RuntimeError, TimeoutError) as error:
        return "BROKEN", changes, repr(error)[:300]
    if gap < TOLERANCE:
        return "ok", changes, ""
    noise = max(float((one - other).abs().max()) for one, other in zip(rows, exact))
    return ("noise" if gap < 20 * noise else "WRONG"), changes, f"gap {gap:.1e}, float64 {noise:.1e}, {labels} labels"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the playhouse program")
    parser.add_argument("family", nargs="*", help="parts of the names of families")
    parser.add_argument("--count", type=int, default=3, help="models of each class")
    parser.add_argument("--task", action="append", help="only these ends of classes, for example MultiVector")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_intermixed_args()
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    counts, work, tokenizers = {}, Path(tempfile.mkdtemp(prefix="random-encoders-")), {}
    for kind, tasks, start, tokenizer in starts():
        if args.family and not any(word.lower() in kind.lower() for word in args.family):
            continue
        if tokenizer not in tokenizers:
            tokenizers[tokenizer] = tokenizer()
        for task in args.task or tasks:
            if task not in tasks:
                continue
            for index in range(args.count):
                rng, name = random.Random(f"{args.seed}-{kind}{task}-{index}"), f"{kind}{task}"
                folder = work / f"{name}-{index}"
                folder.mkdir()
                result, changes, remark = check(
                    args.program, kind, task, start, tokenizers[tokenizer], folder, rng
                )
                counts[result] = counts.get(result, 0) + 1
                print(f"{result:8}{name} {index}{'' if result == 'ok' else f' {remark} {changes}'}", flush=True)
                if result not in ("WRONG", "BROKEN"):
                    shutil.rmtree(folder)
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    if counts.keys() & {"WRONG", "BROKEN"}:
        raise SystemExit(f"see {work}")


if __name__ == "__main__":
    main()
