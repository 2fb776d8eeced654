#!/usr/bin/env python3
"""Measures Playhouse, llama.cpp's server and vLLM, one after the other on this machine: see README.md.

    benches/peers.sh                                 once: the peers and the model, into ~/.cache
    cargo build --release
    benches/compare.py                               about 14 minutes
    benches/compare.py --quick                       about 5: one repetition, one wave of requests, our client
    benches/compare.py --engines playhouse,llama.cpp --int8

Prints a Markdown table of medians and ratios. All measurements go to compare-results.json, the servers' output to
compare-logs/. Ends only processes that it started. Needs only Python's standard library.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0))
MAX_MODEL_LEN, MAX_NUM_SEQS, KV_GIB = 2048, 32, 3
INPUT_LEN, OUTPUT_LEN, PREFILL_LEN = 128, 64, 512
DEMO_WAVES = 20
NAME = "m"


class Model:
    """A model in both forms: a Hugging Face folder, and GGUF files."""

    def __init__(self, folder, ggufs):
        self.folder, self.ggufs = folder, ggufs

    def gguf(self, kind):
        return self.ggufs.with_name(f"{self.ggufs.name}-{kind}.gguf")

    def warm(self):
        """Reads its files once, so that a start finds them in the page cache."""
        for file in [*self.folder.iterdir(), *(self.gguf(kind) for kind in ("bf16", "q8_0"))]:
            if file.is_file():
                with open(file, "rb") as data:
                    while data.read(1 << 24):
                        pass


def engine_commands(args, port, model):
    """Returns each server's command. All have the same number of sequences, vLLM and Playhouse the same KV cache."""
    llama = [args.dir / "llama.cpp/build/bin/llama-server", "--host", "127.0.0.1", "--port", port, "--alias", NAME,
             "--threads", CORES, "--parallel", MAX_NUM_SEQS, "--ctx-size", MAX_NUM_SEQS * 512, "--no-webui"]
    playhouse = [args.playhouse, "serve", model.folder, "--port", port, "--served-model-name", NAME, "--dtype", "bfloat16",
                 "--max-model-len", MAX_MODEL_LEN, "--max-num-seqs", MAX_NUM_SEQS,
                 "--kv-cache-memory-bytes", f"{KV_GIB}GiB", "--log-level", "warn"]
    return {
        "playhouse": playhouse,
        "llama.cpp": [*llama, "--model", model.gguf("bf16")],
        "vllm": [args.dir / "peers-venv/bin/vllm", "serve", model.folder, "--host", "127.0.0.1", "--port", port,
                 "--served-model-name", NAME, "--dtype", "bfloat16", "--max-model-len", MAX_MODEL_LEN,
                 "--enforce-eager", "--max-num-seqs", MAX_NUM_SEQS],
        "playhouse int8": [*playhouse, "--quantization", "int8"],
        "llama.cpp q8_0": [*llama, "--model", model.gguf("q8_0")],
    }


ENVIRONMENT = {
    "vllm": {"VLLM_CPU_KVCACHE_SPACE": str(KV_GIB), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
}


def say(text):
    print(f"{datetime.datetime.now():%H:%M:%S}  {text}", file=sys.stderr, flush=True)


def run(command, log, timeout, env=None):
    """Runs `command` to its end and returns its output. Its standard error goes to the log."""
    command = [str(word) for word in command]
    with open(log, "a") as errors:
        print(f"$ {' '.join(command)}", file=errors, flush=True)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                              timeout=timeout, env={**os.environ, **(env or {})})
        print(done.stdout, file=errors)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} exited with {done.returncode}; see {log}")
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def processes():
    """Returns pid → (parent, group, resident bytes) of all processes that have not ended."""
    page = os.sysconf("SC_PAGE_SIZE")
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    found[int(entry)] = (int(fields[1]), int(fields[2]), int(fields[21]) * page)
            except OSError:
                pass  # the process has ended meanwhile
    return found


class Server:
    """A server in a process group of its own, from its start to its end."""

    def __init__(self, name, model, args, command=None):
        """`command` takes the port; without it, the server is one of `engine_commands`."""
        self.name, self.model, self.port = name, model, free_port()
        self.log = args.logs / f"{name.replace(' ', '-')}.log"
        words = command(self.port) if command else engine_commands(args, self.port, model)[name]
        command = [str(word) for word in words]
        if not pathlib.Path(command[0]).exists():
            raise RuntimeError(f"{command[0]} does not exist")
        self.out = open(self.log, "a")
        print(f"$ {' '.join(command)}", file=self.out, flush=True)
        model.warm()
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out,
                                        start_new_session=True, env={**os.environ, **ENVIRONMENT.get(name, {})})
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_until_healthy(self, timeout):
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended at its start; see {self.log}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return time.monotonic() - self.begun
            except (urllib.error.URLError, OSError):
                pass
            if time.monotonic() - self.begun > timeout:
                raise RuntimeError(f"{self.name} was not healthy after {timeout} s; see {self.log}")
            time.sleep(0.01)

    def family(self):
        """Returns the processes of the server."""
        all_of = processes()
        mine = {pid for pid, (_, group, _) in all_of.items() if group == self.process.pid}
        while True:
            more = {pid for pid, (parent, _, _) in all_of.items() if parent in mine} - mine
            if not more:
                return mine, sum(all_of[pid][2] for pid in mine)
            mine |= more

    def stop(self):
        family, _ = self.family()
        for sign, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
            for pid in family:
                try:
                    os.kill(pid, sign)
                except ProcessLookupError:
                    pass
            give_up = time.monotonic() + patience
            while time.monotonic() < give_up:
                self.process.poll()
                if not any(pid in processes() for pid in family):
                    self.out.close()
                    return
                time.sleep(0.1)
        raise RuntimeError(f"{self.name} did not end: {sorted(family)}")


