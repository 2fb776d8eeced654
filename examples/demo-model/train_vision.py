"""Trains the model in `vision/`, on pictures and questions that it makes up itself.

    python examples/demo-model/train_vision.py
    python examples/demo-model/train_vision.py --again-minutes 40

Needs torch, tokenizers, safetensors, pillow and transformers >= 5; downloads nothing. It can be
stopped at any time and started again: it continues from the last checkpoint.

With `--again-minutes` it goes on from the end of such a training, in the same `--work`. The
learning rate starts once more, at `--again-peak`, and falls to zero within the minutes. The
pictures are new and harder: with more things, and more questions about all or about places.
"""

import argparse
import functools
import random
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer

from lessons.split import Split
from pictures import questions, scenes, talk
from pictures.batches import ANSWER, END, IMAGE, START, Batches
from trainer import parallel, sight
from trainer import tokenizer as tokenizers
from trainer.looking import Again, Finding, Looking
from trainer.loop import Plan

HERE = Path(__file__).parent
VOCAB_SIZE = 1_024
TOKENIZER_PICTURES = 4_000
ROWS, WEIGHT_DECAY = 64, 0.05
AGAIN_STEPS = 100_000
"""More than the minutes allow."""
PLANS = {"tower": (760, 3e-3), "vision": (1_140, 2e-3)}
"""Steps and learning rate: of the tower alone, then of the whole model."""
TOWER_SHARE = 0.25
"""The tower's share of the minutes."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="end within this time, with fewer steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2, help="that share a step's pictures")
    parser.add_argument("--look-minutes", type=float, default=5, help="between two looks")
    parser.add_argument("--again-minutes", type=float, help="train on, after the end")
    parser.add_argument("--again-peak", type=float, default=8e-4, help="the learning rate of that")
    work = Path.home() / ".cache" / "demo-model"
    parser.add_argument("--work", type=Path, default=work, help="for checkpoints")
    parser.add_argument("--out", type=Path, default=HERE / "vision", help="the model's folder")
    return parser.parse_args()


def texts(seed):
    """Yields conversations for the tokenizer."""
    split = Split(held_out=False)
    for index in range(TOKENIZER_PICTURES):
        rng = random.Random(f"tokenizer {seed} {index}")
        scene = scenes.scene(f"tokenizer {seed}", index, split)
        turns = [questions.question(scene, rng, split)[1:] for _ in range(6)]
        turns += talk.without_picture(rng, f"tokenizer {seed}", index, split)
        for question, answer in turns:
            yield f"{START}user\n{question}{ANSWER}{answer}{END}\n"


def tokenizer_of(args):
    """Returns the model's tokenizer, trained first if there is none."""
    path = args.work / "vision-tokenizer.json"
    if not path.exists():
        args.work.mkdir(parents=True, exist_ok=True)
        made = tokenizers.train(texts(args.seed), VOCAB_SIZE - 1)
        made.add_special_tokens([AddedToken(IMAGE, special=True, normalized=False)])
        made.save(str(path))
    return Tokenizer.from_file(str(path))


def train(team, args):
    """The work of each process."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    tokenizer = tokenizer_of(args)
    batches = Batches(tokenizer, args.seed, ROWS, is_hard=bool(args.again_minutes))
    model = sight.Sight(sight.config(VOCAB_SIZE, batches.image_token))
    for kind, plan in stages(args):
        training = kind(model, batches, plan, tokenizer, team=team)
        training.run()
        if team.leads:
            training.look()
    if team.leads:
        sight.save(model, tokenizer, args.out)


def stages(args):
    """Returns the kind of each training, in order, and its plan."""

    def plan(name, steps, lr, minutes):
        return Plan(
            steps=steps,
            lr=lr,
            weight_decay=WEIGHT_DECAY,
            checkpoint=args.work / f"{name}.pt",
            minutes=minutes,
            look_minutes=args.look_minutes,
        )

    if args.again_minutes:
        again = functools.partial(Again, args.work / "vision.pt")
        return [(again, plan("again", AGAIN_STEPS, args.again_peak, args.again_minutes))]
    tower = args.minutes and args.minutes * TOWER_SHARE
    vision = args.minutes and args.minutes - tower
    return [
        (Finding, plan("tower", *PLANS["tower"], tower)),
        (Looking, plan("vision", *PLANS["vision"], vision)),
    ]


def main():
    args = arguments()
    tokenizer_of(args)
    parallel.run(args.processes, train, args)


if __name__ == "__main__":
    main()
