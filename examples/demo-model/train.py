"""Trains the demo model, its draft model and its adapter, on text that it makes up itself.

    python examples/demo-model/train.py            # the model
    python examples/demo-model/train.py --draft    # then a draft model of the same tokenizer
    python examples/demo-model/train.py --lora     # then an adapter that speaks as a pirate

Needs torch, tokenizers, safetensors, jinja2 and transformers >= 5; downloads nothing. It can be
stopped at any time and started again: it goes on from the last checkpoint.
"""

import argparse
import os
from pathlib import Path

import torch
from tokenizers import Tokenizer

from lessons import pirate
from trainer import export, lora
from trainer import tokenizer as tokenizers
from trainer.batches import Batches, document
from trainer.loop import Plan, Training
from trainer.model import Model, Shape

HERE = Path(__file__).parent
VOCAB_SIZE = 3_072
TOKENIZER_DOCUMENTS = 40_000
ROWS_TOKENS_MAX = 3_072
"""Padded tokens of a batch: its activations stay in a processor's cache."""

MAIN = Shape(VOCAB_SIZE, 256, 704, 6, 8, 4, 32)
DRAFT = Shape(VOCAB_SIZE, 96, 256, 4, 3, 1, 32)

# Steps, learning rate, weight decay, conversations of a step.
PLANS = {
    "main": (3_600, 3e-3, 0.05, 48),
    "draft": (1_200, 4e-3, 0.02, 64),
    "lora": (300, 2e-3, 0.0, 64),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draft", action="store_true", help="train the draft model")
    parser.add_argument("--lora", action="store_true", help="train the adapter")
    parser.add_argument("--minutes", type=float, help="end within this time, with fewer steps")
    parser.add_argument("--steps", type=int, help="in place of the planned number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--look-minutes", type=float, default=15, help="between two looks at the skills"
    )
    work = Path.home() / ".cache" / "demo-model"
    parser.add_argument("--work", type=Path, default=work, help="for checkpoints")
    parser.add_argument("--out", type=Path, default=HERE, help="the model's folder")
    return parser.parse_args()


def tokenizer_of(work, seed):
    """The tokenizer kept in `work`, trained first where there is none."""
    path = work / "tokenizer.json"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        texts = (
            "".join(text for text, _ in document(f"tokenizer {seed}", i))
            for i in range(TOKENIZER_DOCUMENTS)
        )
        tokenizers.train(texts, VOCAB_SIZE).save(str(path))
    return Tokenizer.from_file(str(path))


def trained(work, device):
    """The main model, which the others need."""
    path = work / "main.pt"
    if not path.exists():
        raise SystemExit(
            f"{path} does not exist: train the model first, without --draft and --lora"
        )
    state = torch.load(path, map_location=device, weights_only=True)
    if state["progress"][0] < state["progress"][1]:
        raise SystemExit(f"{path} is not fully trained yet: run without --draft and --lora first")
    model = Model(Shape(**state["shape"])).to(device)
    model.load_state_dict(state["model"])
    return model


def main():
    args = arguments()
    if args.draft and args.lora:
        raise SystemExit("--draft and --lora are two trainings: choose one")
    kind = "draft" if args.draft else "lora" if args.lora else "main"
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = tokenizer_of(args.work, args.seed)
    teacher = trained(args.work, device) if args.draft else None
    if kind == "lora":
        model = lora.adapt(trained(args.work, device)).to(device)
    else:
        model = Model(MAIN if kind == "main" else DRAFT).to(device)
    steps, lr, weight_decay, conversations = PLANS[kind]
    style = pirate.style if kind == "lora" else None
    batches = Batches(tokenizer, args.seed, conversations, ROWS_TOKENS_MAX, style=style)
    plan = Plan(
        steps=args.steps or steps,
        lr=lr,
        weight_decay=weight_decay,
        checkpoint=args.work / f"{kind}.pt",
        minutes=args.minutes,
        look_minutes=args.look_minutes,
    )
    training = Training(model, batches, plan, tokenizer, device, teacher)
    training.run()
    if kind == "lora":
        lora.save(model.cpu(), args.out / "pirate")
        return
    training.look()
    export.save(model.cpu(), tokenizer, args.out / "draft" if args.draft else args.out)


if __name__ == "__main__":
    main()
