"""A step on paper: what the memory and the cores of a GPU allow, operation by operation.

An operation takes as long as its bytes or its multiplications do, whichever is longer, and a gap
before each launch. Its multiplications take the rate of the tensor cores, or of the other cores if
its kernel has no instruction of tensor cores, which the tables of `tests/cuda` say. Nothing was
measured: a real kernel is slower. The numbers say which operation limits a step, what share of its
time the gaps are, and which rate no kernel can exceed.

Usage: paper.py [--gpu h100 h200] [--shape qwen3-0.6b …] [--batch 1 8 32 256] [--context 1024]
                [--weight-bytes 2] [--prefill 2048] [--gap 1.5] [--compiler llvm] [--operations]

- --compiler: whose kernels: llvm or nvrtc.
- --weight-bytes: bytes of a weight: 2 (bf16), 1 (int8) or 0.5 (int4, without its scales).
- --gap: microseconds between two launches of a recorded step.
- --operations: also the share of each operation.
"""

import argparse
import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

SHAPES = Path(__file__).parent / "shapes"
TABLES = Path(__file__).parent.parent / "tests" / "cuda"


@dataclass
class Gpu:
    """The rates of NVIDIA's data sheets of the SXM boards: bytes a second, and FLOP a second of
    dense bf16 on tensor cores and of f32 on the others."""

    bandwidth: float
    tensor_cores: float
    cores: float
    architecture: str


class Table:
    """The kernels of one architecture and one compiler."""

    def __init__(self, architecture: str, compiler: str):
        path = TABLES / f"{architecture}.{compiler}.tsv"
        if not path.exists():
            sys.exit(f"{path} is missing: tests/cuda/gate.py --compiler {compiler} --write")
        with path.open() as file:
            self.rows = list(csv.DictReader(file, delimiter="\t"))

    def named(self, kernels: tuple[str, ...]) -> list[dict[str, str]]:
        """The rows of the first of these kernels that is there."""
        for kernel in kernels:
            if found := [row for row in self.rows if row["kernel"].startswith(kernel)]:
                return found
        return []

    def has_tensor_cores(self, kernels: tuple[str, ...]) -> bool:
        return any(int(row["tensor_cores"]) for row in self.named(kernels))

    def occupancy(self, kernels: tuple[str, ...]) -> str:
        """The least and the largest occupancy of all forms of a kernel."""
        found = [int(row["occupancy"]) for row in self.named(kernels)]
        return f"{min(found)} to {max(found)} %" if found else ""


GPUS = {
    "a100": Gpu(2.039e12, 312e12, 19.5e12, "sm_80"),
    "h100": Gpu(3.35e12, 989e12, 67e12, "sm_90"),
    "h200": Gpu(4.8e12, 989e12, 67e12, "sm_90"),
}

ACTIVATION = 4  # bytes: activations are f32
HALF = 2  # bytes of a number on tensor cores
KEY = 2  # bytes of a number in the KV cache: bf16
# More rows than this take tensor cores: SKINNY_ROWS_MAX of `kernels/src/linear/cube`.
FEW_ROWS = 32
# More rows than this need the weight in another layout: PANELS_ROWS_MAX of its `dense`.
PANELS_ROWS = 256
# Cubes with which spans of keys need none of their own, and keys of a span: CUBES_ENOUGH and SPAN
# of `kernels/src/paged_attention/cube`.
CUBES_ENOUGH, SPAN = 1024, 128


@dataclass
class Operation:
    name: str
    launches: int
    bytes: float
    flops: float
    kernels: tuple[str, ...] = ()

    def seconds(self, gpu: Gpu, table: Table, gap: float) -> float:
        peak = gpu.tensor_cores if table.has_tensor_cores(self.kernels) else gpu.cores
        return max(self.bytes / gpu.bandwidth, self.flops / peak) + self.launches * gap


