"""A step on paper: what the memory and the tensor cores of a GPU allow, operation by operation.

An operation takes as long as its bytes or its multiplications do, whichever is longer, and a gap
before each launch. Nothing here was measured: a real kernel is slower. The numbers say which
operation limits a step, what share of its time the gaps are, and which rate no kernel can exceed.

Usage: paper.py [--gpu h100 h200] [--shape qwen3-0.6b …] [--batch 1 8 32 256] [--context 1024]
                [--weight-bytes 2] [--prefill 2048] [--gap 1.5] [--operations]

- --weight-bytes: bytes of a weight: 2 (bf16), 1 (int8) or 0.5 (int4, without its scales).
- --gap: microseconds between two launches of a recorded step.
- --operations: also the share of each operation.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

SHAPES = Path(__file__).parent / "shapes"

# Bytes a second, and dense bf16 FLOP a second: NVIDIA's data sheets of the SXM boards.
GPUS = {"a100": (2.039e12, 312e12), "h100": (3.35e12, 989e12), "h200": (4.8e12, 989e12)}

ACTIVATION = 4  # bytes: activations are f32
KEY = 2  # bytes of a number in the KV cache: bf16


@dataclass
class Operation:
    name: str
    launches: int
    bytes: float
    flops: float

    def seconds(self, bandwidth: float, peak: float, gap: float) -> float:
        return max(self.bytes / bandwidth, self.flops / peak) + self.launches * gap


def linear(name: str, rows: int, inputs: int, outputs: int, weight: float) -> Operation:
    moved = inputs * outputs * weight + rows * (inputs + outputs) * ACTIVATION
    return Operation(name, 1, moved, 2 * rows * inputs * outputs)


def rows_of(name: str, rows: int, elements: int) -> Operation:
    """An operation that reads and writes rows, and multiplies little."""
    return Operation(name, 1, rows * elements * ACTIVATION, 0)


def experts(config: dict, rows: int, weight: float) -> list[Operation]:
    """The experts that are read are those that some row has chosen, if each choice is as likely."""
    count, chosen = config["num_experts"], config["num_experts_per_tok"]
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    read = count * (1 - (1 - chosen / count) ** rows)
    pairs = rows * chosen
    moved = read * 3 * hidden * inner * weight + pairs * (hidden + 3 * inner) * ACTIVATION
    # The plan of pairs, two products with the activation between them, and the weighted sum.
    return [
        linear("router", rows, hidden, count, 2),
        rows_of("choice of experts", rows, count + 2 * chosen),
        Operation("experts", 5, moved, 2 * pairs * 3 * hidden * inner),
    ]


def layer(config: dict, rows: int, keys: int, weight: float, context_reads: int) -> list[Operation]:
    """The operations of one layer. `keys` is the sum of the keys that each row sees. The KV cache
    is read `context_reads` times for them, in tokens."""
    hidden, dim = config["hidden_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    operations = [
        rows_of("norm", rows, 3 * hidden),
        linear("q, k, v", rows, hidden, q + 2 * kv, weight),
        rows_of("norms of heads, rotation, KV write", rows, 2 * (q + 2 * kv)),
        Operation("attention", 2, context_reads * 2 * kv * KEY, 4 * keys * q),
        linear("output", rows, q, hidden, weight),
        rows_of("norm", rows, 3 * hidden),
    ]
    if "num_experts" in config:
        return operations + experts(config, rows, weight)
    inner = config["intermediate_size"]
    gate_up = linear("gate, up and SwiGLU", rows, hidden, 2 * inner, weight)
    return [*operations, gate_up, linear("down", rows, inner, hidden, weight)]


def step(config: dict, sequences: int, context: int, new: int, weight: float) -> list[Operation]:
    """A step of `sequences` that compute `new` tokens each and then have `context`."""
    rows = sequences * new
    keys = sequences * (new * context - new * (new - 1) // 2)
    # A tile of 64 queries reads the keys once.
    reads = sequences * context * -(-new // 64)
    layers = layer(config, rows, keys, weight, reads) * config["num_hidden_layers"]
    head = linear("head", sequences, config["hidden_size"], config["vocab_size"], 2)
    return [*layers, rows_of("norm", rows, 2 * config["hidden_size"]), head]


def report(name: str, gpu: str, what: str, tokens: int, operations: list[Operation], options) -> None:
    bandwidth, peak = GPUS[gpu]
    gap = options.gap * 1e-6
    total = sum(operation.seconds(bandwidth, peak, gap) for operation in operations)
    gaps = sum(operation.launches for operation in operations) * gap
    shares: dict[str, float] = {}
    for operation in operations:
        share = operation.seconds(bandwidth, peak, gap) / total
        shares[operation.name] = shares.get(operation.name, 0) + share
    first = max(shares, key=shares.get)
    print(
        f"| {name} | {gpu} | {what} | {total * 1e3:.2f} | {tokens / total:,.0f} "
        f"| {gaps / total:.0%} | {first}, {shares[first]:.0%} |"
    )
    if options.operations:
        for operation, share in sorted(shares.items(), key=lambda item: -item[1]):
            print(f"    {share:6.1%}  {operation}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", nargs="+", choices=list(GPUS), default=["h100", "h200"])
    parser.add_argument("--shape", nargs="+", default=["qwen3-0.6b", "llama-3.1-8b", "qwen3-moe"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32, 256])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--prefill", nargs="+", type=int, default=[2048])
    parser.add_argument("--weight-bytes", type=float, default=2)
    parser.add_argument("--gap", type=float, default=1.5)
    parser.add_argument("--operations", action="store_true")
    options = parser.parse_args()
    print("| shape | GPU | step | at least, ms | at most, tokens/s | gaps | most of it |")
    print("|---|---|---|---|---|---|---|")
    for shape in options.shape:
        config = json.loads((SHAPES / shape / "config.json").read_text())
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
        for gpu in options.gpu:
            for batch in options.batch:
                decode = step(config, batch, options.context, 1, options.weight_bytes)
                report(shape, gpu, f"decode × {batch}", batch, decode, options)
            for tokens in options.prefill:
                prefill = step(config, 1, tokens, tokens, options.weight_bytes)
                report(shape, gpu, f"prefill of {tokens}", tokens, prefill, options)


if __name__ == "__main__":
    main()
