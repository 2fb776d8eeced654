#!/usr/bin/env python3
"""Measures vectors of texts: Playhouse beside llama.cpp's server, sentence-transformers and onnxruntime.

    MODELS=bert-base PYTHON=python3 benches/peers.sh      once: llama.cpp, and the model in all forms
    cargo build --release
    benches/pooling.py --python python3                   about 12 minutes
    benches/pooling.py --engines "playhouse bf16,onnxruntime f32" --seconds 5 --repetitions 1

PYTHON is one with torch, transformers, sentence-transformers, onnx and onnxruntime. One client sends 32 texts of
128 tokens, waits for their vectors, and sends the next 32. Servers get them as JSON over HTTP; libraries run in a
process of their own, and get a line of JSON. The time of a text has its tokenizer, model, pooling and transport.

Prints a Markdown table: texts a second, and the cosine between each engine's vectors and those of sentence-transformers
in float32. All measurements go to pooling-results.json, the engines' output to pooling-logs/. Ends only processes that
it started.
"""
import argparse
import array
import base64
import datetime
import json
import math
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

from compare import CORES, HERE, NAME, Model, Server, figure, machine, run, say

REFERENCE = "sentence-transformers f32"
ENGINES = ["playhouse bf16", "playhouse int8", "llama.cpp bf16", "llama.cpp q8_0", REFERENCE,
           "sentence-transformers bf16", "sentence-transformers int8", "onnxruntime f32", "onnxruntime int8"]


def is_small(engine):
    """Returns whether an engine has weights of 8 bits."""
    return engine.endswith(("int8", "q8_0"))


def server_command(engine, args, port):
    """Returns the command of a server. llama.cpp computes `--ubatch` tokens at a time."""
    if engine.startswith("playhouse"):
        more = ["--quantization", "int8"] if engine.endswith("int8") else []
        return [args.playhouse, "serve", args.model.folder, "--port", port, "--served-model-name", NAME,
                "--dtype", "bfloat16", "--max-num-seqs", args.batch, "--max-num-batched-tokens",
                args.batch * args.length, "--log-level", "warn", *more]
    kind = engine.split()[1]
    return [args.dir / "llama.cpp/build/bin/llama-server", "--host", "127.0.0.1", "--port", port, "--alias", NAME,
            "--threads", CORES, "--threads-batch", CORES, "--model", args.model.gguf(kind), "--embeddings",
            "--pooling", "mean", "--parallel", args.batch, "--ctx-size", args.batch * max(args.length, 256),
            "--batch-size", max(args.ubatch, args.batch * args.length), "--ubatch-size", args.ubatch, "--no-webui"]


class Http:
    """A server behind `/v1/embeddings`."""

    def __init__(self, engine, args):
        self.server = Server(engine, args.model, args, lambda port: server_command(engine, args, port))
        self.start_s = self.server.wait_until_healthy(600)

    def embed(self, texts):
        body = json.dumps({"model": NAME, "input": texts, "encoding_format": "base64"}).encode()
        url, headers = f"{self.server.url}/v1/embeddings", {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=600) as answer:
            items = json.load(answer)["data"]
        return [item["embedding"] for item in sorted(items, key=lambda item: item["index"])]

    def memory(self):
        return self.server.family()[1]

    def stop(self):
        self.server.stop()