def load_row(server, clients, seed, waves, args):
    """Measures one row of clients. Every row has its own prompts, because prefix caches would know others."""
    file = args.logs / "row.json"
    file.unlink(missing_ok=True)
    words = ["--base-url", server.url, "--model", NAME, "--tokenizer", server.model.folder, "--dataset-name", "random",
             "--random-input-len", INPUT_LEN, "--random-output-len", OUTPUT_LEN, "--num-prompts", clients * waves,
             "--max-concurrency", clients, "--ignore-eos", "--temperature", "0", "--seed", seed,
             "--percentile-metrics", "ttft,tpot,itl,e2el",
             "--save-result", "--result-dir", file.parent, "--result-filename", file.name]
    log = args.logs / "client.log"
    if args.client == "vllm":
        vllm = [args.dir / "peers-venv/bin/vllm", "bench", "serve", *words, "--disable-tqdm"]
        run(vllm, log, 900, ENVIRONMENT["vllm"])
    else:
        run([args.playhouse, "bench", "serve", *words], log, 900)
    row = json.loads(file.read_text())
    if row["failed"] or row["total_output_tokens"] != clients * waves * OUTPUT_LEN:
        raise RuntimeError(f"{row['failed']} requests failed, {row['total_output_tokens']} tokens came; see {log}")
    return row


def serve(name, repetition, args, note):
    """Starts a server, measures it, stops it."""
    say(f"{name}: server, repetition {repetition + 1}")
    waves = 1 if args.quick else 2
    server = Server(name, args.standard, args)
    try:
        note("start to healthy, s", name, server.wait_until_healthy(600))
        # Completes one-time work before the measurement: pages, threads, compilation.
        load_row(server, 1, 10_000 + repetition, waves, args)
        for clients in args.clients:
            row = load_row(server, clients, 100 * repetition + clients, waves, args)
            who = "1 client" if clients == 1 else f"{clients} clients"
            note(f"{who}, output tok/s", name, row["output_throughput"])
            note(f"{who}, mean TTFT, ms", name, row["mean_ttft_ms"])
            note(f"{who}, mean TPOT, ms", name, row["mean_tpot_ms"])
        note("resident afterwards, GB", name, server.family()[1] / 1e9)
    finally:
        server.stop()


def serve_demo(name, repetition, args, note):
    """Measures the repository's model of 5 million parameters, one client after the other."""
    say(f"{name}: the demo model, repetition {repetition + 1}")
    server = Server(name, args.demo, args)
    try:
        server.wait_until_healthy(600)
        load_row(server, 1, 10_000 + repetition, DEMO_WAVES, args)
        row = load_row(server, 1, repetition, DEMO_WAVES, args)
        note("demo model, 1 client, output tok/s", name, row["output_throughput"])
        note("demo model, 1 client, median TPOT, ms", name, row["median_tpot_ms"])
    finally:
        server.stop()


def prefill(name, args, note):
    """Measures a prompt of 512 tokens and nothing else, without a server."""
    say(f"{name}: prefill")
    log, row = args.logs / "prefill.log", f"prefill {PREFILL_LEN}, tok/s"
    rounds = 3 if args.quick else 5
    if name.startswith("playhouse"):
        more = ["--quantization", "int8"] if name.endswith("int8") else []
        words = ["bench", "latency", "-m", args.standard.folder, "--dtype", "bfloat16", "--max-model-len", MAX_MODEL_LEN,
                 "--batch-size", 1, "--input-len", PREFILL_LEN, "--output-len", 1, "--num-iters", rounds,
                 "--num-iters-warmup", 1, "--output", "json", *more]
        latencies = json.loads(run([args.playhouse, *words], log, 900))["latencies"]
        note(row, name, PREFILL_LEN / statistics.median(latencies))
    elif name.startswith("llama.cpp"):
        kind = "q8_0" if name.endswith("q8_0") else "bf16"
        bench = [args.dir / "llama.cpp/build/bin/llama-bench", "-m", args.standard.gguf(kind),
                 "-t", CORES, "-r", rounds, "-o", "json"]
        for result in json.loads(run([*bench, "-p", PREFILL_LEN, "-n", 32], log, 900)):
            is_prefill = result["n_gen"] == 0
            note(row if is_prefill else "decode without a server, tok/s", name, statistics.median(result["samples_ts"]))


def lower_is_better(row):
    return row.endswith((", s", ", ms", ", GB"))


