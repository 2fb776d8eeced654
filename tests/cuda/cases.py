"""What the engine is run with, so that it launches every kernel: shapes of real models in every
format, and families of models that have kernels of their own.

Most cases are a run of `playhouse bench latency`: prefills, and decode steps that are recorded as
graphs. There is one request at a time, because several may share a step or not. A short prompt has
the products of as many rows. Decode steps of several requests are in no case.

The families are those of `tests/fidelity`, with the widths of small real models where a width
decides on a kernel's form, and few layers and experts.
"""

import base64
import json
import struct
import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """The arguments of the program. `requests` is a file of requests for `run-batch`."""

    arguments: list[str]
    requests: tuple[dict, ...] = ()
    # Whether a step must be recorded and replayed.
    is_recorded: bool = False
    # Whether it runs for each architecture. The others run for the first, sm_80, and their PTX is
    # compiled for each, which later architectures take.
    is_everywhere: bool = False


# A tokenizer of two tokens, which fits every vocabulary.
TOKENIZER = "tests/lora/tokenizer.json"
BF16 = ("--dtype", "bfloat16")
# Random weights, of which the shapes alone count. Most of a run's time makes them.
DUMMY = ("--load-format", "dummy")
VOCAB = 2048
SMALL = ["--max-num-seqs", "32", "--num-gpu-blocks-override", "512"]


def latency(
    model: str,
    tokens: str,
    *settings: str,
    overrides: dict | None = None,
    context: int = 1024,
    autotune: bool = False,
    is_recorded: bool = False,
    is_everywhere: bool = False,
) -> Case:
    """Prompts of so many tokens, one after the other, in one engine."""
    arguments = [
        "bench", "latency", "--device", "cuda", "--model", model, "--tokenizer", TOKENIZER,
        "--max-model-len", str(context), *SMALL, "--no-enable-prefix-caching",
        "--batch-size", "1", "--input-len", tokens, "--output-len", "4",
        "--num-iters-warmup", "1", "--num-iters", "1",
        f"--autotune={str(autotune).lower()}", *settings,
    ]  # fmt: skip
    if overrides:
        arguments += ["--hf-overrides", json.dumps(overrides)]
    return Case(arguments, is_recorded=is_recorded, is_everywhere=is_everywhere)


def shape(name: str, tokens: str, *settings: str, layers: int = 1, **more) -> Case:
    """A model of `benches/shapes`. All layers launch the same kernels, but for the first norm."""
    overrides = {"num_hidden_layers": layers, "vocab_size": VOCAB, **more.pop("overrides", {})}
    model = f"benches/shapes/{name}"
    settings = (*DUMMY, *settings)
    return latency(model, tokens, *settings, overrides=overrides, is_recorded=True, **more)


def family(name: str, **overrides) -> Case:
    """A model of `tests/fidelity/models` with some of its sizes changed, in bfloat16."""
    overrides = {"vocab_size": VOCAB, **overrides}
    model, settings = f"tests/fidelity/models/{name}", (*DUMMY, *BF16)
    return latency(model, "8,128", *settings, overrides=overrides, context=256)


def tiny(folder: str, *settings: str, tokens: str = "8,128", context: int = 256) -> Case:
    """A model with its own small weights."""
    return latency(f"tests/{folder}", tokens, *settings, context=context)


def pooling(model: str, *settings: str) -> Case:
    """Texts that are pooled."""
    return Case([
        "bench", "pooling", "--device", "cuda", "--model", model, *BF16,
        "--num-prompts", "1", "--input-len", "128", "--max-num-seqs", "4", *settings,
    ])  # fmt: skip


def batch(model: str, requests: list[tuple[str, dict]], *settings: str) -> Case:
    """Requests, one after the other. Each is a route and a body."""
    arguments = [
        "run-batch", "--device", "cuda", "--model", model, "--max-concurrency", "1",
        "--autotune=false", "--max-model-len", "256", *SMALL, *settings,
    ]  # fmt: skip
    lines = [
        {"custom_id": str(number), "method": "POST", "url": url, "body": body}
        for number, (url, body) in enumerate(requests)
    ]
    return Case(arguments, tuple(lines))


def completion(**body) -> tuple[str, dict]:
    return "/v1/completions", {"prompt": [0, 1, 0, 1], "max_tokens": 3, "ignore_eos": True, **body}


