"""How the demo model does on held-out conversations of each skill.

    python examples/demo-model/evaluate.py [FOLDER] [--count 200] [--skill NAME]... [--wrong 3]

Greedy decoding. A conversation counts as right when all of the model's answers in it pass their
checks, each given the expected ones before it. Exit code 1 where a skill is under `--at-least`.
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

import lessons
from trainer import export
from trainer.measure import measure, questions

HERE = Path(__file__).parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=HERE)
    parser.add_argument("--count", type=int, default=200, help="conversations of each skill")
    parser.add_argument("--skill", action="append", choices=lessons.SKILLS, help="only these")
    parser.add_argument("--seen", action="store_true", help="from the training's side of the split")
    parser.add_argument(
        "--wrong", type=int, default=0, help="show so many wrong answers of a skill"
    )
    parser.add_argument("--at-least", type=float, default=0.0, help="the share that is asked for")
    parser.add_argument("--items", type=Path, help="only write the questions, as JSON lines")
    parser.add_argument("--threads", type=int, help="of the processor")
    return parser.parse_args()


def write_items(path, skills, count):
    """The questions with what a right answer is, for tests in other languages."""
    with path.open("w") as file:
        for skill in skills:
            for _, prompt, gold, check in questions(skill, count):
                row = {"skill": skill, "prompt": prompt, "answer": gold, "check": check}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    args = arguments()
    skills = args.skill or list(lessons.SKILLS)
    if args.items:
        return write_items(args.items, skills, args.count)
    if args.threads:
        torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = export.load(args.folder).to(device)
    tokenizer = Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    side = "seen" if args.seen else "held out"
    print(f"| skill | right | of {args.count} {side} |\n|---|---|---|")
    worst = 1.0
    for skill in skills:
        wrong = []
        right = measure(model, tokenizer, skill, args.count, not args.seen, device, wrong)
        worst = min(worst, right)
        print(f"| {skill} | {right:.1%} | {round(right * args.count)} |", flush=True)
        for prompt, gold, text in wrong[: args.wrong]:
            print(f"    {prompt[-300:]!r}\n      expected {gold!r}\n      got      {text!r}")
    raise SystemExit(worst < args.at_least)


if __name__ == "__main__":
    main()