class Library:
    """A library in a process of its own."""

    def __init__(self, engine, args):
        self.log = open(args.logs / f"{engine.replace(' ', '-')}.log", "a")
        command = [args.python, __file__, "--worker", engine, "--model", args.model.folder, "--dir", args.dir]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        begun = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=environment)
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{engine} did not start; see {self.log.name}")
        self.start_s = time.monotonic() - begun

    def embed(self, texts):
        print(json.dumps(texts), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def words_of(folder):
    """Returns words that the tokenizer has as one token each."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and word.islower() and len(word) > 2]
    if len(words) < 500:
        raise RuntimeError(f"{folder} has {len(words)} words of one token; it needs a WordPiece tokenizer")
    return sorted(words)


def texts_of(words, count, length, seed):
    """Returns random texts of `length` tokens, the two of the tokenizer's template among them."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=length - 2)) for _ in range(count)]


def numbers(vector):
    return array.array("f", base64.b64decode(vector)) if isinstance(vector, str) else array.array("f", vector)


def cosine(one, other):
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


def measure(engine, args, words, repetition, note, known):
    """Starts an engine, measures it, stops it."""
    say(f"{engine}, repetition {repetition + 1}")
    is_library = engine.startswith(("sentence-transformers", "onnxruntime"))
    peer = (Library if is_library else Http)(engine, args)
    try:
        # The same texts for every engine. The first batches also warm it up.
        vectors = [numbers(vector) for vector in peer.embed(texts_of(words, args.batch, args.length, 0))]
        peer.embed(texts_of(words, args.batch, args.length, 1))
        known[engine] = vectors
        begun, count, elapsed = time.monotonic(), 0, 0
        while elapsed < args.seconds or count < 2 * args.batch:
            peer.embed(texts_of(words, args.batch, args.length, 1000 * repetition + 2 + count))
            count += args.batch
            elapsed = time.monotonic() - begun
        note("texts a second", engine, count / elapsed)
        note("start, s", engine, peer.start_s)
        note("resident afterwards, GB", engine, peer.memory() / 1e9)
    finally:
        peer.stop()


def operations(folder, length):
    """Returns the arithmetic of one text: multiplications and additions of products and attention."""
    config = json.loads((folder / "config.json").read_text())
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    return layers * length * (2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * length * hidden)


def ceiling(args):
    """Returns the most operations a second in bf16, measured on this machine."""
    words = [args.playhouse, "bench", "kernels", "--op", "linear", "--num-tokens", 512, "--output", "json"]
    limits = json.loads(run(words, args.logs / "limits.log", 900))
    return 1e9 * (limits.get("bf16_max_gflops") or limits["f32_max_gflops"])


def table(results, engines, known, share):
    """Returns medians, with the ratio of Playhouse to the fastest peer."""
    rates = {name: statistics.median(values) for name, values in results["texts a second"].items()}
    reference = known.get(REFERENCE)
    lines = ["| | texts a second | least cosine to float32 | start, s | resident, GB |", "|---|---|---|---|---|"]
    for name in (name for name in engines if name in rates):
        least = "–"
        if reference and name in known:
            least = f"{min(map(cosine, known[name], reference)):.5f}"
        cells = [figure(statistics.median(results[row][name])) for row in ("start, s", "resident afterwards, GB")]
        lines.append(f"| {name} | {figure(rates[name])} | {least} | {' | '.join(cells)} |")
    peers = {name: rate for name, rate in rates.items() if not name.startswith("playhouse")}
    for name in (name for name in rates if name.startswith("playhouse") and peers):
        fastest = max(peers, key=peers.get)
        alike = {peer: rate for peer, rate in peers.items() if is_small(peer) == is_small(name)} or peers
        kind = max(alike, key=alike.get)
        lines += ["", f"{name}: {rates[name] / peers[fastest]:.2f} × the fastest ({fastest}), "
                      f"{rates[name] / alike[kind]:.2f} × the fastest of its kind ({kind})"]
    if share and "playhouse bf16" in rates:
        lines += ["", f"playhouse bf16: {100 * share(rates['playhouse bf16']):.0f} % of the machine's bf16 arithmetic"]
    return "\n".join(lines)


def worker(engine, args):
    """Reads lines of texts, and writes lines of vectors, until the end of the input."""
    library, kind = engine.split()
    embed = {"sentence-transformers": sentence_transformers, "onnxruntime": onnxruntime}[library](kind, args)
    print("ready", flush=True)
    for line in sys.stdin:
        vectors = [base64.b64encode(vector.tobytes()).decode() for vector in embed(json.loads(line))]
        print(json.dumps(vectors), flush=True)


def sentence_transformers(kind, args):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(CORES)
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    model = SentenceTransformer(str(args.model.folder), device="cpu", model_kwargs={"dtype": dtype})
    if kind == "int8":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    return lambda texts: model.encode(texts, batch_size=len(texts), normalize_embeddings=True).astype("float32")


def onnxruntime(kind, args):
    import numpy
    import onnxruntime as ort
    from transformers import AutoTokenizer

    options = ort.SessionOptions()
    options.intra_op_num_threads = CORES
    session = ort.InferenceSession(onnx_file(kind, args), options, providers=["CPUExecutionProvider"])
    tokenizer = AutoTokenizer.from_pretrained(args.model.folder)
    inputs = [given.name for given in session.get_inputs()]

    def embed(texts):
        tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="np")
        tokens.setdefault("token_type_ids", numpy.zeros_like(tokens["input_ids"]))
        hidden = session.run(None, {name: tokens[name] for name in inputs})[0]
        mask = tokens["attention_mask"][:, :, None].astype("float32")
        vectors = (hidden * mask).sum(1) / mask.sum(1)
        return (vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)).astype("float32")

    return embed


