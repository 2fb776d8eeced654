"""Compares encoders and classifiers of random configs with Hugging Face transformers.

    cargo build
    python tests/fidelity/random_encoders.py target/debug/playhouse
    python tests/fidelity/random_encoders.py target/debug/playhouse --seed 5 --count 10 Roberta Qwen3

Each model begins as a tiny one. Then random fields of its config change, as in `random_configs.py`,
whose words for results this script shares. A server loads the model in float32. Compared are the
vectors of all tokens, or the probabilities of the classes of a text or of its tokens. Needs what
`make_encoders.py` needs. Nothing is downloaded.
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

import make_encoders as encoders
import random_configs
from corpus import sentences

TOLERANCE = 2e-4
random_configs.SIZES |= {
    "hidden_dim": [24, 40, 64],
    "d_ff": [24, 40, 64],
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
    tasks = ["Model", "ForSequenceClassification", "ForTokenClassification"]
    both = tasks[:2]
    rows = [
        ("Bert", tasks, hf.BertConfig(**encoders.BERT), encoders.word_piece),
        ("Roberta", tasks, hf.RobertaConfig(**encoders.ROBERTA), encoders.roberta_bpe),
        ("XLMRoberta", tasks, hf.XLMRobertaConfig(**encoders.ROBERTA), encoders.xlmr_unigram),
        ("Camembert", tasks, hf.CamembertConfig(**encoders.ROBERTA), encoders.xlmr_unigram),
        ("DistilBert", tasks, hf.DistilBertConfig(**encoders.DISTIL), encoders.word_piece),
        ("MPNet", tasks, hf.MPNetConfig(**encoders.MPNET), encoders.word_piece_of_mpnet),
        ("ModernBert", tasks, hf.ModernBertConfig(**encoders.MODERN), encoders.modern_bpe),
        ("EuroBert", tasks, hf.EuroBertConfig(**encoders.EURO), encoders.modern_bpe),
        ("T5Encoder", tasks[:1], hf.T5Config(**encoders.T5), encoders.t5_unigram),
    ]
    for kind in ["Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Phi3"]:
        rows.append((kind, both, decoder(kind), encoders.modern_bpe))
    return rows


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
    model = encoders.randomize(getattr(hf, kind + task)(config), rng.randrange(1_000)).float().eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def expected(model, task, ids):
    """Returns the vectors or the probabilities of one text."""
    inputs = torch.tensor([ids])
    with torch.no_grad():
        out = model(input_ids=inputs, attention_mask=torch.ones_like(inputs))
    if task == "Model":
        return torch.nn.functional.normalize(out.last_hidden_state[0], dim=-1)
    logits = out.logits[0]
    return logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)


def answered(server, task, ids):
    tasks = {"Model": "token_embed", "ForSequenceClassification": "classify"}
    body = {"model": "m", "input": ids, "task": tasks.get(task, "token_classify")}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/pooling", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    data = torch.tensor(json.load(urllib.request.urlopen(request, timeout=60))["data"][0]["data"])
    return torch.nn.functional.normalize(data, dim=-1) if task == "Model" else data


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
        pooler = ["--pooler-config", '{"task": "token_embed"}'] if task == "Model" else []
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
        for task in tasks:
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