def linear(name: str, rows: int, inputs: int, outputs: int, weight: float) -> Operation:
    """A product. Many rows are rounded to 16 bits first. Very many, and codes, need the weight laid
    out anew: it is read, written with 16 bits, and read again."""
    moved = inputs * outputs * weight + rows * (inputs + outputs) * ACTIVATION
    flops = 2 * rows * inputs * outputs
    if rows <= FEW_ROWS:
        return Operation(name, 1, moved, flops, ("skinny_kernel",))
    is_laid_out = rows > PANELS_ROWS or weight != HALF
    moved += rows * inputs * 2 * HALF + (inputs * outputs * 2 * HALF if is_laid_out else 0)
    return Operation(name, 3 if is_laid_out else 2, moved, flops, ("matmul_entry",))


def rows_of(name: str, rows: int, elements: int, *kernels: str) -> Operation:
    """An operation that reads and writes rows, and multiplies little."""
    return Operation(name, 1, rows * elements * ACTIVATION, 0, kernels)


def gate_up(rows: int, hidden: int, inner: int, weight: float) -> list[Operation]:
    """The product of gate and up. The product of few rows applies the gate, too."""
    product = linear("gate, up and SwiGLU", rows, hidden, 2 * inner, weight)
    if rows > FEW_ROWS:
        return [product, rows_of("gate, up and SwiGLU", rows, 3 * inner, "gated_kernel")]
    product.bytes -= rows * inner * ACTIVATION
    return [product]


