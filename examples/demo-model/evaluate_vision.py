"""Asks a server about held-out pictures, and counts the right answers of each kind.

    playhouse serve examples/demo-model/vision --port 8000
    python examples/demo-model/evaluate_vision.py --count 500
    python examples/demo-model/evaluate_vision.py --record FOLDER

A picture is drawn for this and never was in training; nor was its content, unless there are too few
of its kind: one group of shapes, or one digit. An answer is right when it is exactly the expected
one.
"""

import argparse
import base64
import io
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pictures import questions
from pictures.held_out import asked

SEED = "evaluation"
KINDS = tuple(questions.KINDS)
RECORDED, RECORDED_BYTES_MAX = 16, 3_000
"""Pictures that `--record` keeps, and their largest size."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--count", type=int, default=500, help="pictures")
    parser.add_argument("--other-wordings", action="store_true", help="that were not in training")
    parser.add_argument("--wrong", type=int, default=0, help="show so many wrong answers of a kind")
    parser.add_argument("--at-least", type=float, default=0.0, help="the share that is asked for")
    parser.add_argument("--record", type=Path, help="write pictures and answers there, for tests")
    return parser.parse_args()


def png(image):
    """Returns the image as a file."""
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def ask(url, picture, question):
    """Returns the server's answer about a file, decoded greedily."""
    data = "data:image/png;base64," + base64.b64encode(picture).decode()
    parts = [
        {"type": "image_url", "image_url": {"url": data}},
        {"type": "text", "text": question},
    ]
    body = {
        "messages": [{"role": "user", "content": parts}],
        "temperature": 0,
        "max_tokens": 64,
    }
    headers = {"Content-Type": "application/json"}
    url = f"{url}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def record(folder):
    """Writes pictures, each with a question and its answer. No server is asked."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for scene, asks in asked("recorded", 1_000):
        file = png(scene.image)
        kind = KINDS[len(rows) % len(KINDS)]
        wanted = [ask for ask in asks if ask[0] == kind]
        if len(file) > RECORDED_BYTES_MAX or not wanted:
            continue
        _, question, answer = wanted[0]
        name = f"{len(rows)}.png"
        (folder / name).write_bytes(file)
        rows.append({"picture": name, "question": question, "answer": answer})
        if len(rows) == RECORDED:
            break
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "answers.jsonl").write_text(lines)


def label(scene, kind):
    """Returns the kind of question, and what is in the picture if that matters much."""
    if kind not in ("describe", "number") or scene.kind == "empty":
        return kind, ""
    if kind == "number" and scene.kind == "shapes":
        return kind, "shapes"
    return kind, f"{len(scene.things)} {'shapes' if scene.kind == 'shapes' else 'digits'}"


def table(given, wrong_max):
    """Prints the shares of right answers of `(label, question, expected, answer)`, and returns them by
    kind."""
    shares = {}
    print("| kind | right | of |\n|---|---|---|")
    rows = [(kind, "") for kind in KINDS] + sorted({row[0] for row in given if row[0][1]})
    for kind, detail in sorted(rows, key=lambda row: KINDS.index(row[0])):
        asked = [row for row in given if row[0][0] == kind and detail in ("", row[0][1])]
        wrong = [row for row in asked if row[2] != row[3]]
        share = 1 - len(wrong) / len(asked)
        print(f"| {f'{kind}, {detail}' if detail else kind} | {share:.1%} | {len(asked)} |")
        if not detail:
            shares[kind] = share
            for _, question, expected, answer in wrong[:wrong_max]:
                print(f"    {question!r}\n      expected {expected!r}\n      got      {answer!r}")
    right = sum(row[2] == row[3] for row in given)
    print(f"| all | {right / len(given):.1%} | {len(given)} |")
    return shares


def main():
    args = arguments()
    if args.record:
        return record(args.record)
    items = []
    for scene, asks in asked(SEED, args.count, wordings_held_out=args.other_wordings):
        file = png(scene.image)
        items += [(file, label(scene, kind), *ask) for kind, *ask in asks]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda item: ask(args.url, item[0], item[2]), items))
    given = [(*item[1:], answer) for item, answer in zip(items, answers)]
    shares = table(given, args.wrong)
    raise SystemExit(min(shares.values()) < args.at_least)


if __name__ == "__main__":
    main()
