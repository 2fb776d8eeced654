"""Measures the demo model on held-out conversations of each skill.

    python examples/demo-model/evaluate.py [FOLDER] [--count 200] [--skill NAME]... [--wrong 3]
    python examples/demo-model/evaluate.py --sampled --skill "ordinary tools" --count 500
    python examples/demo-model/evaluate.py --by-hand 10
    python examples/demo-model/evaluate.py --count 5 --record tests/demo_model/answers.jsonl
    python examples/demo-model/evaluate.py --count 10 --draft examples/demo-model/draft

Greedy decoding, or with `--sampled` the default sampling of the folder's `generation_config.json`.
A conversation counts as right when all of the model's answers in it pass their
checks, each given the expected ones before it. Exit code 1 where a skill is under `--at-least`.
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

import lessons
from lessons.check import accepts
from lessons.tools import by_hand
from trainer import export
from trainer.generate import Sampling, likeliest, written
from trainer.measure import CONSTRAINED, agreement, answers
from trainer.text import render

HERE = Path(__file__).parent
BY_HAND_TOKENS = 160


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
    parser.add_argument("--record", type=Path, help="write right answers there, for tests")
    parser.add_argument("--draft", type=Path, help="how often this one's guess is the model's choice")
    parser.add_argument("--sampled", action="store_true", help="with the default sampling")
    parser.add_argument("--by-hand", type=int, help="ask the questions written by hand so often each")
    parser.add_argument("--threads", type=int, help="of the processor")
    return parser.parse_args()


def record(file, skill, answers):
    """Writes right answers, as JSON lines, which an engine must give, too."""
    for answer in answers:
        row = {"skill": skill, "prompt": answer.prompt, "answer": answer.text}
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def guesses(model, folder, tokenizer, skills, count):
    """Prints how often the draft model's first choice is the model's, where answers are given."""
    draft = export.load(folder)
    found = [agreement(model, draft, tokenizer, skill, count) for skill in skills]
    same, total = (sum(each) for each in zip(*found))
    print(f"{same / total:.1%} of {total} tokens")


def is_json(text):
    """Returns whether a text under a schema came to its end."""
    try:
        return json.loads(text) is not None
    except ValueError:
        return False


def asked_by_hand(model, tokenizer, args, device):
    """Prints how often questions that no lesson has are answered rightly, with the default sampling."""
    pick, right = Sampling(args.folder), 0
    for tools, question, check in by_hand.QUESTIONS:
        prompt = render([{"role": "user", "content": question}], tools, generate=True)
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        texts = [
            tokenizer.decode(tokens, skip_special_tokens=False)
            for tokens in written(model, [ids] * args.by_hand, BY_HAND_TOKENS, pick, device)
        ]
        wrong = [text for text in texts if not accepts(check, text)]
        right += args.by_hand - len(wrong)
        if wrong and args.wrong:
            print(f"    {len(wrong)} of {args.by_hand}: {question!r}\n      {wrong[0]!r}", flush=True)
    asked = args.by_hand * len(by_hand.QUESTIONS)
    print(f"{right / asked:.1%} of {asked} answers to {len(by_hand.QUESTIONS)} questions")


def main():
    args = arguments()
    skills = args.skill or list(lessons.SKILLS)
    if args.threads:
        torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = export.load(args.folder).to(device)
    tokenizer = Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    pick = Sampling(args.folder) if args.sampled else likeliest
    if args.by_hand:
        return asked_by_hand(model, tokenizer, args, device)
    if args.draft:
        return guesses(model.cpu(), args.draft, tokenizer, skills, args.count)
    side = "seen" if args.seen else "held out"
    print(f"| skill | right | of {args.count} {side} |\n|---|---|---|")
    worst = 1.0
    recorded = args.record.open("w") if args.record else None
    for skill in skills:
        given = list(answers(model, tokenizer, skill, args.count, not args.seen, device, pick))
        wrong = [answer for answer in given if not answer.is_right]
        right = args.count - len({answer.item for answer in wrong})
        worst = min(worst, right / args.count)
        print(f"| {skill} | {right / args.count:.1%} | {right} |", flush=True)
        if skill in CONSTRAINED:
            ended = sum(is_json(answer.text) for answer in given)
            print(f"| {skill}: ended | {ended / len(given):.1%} | {ended} |", flush=True)
        for answer in wrong[: args.wrong]:
            print(f"    {answer.prompt[-300:]!r}")
            print(f"      expected {answer.gold!r}\n      got      {answer.text!r}")
        if recorded:
            record(recorded, skill, [answer for answer in given if answer.is_right])
    raise SystemExit(worst < args.at_least)


if __name__ == "__main__":
    main()
