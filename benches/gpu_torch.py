#!/usr/bin/env python3
"""Measures a model's shape in PyTorch: transformers, a static cache, torch.compile, CUDA graphs.

    python benches/gpu_torch.py benches/shapes/qwen3-0.6b [--batches 1,8] [--prefills 512] [--device cpu]

Weights are random, made on the device. Prints a markdown table: milliseconds of a decode step, eager and
compiled (`mode="reduce-overhead"`, which replays CUDA graphs), and of a prefill. Each is the median of several
after a warm-up.
"""

import argparse
import statistics
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, StaticCache


def arguments():
    numbers = lambda text: [int(n) for n in text.split(",") if n]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", help="folder with a config.json")
    parser.add_argument("--batches", type=numbers, default=[1, 8, 32, 128, 256], help="decode: rows of a step")
    parser.add_argument("--prefills", type=numbers, default=[512, 2048, 8192], help="tokens of a prompt")
    parser.add_argument("--context", type=int, default=1024, help="tokens in the cache before a decode step")
    parser.add_argument("--steps", type=int, default=32, help="decode steps that are measured")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


class Clock:
    """Returns milliseconds, including the device's work."""

    def __init__(self, device):
        self.synchronize = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def time(self, work):
        self.synchronize()
        start = time.perf_counter()
        work()
        self.synchronize()
        return 1e3 * (time.perf_counter() - start)


def decode_ms(model, config, batch, context, steps, clock, device, compiled):
    """Returns the median time of a decode step of `batch` rows, each with `context` tokens and a few more."""
    length = context + 2 * steps + 8
    cache = StaticCache(config=config, max_cache_len=length)
    forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True) if compiled else model.forward
    tokens = torch.randint(0, config.vocab_size, (batch, 1), device=device)
    # The context is zeros, because only its length matters.
    position = torch.tensor([context], device=device)

    def step():
        nonlocal tokens
        logits = forward(input_ids=tokens, past_key_values=cache, cache_position=position, use_cache=True).logits
        tokens = logits[:, -1:].argmax(-1).clone()
        position.add_(1)

    for _ in range(8):
        step()
    return statistics.median(clock.time(step) for _ in range(steps))


def prefill_ms(model, config, count, clock, device):
    tokens = torch.randint(0, config.vocab_size, (1, count), device=device)
    # Computes the logits of the last token only, as a server would.
    work = lambda: model(input_ids=tokens, logits_to_keep=1, use_cache=True)  # noqa: E731
    work()
    return statistics.median(clock.time(work) for _ in range(5))


@torch.inference_mode()
def main():
    args = arguments()
    config = AutoConfig.from_pretrained(args.shape)
    clock = Clock(args.device)
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    print(f"\n{args.shape}, PyTorch {torch.__version__}, {sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters")
    print("\n| | eager, ms | compiled, ms |\n|---|---|---|")
    for batch in args.batches:
        times = []
        for compiled in (False, True):
            try:
                times.append(
                    f"{decode_ms(model, config, batch, args.context, args.steps, clock, args.device, compiled):.3f}"
                )
            except Exception as error:  # noqa: BLE001 - a row that fails is reported, and the others go on
                times.append(f"failed: {type(error).__name__}: {str(error).splitlines()[0][:80]}")
            torch.compiler.reset()
        print(f"| decode, batch {batch}, {args.context} of context | {times[0]} | {times[1]} |", flush=True)
    for count in args.prefills:
        print(f"| prefill of {count} | {prefill_ms(model, config, count, clock, args.device):.3f} | |", flush=True)


if __name__ == "__main__":
    main()
