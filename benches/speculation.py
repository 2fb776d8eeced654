#!/usr/bin/env python3
"""Compares servers with and without guesses: output tokens a second, and every answer's bytes.

    cargo build --release
    benches/speculation.py                             the demo model, 1 and 32 clients
    benches/speculation.py --model DIR --only copy     another model, one kind of prompts
    benches/speculation.py --repetitions 5 --requests 64

Each repetition starts one server after the other, so that a machine that gets slower is slow for
all. The table has medians. Answers that differ from those of the server without guesses are
counted; there must be none.
"""
import argparse, json, os, random, re, socket, statistics, subprocess, sys, time, urllib.request
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DRAFT = os.path.join(ROOT, "examples/demo-model/draft")
WORDS = "river stone lamp bread winter garden paper cloud silver horse kettle bridge".split()
SCHEMA = {"type": "object", "properties": {
    "customer_name": {"type": "string"}, "order_number": {"type": "integer"},
    "delivery_address": {"type": "string"}, "is_delivered": {"type": "boolean"}},
    "required": ["customer_name", "order_number", "delivery_address", "is_delivered"],
    "additionalProperties": False}


def spec(method, **fields):
    return ["--speculative-config", json.dumps({"method": method, **fields})]


METHODS = {
    "none": ["--no-jump-forward"],
    "jump-forward": [],
    "ngram": spec("ngram", num_speculative_tokens=8, prompt_lookup_min=2, prompt_lookup_max=4),
    "suffix": spec("suffix"),
    "draft_model": spec("draft_model", model=DRAFT, num_speculative_tokens=5),
}
# The methods that each kind of prompts is measured with, beside none.
KINDS = {
    "copy": ["ngram", "suffix"],
    "random": ["ngram", "suffix", "draft_model"],
    "talk": ["draft_model", "suffix"],
    "json": ["jump-forward"],
}


def body(kind, index):
    """Returns route and body of a request. Answers depend on them alone."""
    draw = random.Random(f"{kind} {index}")
    sentence = " ".join(draw.choice(WORDS) for _ in range(12))
    chat = lambda text, **more: ("/v1/chat/completions", {
        "messages": [{"role": "user", "content": text}], "temperature": 0, **more})
    if kind == "copy":
        return chat(f"Please repeat these lines:\n{sentence}\n{sentence[::-1]}\n{sentence}",
                    max_tokens=128)
    if kind == "random":
        tokens = [draw.randrange(300, 2900) for _ in range(128)]
        return "/v1/completions", {"prompt": tokens, "max_tokens": 96, "temperature": 1.0,
                                   "seed": index, "ignore_eos": True}
    if kind == "talk":
        return chat(draw.choice(["Tell me a short story about ", "Hello! Do you know about "])
                    + draw.choice(WORDS) + "?", max_tokens=128)
    schema = {"type": "json_schema", "json_schema": {"name": "order", "schema": SCHEMA}}
    return chat(f"Ann ordered number {index}. {sentence}. Write it as JSON.", max_tokens=128,
                response_format=schema)


class Server:
    def __init__(self, args, flags):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        model = ["--model", args.model] if args.model else []
        command = [args.program, "serve", *model, "--port", str(port), "--max-num-seqs", "32", *flags]
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
    begun = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda index: server.post(*body(kind, index)), range(count)))
    tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
    texts = [answer["choices"][0].get("text") or answer["choices"][0]["message"]["content"]
             for answer in answers]
    return tokens / (time.monotonic() - begun), texts


def accepted(server):
    metrics = server.get("/metrics")
    total = lambda name: sum(map(float, re.findall(
        rf"^\S*spec_decode_num_{name}_total\S* ([0-9.e+]+)$", metrics, re.M)))
    counts = [total("accepted_tokens"), total("draft_tokens")]
    return counts[0] / counts[1] if counts[1] else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "target/release/playhouse"))
    parser.add_argument("--model", help="folder of the model; default: the demo model")
    parser.add_argument("--only", choices=KINDS, help="one kind of prompts")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--requests", type=int, default=32, help="requests of each kind")
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    kinds = {kind: KINDS[kind] for kind in KINDS if args.only in (None, kind)}
    if args.model:
        # The repository's draft model has the vocabulary of the demo model.
        kinds = {kind: [m for m in methods if m != "draft_model"] for kind, methods in kinds.items()}
    speeds, rates, expected, num_differing, num_compared = {}, {}, {}, 0, 0
    for _ in range(args.repetitions):
        for method, flags in METHODS.items():
            server = Server(args, flags)
            try:
                server.ready()
                for kind, methods in kinds.items():
                    if method != "none" and method not in methods:
                        continue
                    for clients in args.clients:
                        count = max(args.requests, clients)
                        speed, texts = measure(server, kind, clients, count)
                        speeds.setdefault((kind, clients, method), []).append(speed)
                        rates[kind, method] = accepted(server)
                        known = expected.setdefault((kind, count), texts)
                        num_differing += sum(a != b for a, b in zip(texts, known))
                        num_compared += len(texts)
            finally:
                server.stop()
    print("| Prompts | Clients | Method | tok/s | Ratio | Right guesses |\n|---|---|---|---|---|---|")
    for (kind, clients, method), values in sorted(speeds.items()):
        base = statistics.median(speeds[kind, clients, "none"])
        speed = statistics.median(values)
        print(f"| {kind} | {clients} | {method} | {speed:.1f} | {speed / base:.2f} "
              f"| {100 * rates[kind, method]:.0f} % |")
    print(f"\n{num_differing} of {num_compared} answers differ")
    sys.exit(num_differing > 0)


if __name__ == "__main__":
    main()
