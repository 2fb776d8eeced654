#!/usr/bin/env python3
"""Compares the time of a token with and without LoRA adapters in the batch.

    cargo build --release
    benches/lora.py                          8 adapters of rank 16, 32 clients, Qwen3's shape of 0.6B
    benches/lora.py --quantization int8 --rank 64 --repetitions 5

One server has all adapters. Clients use the base model and the adapters by turns, so that a machine
that gets slower is slow for both. Weights and adapters are made up.
"""
import argparse, json, os, random, socket, statistics, struct, subprocess, sys, tempfile, time, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The sign of a random byte, and the exponent of numbers near 0.01.
HIGH = bytes(0x3C | byte & 0x80 for byte in range(256))


def layers(config):
    """Returns name, inputs and outputs of each linear layer of a decoder layer."""
    hidden, wide, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    return [("self_attn.q_proj", hidden, heads * dim), ("self_attn.k_proj", hidden, kv_heads * dim),
            ("self_attn.v_proj", hidden, kv_heads * dim), ("self_attn.o_proj", heads * dim, hidden),
            ("mlp.gate_proj", hidden, wide), ("mlp.up_proj", hidden, wide),
            ("mlp.down_proj", wide, hidden)]


def make(folder, config, rank, seed):
    """Writes an adapter in PEFT's format, in bfloat16."""
    draw, header, at, sizes = random.Random(seed), {}, 0, []
    for layer in range(config["num_hidden_layers"]):
        for name, inputs, outputs in layers(config):
            for half, shape in (("A", [rank, inputs]), ("B", [outputs, rank])):
                size = 2 * shape[0] * shape[1]
                key = f"base_model.model.model.layers.{layer}.{name}.lora_{half}.weight"
                header[key] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
                at += size
                sizes.append(size)
    text = json.dumps(header).encode()
    with open(f"{folder}/adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for size in sizes:
            numbers = bytearray(draw.randbytes(size))
            numbers[1::2] = numbers[1::2].translate(HIGH)
            file.write(numbers)
    targets = [name.split(".")[1] for name, _, _ in layers(config)]
    with open(f"{folder}/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets}, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "target/release/playhouse"))
    parser.add_argument("--shape", default=os.path.join(ROOT, "benches/shapes/qwen3-0.6b"))
    parser.add_argument("--tokenizer", default=os.path.join(ROOT, "examples/demo-model"))
    parser.add_argument("--quantization", help="int8 or int4; default: bfloat16")
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--output-len", type=int, default=24)
    parser.add_argument("--repetitions", type=int, default=5)
    args = parser.parse_args()
    with open(f"{args.shape}/config.json") as file:
        config = json.load(file)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        names = [f"a{number}" for number in range(args.adapters)]
        for seed, name in enumerate(names):
            os.mkdir(f"{folder}/{name}")
            make(f"{folder}/{name}", config, args.rank, seed)
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        command = [args.program, "serve", "-m", args.shape, "--load-format", "dummy", "--tokenizer", args.tokenizer,
                   "--port", port, "--max-model-len", "512", "--served-model-name", "base", "--log-level", "warn",
                   "--enable-lora", "--max-loras", str(args.adapters), "--max-lora-rank", str(args.rank),
                   "--lora-modules", *(f"{name}={folder}/{name}" for name in names)]
        command += ["--quantization", args.quantization] if args.quantization else []
        server = subprocess.Popen(command)
        try:
            times = measure(args, port, names, server)
        finally:
            server.terminate()
            server.wait()
    for kind, values in times.items():
        print(f"{kind}: median {statistics.median(values):.1f} ms a token, {[round(v, 1) for v in values]}")
    ratios = [with_adapters / without for without, with_adapters in zip(times["base"], times["adapters"])]
    print(f"ratio: median {statistics.median(ratios):.3f}, {[round(ratio, 3) for ratio in ratios]}")


def measure(args, port, names, server):
    """Returns mean times per output token, a list for the base model and one for the adapters."""
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").close()
            break
        except OSError:
            if server.poll() is not None:
                sys.exit("the server ended")
            time.sleep(0.2)
    command = [args.program, "bench", "serve", "--port", port, "--model", "base", "--tokenizer", args.tokenizer,
               "--num-prompts", str(args.clients), "--max-concurrency", str(args.clients), "--random-input-len", "8",
               "--random-output-len", str(args.output_len), "--output", "json"]
    adapters = ["--lora-assignment", "round-robin", "--lora-modules", *names]
    times = {"base": [], "adapters": []}
    for repetition in range(args.repetitions + 1):
        for kind, flags in (("base", []), ("adapters", adapters)):
            result = json.loads(subprocess.check_output(command + flags, stderr=subprocess.DEVNULL))
            assert result["failed"] == 0, result
            # The first ones load the adapters and warm the machine.
            if repetition:
                times[kind].append(result["mean_tpot_ms"])
    return times


if __name__ == "__main__":
    main()