def experts(config: dict, rows: int, weight: float) -> list[Operation]:
    """The experts that are read are those that some row has chosen, if each choice is as likely."""
    count, chosen = config["num_experts"], config["num_experts_per_tok"]
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    read = count * (1 - (1 - chosen / count) ** rows)
    pairs = rows * chosen
    is_fused = -(-pairs // count) <= FEW_ROWS
    # Two products and the weighted sum, between which rows are written and read.
    moved = read * 3 * hidden * inner * weight + pairs * (3 * hidden + 2 * inner) * ACTIVATION
    # The gate has rows of its own unless the product applies it.
    moved += 0 if is_fused else pairs * 4 * inner * ACTIVATION
    # The plan of pairs, the products, the sum, and the gate.
    launches = 4 if is_fused else 5
    flops = 2 * pairs * 3 * hidden * inner
    return [
        linear("router", rows, hidden, count, 2),
        rows_of("choice of experts", rows, count + 2 * chosen, "route_kernel"),
        Operation("experts", launches, moved, flops, ("grouped_kernel",)),
    ]


def attention(config: dict, sequences: int, keys: int, reads: int) -> Operation:
    """Attention to `keys` keys, the sum over all rows. The cache is read `reads` times, in
    tokens."""
    dim, kv_heads = config["head_dim"], config["num_key_value_heads"]
    moved = reads * 2 * kv_heads * dim * KEY
    flops = 4 * keys * config["num_attention_heads"] * dim
    if keys > reads:
        # Keys of long prompts are gathered, and queries rounded, for a kernel on tensor cores.
        return Operation("attention", 3, moved, flops, ("attention", "spans_kernel"))
    is_split = sequences * kv_heads < CUBES_ENOUGH and keys > sequences * SPAN
    return Operation("attention", 2 if is_split else 1, moved, flops, ("spans_kernel",))


def layer(
    config: dict, sequences: int, rows: int, keys: int, weight: float, reads: int
) -> list[Operation]:
    """The operations of one layer: see `attention` for `keys` and `reads`."""
    hidden, dim = config["hidden_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    written = 2 * (q + 2 * kv)
    operations = [
        rows_of("norm", rows, 4 * hidden, "add_norm_kernel"),
        linear("q, k, v", rows, hidden, q + 2 * kv, weight),
        rows_of("norms of heads, rotation, KV write", rows, written, "qkv_kernel"),
        attention(config, sequences, keys, reads),
        linear("output", rows, q, hidden, weight),
        rows_of("norm", rows, 4 * hidden, "add_norm_kernel"),
    ]
    if "num_experts" in config:
        return operations + experts(config, rows, weight)
    inner = config["intermediate_size"]
    down = linear("down", rows, inner, hidden, weight)
    return [*operations, *gate_up(rows, hidden, inner, weight), down]


def step(config: dict, sequences: int, context: int, new: int, weight: float) -> list[Operation]:
    """A step of `sequences` that compute `new` tokens each and then have `context`."""
    rows = sequences * new
    keys = sequences * (new * context - new * (new - 1) // 2)
    # A tile of 64 queries reads the keys once.
    reads = sequences * context * -(-new // 64)
    layers = layer(config, sequences, rows, keys, weight, reads) * config["num_hidden_layers"]
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    last_rows = rows_of("last rows", sequences, 2 * hidden, "select_rows_kernel")
    return [
        rows_of("embedding", rows, 2 * hidden, "rows_kernel"),
        *layers,
        rows_of("norm", rows, 4 * hidden, "add_norm_kernel"),
        *([last_rows] if new > 1 else []),
        linear("head", sequences, hidden, vocab, 2),
        rows_of("draw", sequences, vocab, "pick_kernel"),
    ]


def aim(shape: str, sequences: int, context: int, new: int, gpu: Gpu, step: list) -> float | None:
    """The seconds that a step may take by the aims of `benches/gpu.sh`."""
    memory = sum(operation.bytes for operation in step) / gpu.bandwidth
    if new > 1:
        return sum(operation.flops for operation in step) / gpu.tensor_cores / 0.45
    if (shape, sequences) == ("qwen3-0.6b", 1):
        return 1.2e-3
    if (shape, sequences) == ("llama-3.1-8b", 1):
        return memory / 0.8
    return memory / 0.6 if (sequences, context) == (256, 1024) else None


def report(
    shape: str, config: dict, name: str, sizes: tuple[int, int, int], options: argparse.Namespace
) -> None:
    sequences, _, new = sizes
    operations = step(config, *sizes, options.weight_bytes)
    gpu, gap = GPUS[name], options.gap * 1e-6
    table = Table(gpu.architecture, options.compiler)
    total = sum(operation.seconds(gpu, table, gap) for operation in operations)
    launches = sum(operation.launches for operation in operations)
    shares: dict[str, float] = {}
    for operation in operations:
        share = operation.seconds(gpu, table, gap) / total
        shares[operation.name] = shares.get(operation.name, 0) + share
    first = max(shares, key=shares.get)
    kernels = next(operation.kernels for operation in operations if operation.name == first)
    tokens, may = sequences * new, aim(shape, *sizes, gpu, operations)
    row = [
        shape,
        name,
        f"decode × {sequences}" if new == 1 else f"prefill of {new}",
        f"{sum(operation.bytes for operation in operations) / 1e9:.2f}",
        f"{sum(operation.flops for operation in operations) / 1e12:.3f}",
        str(launches),
        f"{total * 1e3:.2f}",
        f"{tokens / total:,.0f}",
        f"{tokens / may:,.0f}" if may else "",
        f"{launches * gap / total:.0%}",
        f"{first}, {shares[first]:.0%}",
        table.occupancy(kernels),
    ]
    print(f"| {' | '.join(row)} |")
    if options.operations:
        for operation, share in sorted(shares.items(), key=lambda item: -item[1]):
            print(f"    {share:6.1%}  {operation}")


COLUMNS = [
    "shape", "GPU", "step", "GB", "TFLOP", "launches", "at least, ms", "at most, tokens/s",
    "aim, tokens/s", "gaps", "most of it", "its occupancy",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", nargs="+", choices=list(GPUS), default=["h100", "h200"])
    parser.add_argument("--compiler", choices=["llvm", "nvrtc"], default="llvm")
    parser.add_argument("--shape", nargs="+", default=["qwen3-0.6b", "llama-3.1-8b", "qwen3-moe"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32, 256])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--prefill", nargs="+", type=int, default=[2048])
    parser.add_argument("--weight-bytes", type=float, default=2)
    parser.add_argument("--gap", type=float, default=1.5)
    parser.add_argument("--operations", action="store_true")
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for shape in options.shape:
        config = json.loads((SHAPES / shape / "config.json").read_text())
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
        for gpu in options.gpu:
            for batch in options.batch:
                report(shape, config, gpu, (batch, options.context, 1), options)
            for tokens in options.prefill:
                report(shape, config, gpu, (1, tokens, tokens), options)


if __name__ == "__main__":
    main()