def figure(value):
    return f"{value:.0f}" if value >= 200 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(results, engines):
    """Returns medians, and how many times better Playhouse is than each peer with the same kind of weights."""
    ours = [name for name in engines if name.startswith("playhouse")]
    peers = {name: [p for p in engines if p not in ours and (p == "llama.cpp q8_0") == name.endswith("int8")] for name in ours}
    pairs = [(name, peer) for name in ours for peer in peers[name]]
    head = ["", *engines, *(f"{name} / {peer}" for name, peer in pairs)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row, values in results.items():
        medians = {name: statistics.median(v) for name, v in values.items()}
        cells = [figure(medians[name]) if name in medians else "–" for name in engines]
        for name, peer in pairs:
            if name in medians and peer in medians:
                ratio = medians[name] / medians[peer]
                cells.append(f"{1 / ratio if lower_is_better(row) else ratio:.2f} ×")
            else:
                cells.append("–")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return f"{CORES} cores of {model}, {platform.system()} {platform.release()}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=pathlib.Path, default=os.environ.get("PLAYHOUSE_PEERS", pathlib.Path.home() / ".cache"),
                        help="where peers.sh put everything [default: $PLAYHOUSE_PEERS or ~/.cache]")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
    parser.add_argument("--playhouse", type=pathlib.Path, default=target / "release/playhouse", help="the program")
    parser.add_argument("--model", type=pathlib.Path, help="folder of the model [default: DIR/models/qwen3-0.6b]")
    parser.add_argument("--engines", default="playhouse,llama.cpp,vllm")
    parser.add_argument("--int8", action="store_true", help="also Playhouse with int8 weights and llama.cpp with Q8_0")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--servers-only", action="store_true", help="neither prefill alone nor the demo model")
    parser.add_argument("--client", choices=["auto", "vllm", "playhouse"], default="auto",
                        help="whose client [default: vLLM's where it is installed]")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=15, help="begin no repetition that would end later")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("compare-logs"))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("compare-results.json"))
    args = parser.parse_args()
    args.dir = pathlib.Path(args.dir).resolve()
    args.model = (args.model or args.dir / "models/qwen3-0.6b").resolve()
    args.standard = Model(args.model, args.dir / "models" / args.model.name)
    args.demo = Model(HERE.parent / "examples/demo-model", args.dir / "models/demo-model")
    args.clients = [int(word) for word in args.clients.split(",")]
    args.engines = args.engines.split(",") + (["playhouse int8", "llama.cpp q8_0"] if args.int8 else [])
    unknown = set(args.engines) - set(engine_commands(args, 0, args.standard))
    if unknown:
        parser.error(f"no such engine: {', '.join(sorted(unknown))}")
    if args.quick:
        args.repetitions = 1
    if args.client == "auto":
        has_vllm = (args.dir / "peers-venv/bin/vllm").exists() and not args.quick
        args.client = "vllm" if has_vllm else "playhouse"
    for needed in (args.playhouse, args.model):
        if not needed.exists():
            parser.error(f"{needed} does not exist")
    args.playhouse = args.playhouse.resolve()
    args.logs.mkdir(parents=True, exist_ok=True)
    args.logs = args.logs.resolve()
    return args


def main():
    args = parse()
    # A SIGTERM to this script also ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun, results, failures = time.monotonic(), {}, []
    load = os.getloadavg()[0]
    if load > 0.3 * CORES:
        say(f"WARNING: the machine is not idle (load {load:.1f}): only ratios mean something, if that")

    def note(row, engine, value):
        results.setdefault(row, {}).setdefault(engine, []).append(value)
        args.results.write_text(json.dumps({"machine": machine(), "client": args.client, "load": load,
                                            "results": results, "failures": failures}, indent=1) + "\n")

    def attempt(what, engine, *more):
        try:
            what(engine, *more)
        except (RuntimeError, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
            failures.append(f"{engine}: {error}")
            say(f"FAILED: {engine}: {error}")

    longest = 0
    for repetition in range(args.repetitions):
        started = time.monotonic()
        if started - begun + longest > args.minutes * 60:
            say(f"{args.minutes:g} minutes are over: {repetition} repetitions")
            break
        for engine in [] if args.servers_only else args.engines:
            attempt(prefill, engine, args, note)
        for engine in args.engines:
            attempt(serve, engine, repetition, args, note)
        for engine in [] if args.servers_only else args.engines:
            if args.demo.gguf("bf16").exists() and engine in ("playhouse", "llama.cpp", "vllm"):
                attempt(serve_demo, engine, repetition, args, note)
        longest = max(longest, time.monotonic() - started)
    waves = "one wave" if args.quick else "two waves"
    print(f"\n{datetime.date.today()}, {machine()}; prompts of {INPUT_LEN} tokens, {OUTPUT_LEN} generated, {waves}; "
          f"{args.client}'s client; load at the start {load:.1f}\n")
    print(table(results, args.engines))
    for failure in failures:
        print(f"\nFAILED: {failure}")
    say(f"{(time.monotonic() - begun) / 60:.1f} minutes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
