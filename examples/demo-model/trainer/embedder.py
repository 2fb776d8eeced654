"""A head that makes vectors of the model's hidden states, in the form of sentence-transformers.

The model stays as it is. The mean of its hidden states goes through two layers, which learn that texts
that belong together have vectors of one direction, and other texts of the batch do not (InfoNCE, van
den Oord et al. 2018).
"""

import json
import os
import random
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from lessons import pairs
from lessons.split import Split

INNER, WIDTH = 512, 128
GROUPS = 16_000
STEPS, GROUPS_A_STEP, LEARNING_RATE, TEMPERATURE = 4_000, 48, 2e-3, 0.05
CANDIDATES = 32
"""Documents that a query is compared with when the head is measured."""
SHARED = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
"""Files of the model, of which the embedder has links."""


def means(model, tokenizer, texts):
    """Returns the mean of the hidden states of each text, by the text."""
    ids = {text: tokenizer.encode(text).ids for text in texts}
    order, found = sorted(ids, key=lambda text: (len(ids[text]), text)), {}
    for start in range(0, len(order), 256):
        part = order[start : start + 256]
        longest = max(len(ids[text]) for text in part)
        tokens = torch.tensor([ids[text] + [0] * (longest - len(ids[text])) for text in part])
        lens = torch.tensor([[len(ids[text])] for text in part])
        mask = (torch.arange(longest) < lens)[:, :, None]
        with torch.no_grad():
            hidden = model.hidden(tokens) * mask
        found.update(zip(part, hidden.sum(1) / lens))
    return found


def groups(seed, count, held_out, kinds=None):
    return [pairs.group(seed, index, Split(held_out), kinds) for index in range(count)]


def texts(all_groups):
    return {text for group in all_groups for pair in group for text in (pair.query, pair.document)}


def others(batch):
    """Returns [pairs, pairs]: whether the column's document also answers the row's query."""
    return torch.tensor([
        [i != j and pair.is_answered_by(other) for j, other in enumerate(batch)]
        for i, pair in enumerate(batch)
    ])


def similarities(batch, vectors, head):
    """Returns the cosines of all queries and documents; those of other right answers are -1."""
    query, document = (
        F.normalize(head(torch.stack([vectors[getattr(pair, name)] for pair in batch])), dim=-1)
        for name in ("query", "document")
    )
    return (query @ document.T).masked_fill(others(batch), -1.0)


def train(model, tokenizer, seed, steps=STEPS, count=GROUPS):
    """Returns the trained head: two layers."""
    torch.manual_seed(seed)
    lessons, begun = groups(seed, count, held_out=False), time.monotonic()
    vectors = means(model, tokenizer, texts(lessons))
    print(f"{len(vectors):,} texts in {time.monotonic() - begun:.0f} s", flush=True)
    every = torch.stack(list(vectors.values()))
    mean, scale = every.mean(0), every.std(0)
    head = nn.Sequential(nn.Linear(every.shape[1], INNER), nn.GELU(), nn.Linear(INNER, WIDTH))
    optimizer = torch.optim.AdamW(head.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    rng = random.Random(seed)
    for step in range(steps):
        batch = [pair for group in rng.sample(lessons, GROUPS_A_STEP) for pair in group]
        scores = similarities(batch, vectors, lambda x: head((x - mean) / scale)) / TEMPERATURE
        right = torch.arange(len(batch))
        loss = F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
        if step % 500 == 0 or step == steps - 1:
            print(f"step {step}: {loss.item():.3f}, {time.monotonic() - begun:.0f} s", flush=True)
    with torch.no_grad():
        first = head[0]
        first.weight.div_(scale)
        first.bias.sub_(first.weight @ mean)
    return head


def save(head, folder):
    """Writes the files of sentence-transformers, and links to those of the model."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    paths = [""] + [f"{index}_{kind}" for index, kind in enumerate(kinds) if index]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(zip(paths, kinds))
    ]
    files = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": head[0].in_features, "pooling_mode_mean_tokens": True,
        },
    }
    layers = {"2_Dense": (head[0], "GELU"), "3_Dense": (head[2], "Identity")}
    for path, (layer, activation) in layers.items():
        module = "activation" if activation != "Identity" else "linear"
        files[f"{path}/config.json"] = {
            "in_features": layer.in_features, "out_features": layer.out_features, "bias": True,
            "activation_function": f"torch.nn.modules.{module}.{activation}",
        }
        (folder / path).mkdir(exist_ok=True)
        tensors = {f"linear.{name}": weight.detach().bfloat16() for name, weight in layer.named_parameters()}
        save_file(tensors, folder / path / "model.safetensors", {"format": "pt"})
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(content, indent=2) + "\n")
    for name in SHARED:
        link = folder / name
        link.unlink(missing_ok=True)
        os.symlink(os.path.join("..", name), link)


def load(folder):
    """Returns the layers of a saved head."""
    first, last = (
        {name: weight.float() for name, weight in load_file(folder / path / "model.safetensors").items()}
        for path in ("2_Dense", "3_Dense")
    )

    def head(x):
        inner = F.gelu(F.linear(x, first["linear.weight"], first["linear.bias"]))
        return F.linear(inner, last["linear.weight"], last["linear.bias"])

    return head


def words(text):
    return set("".join(c if c.isalnum() else " " for c in text.lower()).split())


def measure(model, tokenizer, head, count=400):
    """Prints, for each kind of held-out pairs, how often the right document of 32 is the first one."""
    print(f"| Kind | the head | the mean alone | common words |\n|---|---|---|---|")
    for kind in [*pairs.KINDS, None]:
        held_out = groups(9, count, held_out=True, kinds=kind and [kind])
        random.Random(5).shuffle(held_out)
        vectors = means(model, tokenizer, texts(held_out))
        right, total, step = [0, 0, 0], 0, CANDIDATES // pairs.GROUP
        for start in range(0, len(held_out) - step + 1, step):
            batch = [pair for group in held_out[start : start + step] for pair in group]
            shared = torch.tensor([
                [len(words(a.query) & words(b.document)) / len(words(a.query) | words(b.document))
                 for b in batch] for a in batch
            ]).masked_fill(others(batch), -1.0)
            scores = [similarities(batch, vectors, way) for way in (head, lambda x: x)] + [shared]
            total += len(batch)
            for index, each in enumerate(scores):
                better = (each >= each.diag()[:, None]).sum(1) - 1
                right[index] += (better == 0).sum().item()
        shares = " | ".join(f"{found / total:.1%}" for found in right)
        print(f"| {kind or 'all, mixed'} | {shares} |", flush=True)


def record(model, tokenizer, head, file, count=24):
    """Writes rankings of held-out queries, as JSON lines, which an engine must give, too."""
    for index in range(count):
        lesson = [pairs.group(11, 2 * index + offset, Split(True), ["people", "towns", "stories"]) for offset in (0, 1)]
        batch = [pair for group in lesson for pair in group]
        query, documents = batch[0].query, list(dict.fromkeys(pair.document for pair in batch))
        random.Random(index).shuffle(documents)
        vectors = means(model, tokenizer, {query, *documents})
        of = lambda text: F.normalize(head(vectors[text]), dim=-1)
        scores = [float(of(query) @ of(document)) for document in documents]
        row = {"query": query, "documents": documents, "right": documents.index(batch[0].document),
               "scores": [round(score, 5) for score in scores]}
        if not any(batch[0].is_answered_by(pair) and pair.document != batch[0].document for pair in batch):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