def onnx_file(kind, args):
    """Exports the model, fuses its operations, and quantizes it, each once."""
    folder = args.dir / "models" / f"{args.model.folder.name}-onnx"
    folder.mkdir(parents=True, exist_ok=True)
    plain, fused, int8 = (folder / f"{name}.onnx" for name in ("plain", "f32", "int8"))
    if not fused.exists():
        import torch
        from onnxruntime.transformers import optimizer
        from transformers import AutoModel

        class Hidden(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, ids, mask, types):
                return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

        model = AutoModel.from_pretrained(args.model.folder, dtype=torch.float32, attn_implementation="eager").eval()
        names = ["input_ids", "attention_mask", "token_type_ids"]
        ids = torch.ones(2, 16, dtype=torch.long)
        axes = {name: {0: "batch", 1: "length"} for name in [*names, "last_hidden_state"]}
        torch.onnx.export(Hidden(), (ids, ids, ids * 0), plain, input_names=names, output_names=["last_hidden_state"],
                          dynamic_axes=axes, dynamo=False, opset_version=17)
        heads, hidden = model.config.num_attention_heads, model.config.hidden_size
        optimized = optimizer.optimize_model(str(plain), model_type="bert", num_heads=heads, hidden_size=hidden)
        optimized.save_model_to_file(str(fused))
        print(optimized.get_fused_operator_statistics(), file=sys.stderr)
    if kind == "int8" and not int8.exists():
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # The types of the fused operations' results are not inferred. They are floats.
        options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(fused, int8, weight_type=QuantType.QInt8, per_channel=True, extra_options=options)
    return str(int8 if kind == "int8" else fused)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=pathlib.Path, default=os.environ.get("PLAYHOUSE_PEERS", pathlib.Path.home() / ".cache"),
                        help="where peers.sh put everything [default: $PLAYHOUSE_PEERS or ~/.cache]")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
    parser.add_argument("--playhouse", type=pathlib.Path, default=target / "release/playhouse", help="the program")
    parser.add_argument("--python", type=pathlib.Path, default=sys.executable, help="a Python with the libraries")
    parser.add_argument("--model", type=pathlib.Path, help="folder of the model [default: DIR/models/bert-base]")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--batch", type=int, default=32, help="texts of a request")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--ubatch", type=int, default=512, help="tokens that llama.cpp computes at a time")
    parser.add_argument("--seconds", type=float, default=15, help="of each measurement")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=15, help="begin no repetition that would end later")
    parser.add_argument("--no-ceiling", action="store_true", help="do not measure the machine's arithmetic")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("pooling-logs"))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("pooling-results.json"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.dir = pathlib.Path(args.dir).resolve()
    folder = (args.model or args.dir / "models/bert-base").resolve()
    args.model = Model(folder, args.dir / "models" / folder.name)
    args.engines = args.engines.split(",")
    unknown = set(args.engines) - set(ENGINES)
    if unknown:
        parser.error(f"no such engine: {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    args.playhouse = args.playhouse.absolute()
    args.logs.mkdir(parents=True, exist_ok=True)
    args.logs = args.logs.resolve()
    return args


def main():
    args = parse()
    if args.worker:
        return worker(args.worker, args)
    # A SIGTERM to this script also ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun, results, failures, known = time.monotonic(), {"texts a second": {}}, [], {}
    load = os.getloadavg()[0]
    if load > 0.3 * CORES:
        say(f"WARNING: the machine is not idle (load {load:.1f}): only ratios mean something, if that")
    words = words_of(args.model.folder)

    def note(row, engine, value):
        results.setdefault(row, {}).setdefault(engine, []).append(value)
        args.results.write_text(json.dumps({"machine": machine(), "load": load, "batch": args.batch,
                                            "length": args.length, "ubatch": args.ubatch, "results": results,
                                            "failures": failures}, indent=1) + "\n")

    longest = 0
    for repetition in range(args.repetitions):
        started = time.monotonic()
        if started - begun + longest > args.minutes * 60:
            say(f"{args.minutes:g} minutes are over: {repetition} repetitions")
            break
        for engine in args.engines:
            try:
                measure(engine, args, words, repetition, note, known)
            except (RuntimeError, OSError, KeyError, ValueError) as error:
                failures.append(f"{engine}: {error}")
                say(f"FAILED: {engine}: {error}")
        longest = max(longest, time.monotonic() - started)
    share = None
    if not args.no_ceiling and "playhouse bf16" in results["texts a second"]:
        say("the machine's arithmetic")
        most, needed = ceiling(args), operations(args.model.folder, args.length)
        share = lambda rate: rate * needed / most
    print(f"\n{datetime.date.today()}, {machine()}; one client, {args.batch} texts of {args.length} tokens a request; "
          f"load at the start {load:.1f}\n")
    print(table(results, args.engines, known, share))
    for failure in failures:
        print(f"\nFAILED: {failure}")
    say(f"{(time.monotonic() - begun) / 60:.1f} minutes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
