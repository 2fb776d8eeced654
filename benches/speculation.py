#!/usr/bin/env python3
"""Compares servers with and without guesses: output tokens a second, and every answer's bytes.

    cargo build --release
    benches/grow.py DIR
    benches/speculation.py --models DIR                the shape of Qwen3-0.6B, 1 and 32 clients
    benches/speculation.py --models DIR --small        the demo model's shape
    benches/speculation.py --models DIR --only copy --repetitions 5 --requests 64

| Prompts | |
|---|---|
| copy | A text of 256 tokens, one in sixteen of which is wrong; the answer is its first 128, corrected |
| talk | Held-out small talk and stories of the demo model |
| json | Held-out sentences of the demo model, and the JSON schema of what they say |
| order | The same sentences, and one schema of six fields with longer names |
| random | 128 random tokens, and 96 more at temperature 1 |

Each repetition starts one server after the other, so that a machine that gets slower is slow for
all. The table has medians. Answers that differ from those of the server without guesses are
counted; there must be none.
"""
import argparse, json, pathlib, random, re, socket, statistics, subprocess, sys, time, urllib.request
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / "examples/demo-model"
sys.path.insert(0, str(DEMO))
import lessons


def spec(method, **fields):
    return ["--speculative-config", json.dumps({"method": method, **fields})]


def methods(draft):
    return {
        "none": ["--no-jump-forward"],
        "jump-forward": ["--jump-forward"],
        "ngram": spec("ngram", num_speculative_tokens=8, prompt_lookup_min=2, prompt_lookup_max=4),
        "suffix": spec("suffix"),
        "draft_model": spec("draft_model", model=str(draft), num_speculative_tokens=5),
    }


# The methods that each kind of prompts is measured with, beside none.
KINDS = {
    "copy": ["ngram", "suffix"],
    "random": ["ngram", "suffix", "draft_model"],
    "talk": ["draft_model", "suffix"],
    "json": ["jump-forward"],
    "order": ["jump-forward"],
}
ORDER = {
    "customer_name": {"type": "string", "maxLength": 12},
    "order_number": {"type": "integer", "minimum": 0, "maximum": 9999},
    "delivery_address": {"type": "string", "maxLength": 24},
    "payment_method": {"enum": ["invoice", "credit_card", "cash_on_delivery"]},
    "is_delivered": {"type": "boolean"},
    "priority": {"enum": ["low", "normal", "high"]},
}
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_of(properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def body(kind, index):
    """Returns route and body of a request. Answers depend on them alone."""
    draw = random.Random(f"{kind} {index}")
    if kind == "copy":
        first = draw.randrange(300, 2600)
        text = [token if draw.randrange(16) else draw.randrange(300, 2900) for token in range(first, first + 256)]
        return "/v1/completions", {"prompt": [*text, first - 1], "max_tokens": 128, "temperature": 0,
                                   "ignore_eos": True}
    if kind == "random":
        tokens = [draw.randrange(300, 2900) for _ in range(128)]
        return "/v1/completions", {"prompt": tokens, "max_tokens": 96, "temperature": 1.0,
                                   "seed": index, "ignore_eos": True}
    skill = "json" if kind in ("json", "order") else draw.choice(["talk", "stories"])
    _, conversation = lessons.conversation(1, index + 1, True, [skill])
    messages = conversation.messages
    answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    request = {"messages": messages[: answers[0]], "temperature": 0, "max_tokens": 128}
    if skill == "json":
        values = json.loads(messages[answers[0]]["content"])
        types = {key: {"type": JSON_TYPES[type(value)]} for key, value in values.items()}
        schema = schema_of(ORDER if kind == "order" else types)
        request["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return "/v1/chat/completions", request


class Server:
    def __init__(self, args, model, flags):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [args.program, "serve", "--model", model, "--port", str(port), "--max-num-seqs", "32",
                   "--max-model-len", "1024", *flags]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ready(self):
        for _ in range(600):
            try:
                return self.get("/readyz")
            except OSError:
                if self.process.poll() is not None:
                    sys.exit("the server ended: run the command by hand to see why")
                time.sleep(0.2)
        sys.exit("the server is not ready")

    def get(self, route):
        return urllib.request.urlopen(self.url + route, timeout=600).read().decode()

    def post(self, route, body):
        data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
        request = urllib.request.Request(self.url + route, data, headers)
        return json.loads(urllib.request.urlopen(request, timeout=600).read())

    def stop(self):
        self.process.terminate()
        self.process.wait()


def measure(server, kind, clients, count):
    """Returns output tokens a second, and the answers."""
    server.post(*body(kind, -1))
    # Making the prompts up takes as long as some of the answers do.
    bodies = [body(kind, index) for index in range(count)]
    begun = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda request: server.post(*request), bodies))
    tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
    texts = [answer["choices"][0].get("text") or answer["choices"][0]["message"]["content"]
             for answer in answers]
    return tokens / (time.monotonic() - begun), texts


def guesses(server):
    """Returns the numbers of guesses so far: right ones, and all."""
    metrics = server.get("/metrics")
    total = lambda name: sum(map(float, re.findall(
        rf"^\S*spec_decode_num_{name}_total\S* ([0-9.e+]+)$", metrics, re.M)))
    return total("accepted_tokens"), total("draft_tokens")


def measure_all(args, kinds, model, draft, known):
    """Measures all methods of these kinds once, into `known`."""
    for method, flags in methods(draft).items():
        mine = [kind for kind in kinds if method == "none" or method in KINDS[kind]]
        if not mine:
            continue
        server = Server(args, model, flags)
        try:
            server.ready()
            for kind in mine:
                for clients in args.clients:
                    count = max(args.requests, clients)
                    before = guesses(server)
                    speed, texts = measure(server, kind, clients, count)
                    right, all_guesses = (now - then for now, then in zip(guesses(server), before))
                    known.speeds.setdefault((kind, clients, method), []).append(speed)
                    known.rates[kind, clients, method] = right / all_guesses if all_guesses else 0.0
                    expected = known.answers.setdefault((kind, count), texts)
                    known.differing += sum(a != b for a, b in zip(texts, expected))
                    known.compared += len(texts)
        finally:
            server.stop()


class Known:
    def __init__(self):
        self.speeds, self.rates, self.answers, self.differing, self.compared = {}, {}, {}, 0, 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "target/release/playhouse"))
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder that grow.py made")
    parser.add_argument("--small", action="store_true", help="the demo model and its shape")
    parser.add_argument("--only", choices=KINDS, nargs="+", default=list(KINDS), help="kinds of prompts")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--requests", type=int, default=32, help="requests of each kind")
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    demo, draft = (DEMO, DEMO / "draft") if args.small else (args.models / "demo", args.models / "draft")
    counting = args.models / ("small-counting" if args.small else "counting")
    known = Known()
    for _ in range(args.repetitions):
        measure_all(args, [kind for kind in args.only if kind != "copy"], str(demo), draft, known)
        measure_all(args, [kind for kind in args.only if kind == "copy"], str(counting), draft, known)
    print("| Prompts | Clients | Method | tok/s | Ratio | Right guesses |\n|---|---|---|---|---|---|")
    for (kind, clients, method), values in sorted(known.speeds.items()):
        base = statistics.median(known.speeds[kind, clients, "none"])
        speed = statistics.median(values)
        print(f"| {kind} | {clients} | {method} | {speed:.1f} | {speed / base:.2f} "
              f"| {100 * known.rates[kind, clients, method]:.0f} % |")
    print(f"\n{known.differing} of {known.compared} answers differ")
    sys.exit(known.differing > 0)


if __name__ == "__main__":
    main()
