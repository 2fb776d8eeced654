"""Trains the demo model, its draft model and its adapter, on text that it makes up itself.

    python examples/demo-model/train.py            # the model
    python examples/demo-model/train.py --further  # then an eighth more, on other lessons
    python examples/demo-model/train.py --tools    # then the model of the folder, mostly on tools
    python examples/demo-model/train.py --draft    # then a draft model of the same tokenizer
    python examples/demo-model/train.py --lora     # then an adapter that speaks as a pirate
    python examples/demo-model/train.py --embedder # then a head that makes vectors

Needs torch, tokenizers, safetensors, jinja2 and transformers >= 5; downloads nothing. It can be
stopped at any time and started again: it continues from the last checkpoint.
"""

import argparse
import os
from pathlib import Path

import torch
from tokenizers import Tokenizer

from lessons import pirate
from trainer import embedder, export, lora, parallel
from trainer import tokenizer as tokenizers
from trainer.batches import Batches, document
from trainer.loop import Plan, Training
from trainer.model import Model, Shape

HERE = Path(__file__).parent
VOCAB_SIZE = 3_072
TOKENIZER_DOCUMENTS = 40_000
ROWS_TOKENS_MAX = 3_072
"""Most padded tokens of a batch, so that its activations stay in a processor's cache."""

MAIN = Shape(VOCAB_SIZE, 256, 704, 6, 8, 4, 32)
DRAFT = Shape(VOCAB_SIZE, 96, 256, 4, 3, 1, 32)

# Steps, learning rate, weight decay, conversations of a step.
PLANS = {
    "main": (3_600, 3e-3, 0.05, 48),
    "further": (480, 6e-4, 0.05, 48),
    "tools": (2_000, 1.5e-3, 0.05, 24),
    "draft": (1_200, 4e-3, 0.02, 64),
    "lora": (300, 2e-3, 0.0, 64),
}

SHARES = {
    "further": {"arithmetic": 4.0},
    "tools": {
        "tools": 4.0, "ordinary tools": 13.0, "parallel calls": 7.0, "no tool": 5.0, "schemas": 4.0,
        "talk": 1.5, "facts": 2.0, "unknown": 1.2, "quoted": 0.05, "rare": 0.12,
    },
    "lora": {"talk": 4.0, "facts": 4.0},
}
"""Shares of skills that replace the usual ones: facts learned by heart are forgotten first. `quoted`
and `rare` are shares of all conversations, which have random tokens."""

PROCESSES_MAX = 8


def processes():
    """Returns the number of processes: one for each core, or one that has a GPU."""
    return 1 if torch.cuda.is_available() else min(PROCESSES_MAX, os.cpu_count() or 1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--further", action="store_true", help="train the trained model further")
    which.add_argument("--tools", action="store_true", help="train the folder's model on tools")
    which.add_argument("--draft", action="store_true", help="train the draft model")
    which.add_argument("--lora", action="store_true", help="train the adapter")
    which.add_argument("--embedder", action="store_true", help="train the head that makes vectors")
    parser.add_argument("--minutes", type=float, help="end within this time, with fewer steps")
    parser.add_argument("--steps", type=int, help="in place of the planned number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--processes", type=int, default=processes(), help="that share a step's conversations"
    )
    parser.add_argument(
        "--look-minutes", type=float, default=15, help="between two looks at the skills"
    )
    work = Path.home() / ".cache" / "demo-model"
    parser.add_argument("--work", type=Path, default=work, help="for checkpoints")
    parser.add_argument("--out", type=Path, default=HERE, help="the model's folder")
    return parser.parse_args()


def tokenizer_of(args):
    """Returns the model's tokenizer, trained first if there is none. Draft and adapter use it, too."""
    what = kind(args)
    folders = {"main": args.work, "further": args.work, "tools": HERE}
    path = folders.get(what, args.out) / "tokenizer.json"
    if not path.exists():
        if what != "main":
            raise SystemExit(f"{path} does not exist: train the model first, without --{what}")
        args.work.mkdir(parents=True, exist_ok=True)
        texts = (
            "".join(text for text, _ in document(f"tokenizer {args.seed}", i))
            for i in range(TOKENIZER_DOCUMENTS)
        )
        tokenizers.train(texts, VOCAB_SIZE).save(str(path))
    return Tokenizer.from_file(str(path))


def kind(args):
    """Returns the kind of training: a key of `PLANS`."""
    return next((name for name in PLANS if getattr(args, name, False)), "main")


def train_embedder(args):
    """Trains the head, measures it, and records rankings for the tests."""
    torch.set_num_threads(args.processes)
    model = export.load(args.out).eval()
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    folder = args.out / "embedder"
    embedder.save(embedder.train(model, tokenizer, args.seed, args.steps or embedder.STEPS), folder)
    head = embedder.load(folder)
    embedder.measure(model, tokenizer, head)
    rankings = HERE.parent.parent / "tests" / "demo_model" / "rankings.jsonl"
    with rankings.open("w") as file:
        embedder.record(model, tokenizer, head, file)


def main():
    args = arguments()
    if args.embedder:
        return train_embedder(args)
    tokenizer_of(args)
    if args.further:
        trained(args)
    parallel.run(args.processes, train, args)


def train(team, args):
    """The work of each process."""
    what = kind(args)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // team.parts))
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = tokenizer_of(args)
    teacher = export.load(args.out).to(device) if what == "draft" else None
    if what == "lora":
        model = lora.adapt(export.load(args.out)).to(device)
    elif what == "further":
        model = trained(args).to(device)
    elif what == "tools":
        model = export.load(HERE).to(device)
    else:
        model = Model(MAIN if what == "main" else DRAFT).to(device)
    steps, lr, weight_decay, conversations = PLANS[what]
    style = pirate.style if what == "lora" else None
    seed = args.seed + (what == "further") + 2 * (what == "tools")
    shares = SHARES.get(what, {})
    batches = Batches(tokenizer, seed, conversations, ROWS_TOKENS_MAX, style=style, shares=shares)
    plan = Plan(
        steps=args.steps or steps,
        lr=lr,
        weight_decay=weight_decay,
        checkpoint=args.work / f"{what}.pt",
        minutes=args.minutes,
        look_minutes=args.look_minutes,
    )
    training = Training(model, batches, plan, tokenizer, device, teacher, team)
    training.run()
    if not team.leads:
        return
    if what == "lora":
        lora.save(model.cpu(), args.out / "pirate")
        return
    if what == "further":
        halfway(model, trained(args).to(device))
    training.look()
    export.save(model.cpu(), tokenizer, args.out / "draft" if args.draft else args.out)


def trained(args):
    """Returns the model as the training without flags left it."""
    path = args.work / "main.pt"
    if not path.exists():
        raise SystemExit(f"{path} does not exist: train the model first, without --further")
    state = torch.load(path, weights_only=True)
    step, steps = state["progress"][:2]
    if step < steps:
        raise SystemExit(f"the model is at step {step} of {steps}: train it to its end first")
    model = Model(Shape(**state["shape"]))
    model.load_state_dict(state["model"])
    return model


@torch.no_grad()
def halfway(model, before):
    """Averages the weights of `model` and `before`, which is better than either (Izmailov et al. 2018)."""
    for weight, former in zip(model.parameters(), before.parameters(), strict=True):
        weight.lerp_(former, 0.5)


if __name__ == "__main__":
    main()
