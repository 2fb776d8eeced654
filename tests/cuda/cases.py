"""What the engine is run with: shapes of real models, two layers of each, in every format.

Each case is one run of `playhouse bench latency`: a prefill, and decode steps that are recorded as
graphs. One case also has the products on tensor cores that are tried before one is chosen.

There is one request at a time, because several may share a step or not. A short prompt has the
products of as many rows. Decode steps of several requests are in no case.
"""


def latency(
    shape: str, tokens: int, *settings: str, overrides: str = "", autotune: str = "false"
) -> list[str]:
    """The arguments for a prompt. Two layers launch each kernel that all layers launch."""
    layers = '{"num_hidden_layers": 2, "vocab_size": 8192' + overrides + "}"
    return [
        "bench", "latency", "--device", "cuda", "--load-format", "dummy",
        "--model", f"benches/shapes/{shape}", "--tokenizer", "examples/demo-model",
        "--hf-overrides", layers, "--max-model-len", "1024", "--max-num-seqs", "32",
        "--num-gpu-blocks-override", "512", "--no-enable-prefix-caching",
        "--batch-size", "1", "--input-len", str(tokens), "--output-len", "4",
        "--num-iters-warmup", "1", "--num-iters", "1",
        f"--autotune={autotune}", *settings,
    ]  # fmt: skip


BF16 = ("--dtype", "bfloat16")

CASES = {
    "0.6B bf16": latency("qwen3-0.6b", 128, *BF16),
    "0.6B bf16, 8 rows": latency("qwen3-0.6b", 8, *BF16),
    "0.6B bf16, 32 rows": latency("qwen3-0.6b", 32, *BF16),
    "0.6B f16": latency("qwen3-0.6b", 128, "--dtype", "float16"),
    "0.6B int8": latency("qwen3-0.6b", 128, *BF16, "--quantization", "int8"),
    "0.6B int4": latency("qwen3-0.6b", 128, *BF16, "--quantization", "int4"),
    "0.6B int8 keys": latency("qwen3-0.6b", 128, *BF16, "--kv-cache-dtype", "int8"),
    "0.6B sampled": latency("qwen3-0.6b", 8, *BF16, "--temperature", "0.8"),
    "0.6B tuned": latency("qwen3-0.6b", 128, *BF16, autotune="true"),
    "8B bf16, 8 rows": latency("llama-3.1-8b", 8, *BF16),
    "MoE bf16, 8 rows": latency("qwen3-moe", 8, *BF16),
    "MoE int8, 8 rows": latency("qwen3-moe", 8, *BF16, "--quantization", "int8"),
}