def picture(side: int) -> str:
    """A grey square as the URL of a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        sum_of = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum_of)

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x80" * 3 * side) * side)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


QUESTION = [
    {"type": "image_url", "image_url": {"url": picture(64)}},
    {"type": "text", "text": "What is it?"},
]
HEADS = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64}
LATENT = {
    "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "q_lora_rank": 768,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "qk_head_dim": 192,
    "v_head_dim": 128, "n_routed_experts": 8, "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
}  # fmt: skip
FACTORS = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 4096,
    "long_factor": [1.0] * 64, "short_factor": [1.0] * 64, "long_mscale": 1.25,
    "short_mscale": 1.25,
}  # fmt: skip
LORA = ("--enable-lora", "--max-loras", "2")
MIXTURE = "tests/fidelity/models/qwen3_moe"
EXPERT_ADAPTER = "tests/fidelity/adapters/qwen3_moe/d"
EAGLE = {"method": "eagle", "model": "examples/demo-model/eagle", "num_speculative_tokens": 3}

CASES = {
    # The largest come first, so that no core is idle at the end. 7168 inputs have the blocks that
    # the 14336 of the real model have.
    "8B bf16": shape(
        "llama-3.1-8b", "8,128", *BF16, overrides={"intermediate_size": 7168}, is_everywhere=True
    ),
    "MoE bf16": shape("qwen3-moe", "8", *BF16, overrides={"num_experts": 64}),
    "MoE bf16, 16 experts": shape(
        "qwen3-moe", "8,128", *BF16, overrides={"num_experts": 16}, is_everywhere=True
    ),
    "MoE int8": shape(
        "qwen3-moe", "8", "--quantization", "int8", *BF16, overrides={"num_experts": 32}
    ),
    "MoE int4": shape(
        "qwen3-moe", "8", "--quantization", "int4", *BF16, overrides={"num_experts": 32}
    ),
    # An output layer with as many panels as cubes are enough has the cut of all larger ones.
    "0.6B bf16": shape(
        "qwen3-0.6b", "8,32,128", *BF16, layers=2, overrides={"vocab_size": 32768},
        is_everywhere=True,
    ),
    "0.6B f16": shape("qwen3-0.6b", "8,128", "--dtype", "float16", is_everywhere=True),
    "0.6B f32": shape("qwen3-0.6b", "8,128", "--dtype", "float32"),
    "0.6B int8": shape("qwen3-0.6b", "8,128", *BF16, "--quantization", "int8"),
    "0.6B int4": shape("qwen3-0.6b", "8,128", *BF16, "--quantization", "int4"),
    "0.6B int8 keys": shape("qwen3-0.6b", "8,128", *BF16, "--kv-cache-dtype", "int8"),
    "0.6B tuned": shape("qwen3-0.6b", "128", *BF16, autotune=True, is_everywhere=True),
    "0.6B deterministic": shape("qwen3-0.6b", "8,128", *BF16, "--deterministic"),
    # Attention of other forms, and norms with biases.
    "GPT-2": family("gpt2", n_embd=768, n_head=12, n_positions=1024),
    "Bloom": family("bloom", hidden_size=1024, n_head=16),
    "Gemma 2": family(
        "gemma2", hidden_size=1024, intermediate_size=2048, num_attention_heads=8,
        num_key_value_heads=4, head_dim=256, query_pre_attn_scalar=256, sliding_window=512,
        num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"],
    ),
    "Gemma 3n": tiny("fidelity/models/gemma3n", *BF16),
    "Cohere 2": family(
        "cohere2", **HEADS, intermediate_size=2048, sliding_window=512, num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "DeepSeek V2": family("deepseek_v2-groups", **LATENT),
    "DeepSeek V3": family("deepseek_v3", **LATENT),
    # Routers and experts of other forms.
    "gpt-oss": family(
        "gpt_oss", **HEADS, intermediate_size=1024, num_local_experts=8, num_experts_per_tok=4,
        sliding_window=128, num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "Llama 4": family(
        "llama4", **HEADS, intermediate_size=1024, intermediate_size_mlp=2048,
        num_local_experts=8, num_hidden_layers=2, moe_layers=[1], no_rope_layers=[1, 0],
        layer_types=["chunked_attention", "full_attention"], attention_chunk_size=512,
    ),
    "Granite MoE": family(
        "granite_moe", hidden_size=1024, num_attention_heads=16, num_key_value_heads=4,
        intermediate_size=512, num_local_experts=8,
    ),
    "Phi-3.5 MoE": family(
        "phimoe", hidden_size=1024, num_attention_heads=8, num_key_value_heads=2, head_dim=128,
        intermediate_size=512, num_local_experts=8, rope_parameters=FACTORS,
        original_max_position_embeddings=4096,
    ),
    "Nemotron-H": tiny("fidelity/models/nemotron_h-experts", *BF16),
    "Gemma 4": family(
        "gemma4-experts", hidden_size=1024, intermediate_size=2048, num_attention_heads=8,
        num_key_value_heads=4, num_global_key_value_heads=2, head_dim=128, global_head_dim=256,
        moe_intermediate_size=512, num_experts=8, sliding_window=128, num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "Step 3.5": family(
        "step3p5", hidden_size=1024, intermediate_size=2048, num_attention_heads=8,
        num_attention_groups=4, head_dim=128, sliding_window=128, num_hidden_layers=2,
        attention_other_setting={
            "attention_type": "sliding_attention", "num_attention_heads": 16,
            "num_attention_groups": 4, "head_dim": 128,
        },
        moe_num_experts=8, moe_intermediate_size=512, share_expert_dim=512,
        swiglu_limits=[0.0, 7.0],
    ),
    # Layers with states.
    "Mamba": family(
        "mamba", hidden_size=1024, intermediate_size=2048, state_size=16, time_step_rank=64
    ),
    "Mamba 2": shape("mamba2", "8,128", *BF16),
    "Jamba": tiny("fidelity/models/jamba", *BF16),
    "LFM2": family(
        "lfm2", hidden_size=1024, intermediate_size=2048, num_attention_heads=16,
        num_key_value_heads=8,
    ),
    "MiniMax": family(
        "minimax", hidden_size=1024, intermediate_size=512, num_attention_heads=8,
        num_key_value_heads=2, head_dim=128, num_hidden_layers=2,
        layer_types=["full_attention", "linear_attention"],
    ),
    "Qwen3-Next": family(
        "qwen3_next", hidden_size=1024, intermediate_size=2048, num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"], num_attention_heads=8,
        num_key_value_heads=2, head_dim=256, linear_key_head_dim=128, linear_value_head_dim=128,
        linear_num_key_heads=8, linear_num_value_heads=16, num_experts=8, num_experts_per_tok=4,
        moe_intermediate_size=512, shared_expert_intermediate_size=512,
    ),
    "RecurrentGemma": family(
        "recurrent_gemma", hidden_size=1024, lru_width=1024, intermediate_size=2048,
        num_attention_heads=8, num_key_value_heads=1, head_dim=128, attention_window_size=512,
    ),
    # Weights whose codes have another form, or columns in an order of their own.
    "GPTQ": tiny("formats/fixtures/gptq"),
    "AWQ": tiny("formats/fixtures/awq"),
    "bitsandbytes NF4": tiny("formats/fixtures/bitsandbytes-nf4", tokens="8,48", context=64),
    "float8": tiny("fidelity/models/deepseek_v3-float8"),
    "NVFP4": tiny("formats/fixtures/modelopt-nvfp4"),
    # Encoders, pictures, adapters, guesses, and rows that are drawn in every way.
    "BERT": pooling(
        "benches/shapes/bert-base", *DUMMY, "--tokenizer", TOKENIZER,
        "--hf-overrides", json.dumps({"num_hidden_layers": 2, "vocab_size": VOCAB}),
    ),
    "BERT, scores": pooling("tests/fidelity/encoders/bert-score"),
    "ModernBERT": pooling("tests/fidelity/encoders/modernbert-mean"),
    "Nomic, experts": pooling("tests/fidelity/encoders/nomic-moe"),
    "Qwen3, both sides": pooling("tests/fidelity/encoders/qwen3-both-sides"),
    "picture": batch(
        "examples/demo-model/vision",
        [("/v1/chat/completions", {
            "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 3,
        })],
    ),
    "adapter": batch(
        "examples/demo-model", [completion(model="pirate"), completion()],
        *LORA, "--lora-modules", "pirate=examples/demo-model/pirate",
    ),
    "adapter of experts": batch(
        MIXTURE, [completion(model="d"), completion()],
        "--tokenizer", TOKENIZER, *LORA, "--lora-modules", f"d={EXPERT_ADAPTER}",
    ),
    "adapter with a vocabulary": batch(
        "tests/fidelity/models/llama-tied", [completion(model="b"), completion()],
        "--tokenizer", TOKENIZER, *LORA,
        "--lora-modules", "b=tests/fidelity/adapters/llama-tied/b",
    ),
    "EAGLE": latency(
        "examples/demo-model", "8,128", "--speculative-config", json.dumps(EAGLE)
    ),
    "draws": batch(
        "examples/demo-model",
        [
            completion(temperature=0.8, top_k=20),
            completion(temperature=0.8, top_p=0.9, min_p=0.05),
            completion(temperature=0, logprobs=5, presence_penalty=0.5),
            completion(temperature=0.8, logit_bias={"5": 1.0}, repetition_penalty=1.1),
        ],
    ),
    "operations": Case([
        "bench", "kernels", "--device", "cuda", "--seconds", "0.001", "--num-tokens", "8",
        "--op", "norm,qk_norm_rope,kv_write,image_encoder",
    ]),
}  # fmt: skip
