#!/usr/bin/env python3
"""Sends PyTorch's prompts to a server of the demo model, and compares the answers: benches/answers.py URL [--times N]

`tests/demo_model/answers.jsonl` holds prompts with the answers of the same weights in PyTorch, greedy. Exit code 1
if one differs. `--times` is the number of rounds, with 32 prompts at once. The answers must be the same in every round.
"""

import argparse
import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FILE = Path(__file__).parent.parent / "tests/demo_model/answers.jsonl"


def ask(url, row):
    body = {"prompt": row["prompt"], "temperature": 0, "max_tokens": 400, "skip_special_tokens": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)["choices"][0]["text"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--times", type=int, default=1)
    args = parser.parse_args()
    rows = [json.loads(line) for line in FILE.read_text().splitlines()] * args.times
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda row: ask(args.url, row), rows))
    wrong = [(row, answer) for row, answer in zip(rows, answers) if answer.strip() != row["answer"].strip()]
    print(f"{len(rows) - len(wrong)} of {len(rows)} answers are PyTorch's")
    for row, answer in wrong[:5]:
        print(f"  {row['prompt'][-80:]!r}\n    PyTorch: {row['answer']!r}\n    here:    {answer!r}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
