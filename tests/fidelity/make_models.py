"""Builds the models of the fidelity tests and records Hugging Face transformers' answers.

    python tests/fidelity/make_models.py            # all of them, into tests/fidelity/models
    python tests/fidelity/make_models.py llama-yarn # some of them

Each model is a complete model folder with seeded random weights, plus `golden.json`: prompts as
token ids, the float32 log-probabilities of transformers for every position, and greedy tokens.
Norms and biases differ from their defaults and the weights are large, so that an ignored norm, bias
or rope setting moves the answer by far more than the tolerance. The script checks its results:
float32 must agree with float64, and no greedy choice may be a near tie.

Needs: torch, transformers >= 5, tokenizers, safetensors. Nothing is downloaded.
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from corpus import sentences, train_tokenizer

HERE = Path(__file__).parent
VOCAB_SIZE = 512
TOP = 6  # log-probabilities kept at every position
GREEDY_TOKENS = 24
NEAR_TIE = 0.005  # smallest gap between the best two logits on a greedy path
FLOAT32_NOISE = 2e-5  # largest gap between float32 and float64 log-probabilities

TINY = dict(
    vocab_size=VOCAB_SIZE,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    initializer_range=0.15,
    bos_token_id=None,
    eos_token_id=2,
    pad_token_id=0,
)


def rope(rope_type, theta=10_000.0, **rest):
    return dict(rope_parameters=dict(rope_type=rope_type, rope_theta=theta, **rest))


# Each model: the config, how it is stored (`dtype`, `form` of config.json, `max_shard_size`), and
# the runs that are recorded: (max_model_len, prompt lengths). A None length is the model's own.
# If frequencies depend on the length (dynamic, longrope), each run stays on one side of the border.
# At the border, Hugging Face changes the frequencies under keys that are already cached.
ALL_LENGTHS = [(None, [1, 7, 34, 150])]
MODELS = {
    "llama-tied": dict(
        # Heads of 12 elements: no multiple of any vector width.
        config=LlamaConfig(
            **TINY | dict(hidden_size=48, num_key_value_heads=4), tie_word_embeddings=True
        ),
        dtype="float32",
    ),
    "llama-gqa-f16": dict(
        config=LlamaConfig(**TINY, rms_norm_eps=1e-5, **rope("default", 500_000.0)),
        dtype="float16",
        form=4,
    ),
    "llama-biases-sharded": dict(
        config=LlamaConfig(
            **TINY | dict(num_key_value_heads=1), attention_bias=True, mlp_bias=True
        ),
        dtype="bfloat16",
        max_shard_size="100KB",
    ),
    "llama-llama3": dict(
        config=LlamaConfig(
            **TINY,
            **rope(
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        ),
        form=4,
    ),
    "llama-linear": dict(
        config=LlamaConfig(**TINY | dict(max_position_embeddings=64), **rope("linear", factor=4.0)),
        form=4,
    ),
    "llama-yarn": dict(
        config=LlamaConfig(
            **TINY | dict(max_position_embeddings=256, head_dim=32, num_key_value_heads=1),
            **rope("yarn", factor=4.0, original_max_position_embeddings=64),
        ),
    ),
    "llama-dynamic": dict(
        config=LlamaConfig(
            **TINY | dict(max_position_embeddings=64), **rope("dynamic", factor=4.0)
        ),
        form=4,
        runs=[(64, [1, 7, 34]), (None, [70, 150])],
    ),
    "llama-longrope": dict(
        config=LlamaConfig(
            **TINY | dict(max_position_embeddings=256),
            **rope(
                "longrope",
                short_factor=[1.0 + 0.05 * i for i in range(8)],
                long_factor=[1.0 + 0.75 * i for i in range(8)],
                original_max_position_embeddings=64,
            ),
        ),
        runs=[(64, [1, 7, 34]), (None, [70, 150])],
    ),
    "mistral-window": dict(
        config=MistralConfig(
            **TINY | dict(num_key_value_heads=1, head_dim=32),
            sliding_window=24,
            **rope("default", 1_000_000.0),
        ),
        form=4,
    ),
    "qwen2-tied": dict(
        config=Qwen2Config(
            **TINY,
            tie_word_embeddings=True,
            use_sliding_window=False,
            sliding_window=16,
            max_window_layers=1,
            **rope("default", 1_000_000.0),
        ),
        form=4,
    ),
    "qwen2-window-mix": dict(
        config=Qwen2Config(
            **TINY | dict(num_hidden_layers=3, num_key_value_heads=1),
            use_sliding_window=True,
            sliding_window=20,
            max_window_layers=1,
        ),
        form=4,
    ),
    "qwen3-layer-types": dict(
        config=Qwen3Config(
            **TINY | dict(num_hidden_layers=3),
            head_dim=32,
            tie_word_embeddings=True,
            use_sliding_window=True,
            sliding_window=20,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            **rope("default", 1_000_000.0),
        ),
    ),
}


def randomize(model, seed):
    """Sets random weights. Norms and biases do not stay at one and zero, so they have an effect."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.uniform_(0.5, 1.5, generator=generator)
        elif name.endswith("bias"):
            parameter.data.normal_(0.0, 0.3, generator=generator)
        elif "embed_tokens" in name or "lm_head" in name:
            parameter.data.normal_(0.0, 0.35, generator=generator)
        else:
            parameter.data.normal_(0.0, model.config.initializer_range, generator=generator)


def transformers_4_form(config):
    """Returns transformers 4's config.json: `rope_theta`, `rope_scaling`, `torch_dtype`."""
    parameters = dict(config.pop("rope_parameters"))
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    config["transformers_version"] = "4.51.0"
    return config


def save(model, tokenizer, spec, folder):
    dtype = getattr(torch, spec.get("dtype", "bfloat16"))
    model.to(dtype).save_pretrained(folder, max_shard_size=spec.get("max_shard_size", "1GB"))
    tokenizer.save_pretrained(folder)
    if spec.get("form") == 4:
        path = folder / "config.json"
        config = transformers_4_form(json.loads(path.read_text()))
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def log_probs(model, token_ids):
    """Returns log-probabilities [len(token_ids), vocab], computed without a cache."""
    with torch.no_grad():
        return model(torch.tensor([token_ids]), use_cache=False).logits[0].log_softmax(-1)


def settle_frequencies(model, max_model_len):
    """Runs a full context once, so that frequencies are those of a server with that context.

    It has an effect only on dynamic NTK, whose frequencies grow with the longest sequence so far.
    """
    log_probs(model, [0] * max_model_len)


def greedy(model, token_ids):
    tokens, rows = list(token_ids), []
    for _ in range(GREEDY_TOKENS):
        row = log_probs(model, tokens)[-1]
        best = row.topk(2).values
        if best[0] - best[1] < NEAR_TIE:
            raise PoorTest("a greedy choice is a near tie")
        rows.append(row)
        tokens.append(int(row.argmax()))
    generated = tokens[len(token_ids) :]
    if model.config.eos_token_id in generated:
        raise PoorTest("a server would stop at the end-of-sequence token")
    return generated, [round(float(row.max()), 5) for row in rows]


class PoorTest(Exception):
    """This seed makes a poor test. The script tries the next one."""


def golden_prompt(model, double, text_ids):
    rows = log_probs(model, text_ids)
    noise = (rows - log_probs(double, text_ids).float()).abs().max()
    if noise > FLOAT32_NOISE:
        raise PoorTest(f"float32 differs from float64 by {noise}")
    top = rows.topk(TOP, dim=-1)
    tokens, token_log_probs = greedy(model, text_ids)
    return dict(
        prompt_token_ids=text_ids,
        top_token_ids=top.indices.tolist(),
        top_log_probs=[[round(x, 5) for x in row] for row in top.values.tolist()],
        last_log_probs=[round(x, 5) for x in rows[-1].tolist()],
        greedy_token_ids=tokens,
        greedy_log_probs=token_log_probs,
    )


def golden(folder, spec, prompt_ids):
    load = lambda dtype: AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager"
    ).eval()
    runs = []
    for max_model_len, lengths in spec.get("runs", ALL_LENGTHS):
        model, double = load(torch.float32), load(torch.float64)
        for each in (model, double):
            settle_frequencies(each, max_model_len or 256)
        prompts = [golden_prompt(model, double, prompt_ids[:length]) for length in lengths]
        runs.append(dict(max_model_len=max_model_len, prompts=prompts))
    return dict(transformers=transformers.__version__, torch=torch.__version__, runs=runs)


def build(name, spec, tokenizer):
    folder = HERE / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(sentences(seed=7, count=40))
    prompt_ids = tokenizer(text)["input_ids"][:150]
    for seed in range(100):
        for old in folder.iterdir():
            old.unlink()
        model = AutoModelForCausalLM.from_config(spec["config"])
        randomize(model, seed)
        save(model, tokenizer, spec, folder)
        try:
            answer = golden(folder, spec, prompt_ids)
        except PoorTest as reason:
            print(f"{name}: seed {seed} skipped, {reason}")
            continue
        (folder / "golden.json").write_text(json.dumps(answer, separators=(",", ":")) + "\n")
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: seed {seed}, {size / 1000:.0f} kB, {len(list(folder.iterdir()))} files")
        return
    raise SystemExit(f"{name}: no seed makes a good test")


# Rope settings whose frequencies are recorded alone, in more variants than there are models.
ROPE_CASES = [
    dict(rope_type="default"),
    dict(rope_type="linear", factor=2.5),
    dict(rope_type="dynamic", factor=3.0),
    dict(rope_type="dynamic", factor=3.0, seq_len=1500),
    dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=256),
    dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=256, truncate=False),
    dict(rope_type="yarn", factor=4.0, attention_factor=0.75, beta_fast=16.0, beta_slow=2.0),
    dict(
        rope_type="yarn",
        factor=16.0,
        mscale=1.0,
        mscale_all_dim=0.5,
        original_max_position_embeddings=128,
    ),
    dict(
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=256,
    ),
    dict(
        rope_type="longrope",
        short_factor=[1.0 + 0.01 * i for i in range(32)],
        long_factor=[1.0 + 0.5 * i for i in range(32)],
        original_max_position_embeddings=256,
    ),
    dict(
        rope_type="longrope",
        short_factor=[1.0] * 32,
        long_factor=[1.0 + 0.5 * i for i in range(32)],
        original_max_position_embeddings=256,
        factor=6.0,
        seq_len=257,
    ),
    dict(
        rope_type="longrope",
        short_factor=[1.0] * 32,
        long_factor=[2.0] * 32,
        original_max_position_embeddings=256,
        attention_factor=1.25,
        seq_len=1024,
    ),
]


def rope_golden():
    """Records inverse frequencies and attention factors: head_dim 64, theta 1e6, 1,024 positions."""
    cases = []
    for case in ROPE_CASES:
        parameters = dict(case, rope_theta=1_000_000.0)
        seq_len = parameters.pop("seq_len", None)
        config = LlamaConfig(
            hidden_size=256,
            num_attention_heads=4,
            max_position_embeddings=1024,
            rope_parameters=dict(parameters),
        )
        if parameters["rope_type"] == "default":
            inv_freq, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
        else:
            init = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
            inv_freq, factor = init(config, seq_len=seq_len)
        cases.append(
            dict(
                rope_parameters=parameters,
                max_model_len=seq_len or 256,
                inv_freq=inv_freq.tolist(),
                attention_factor=factor,
            )
        )
    path = HERE / "rope.json"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    rope_golden()
    tokenizer = train_tokenizer(VOCAB_SIZE)
    for name in sys.argv[1:] or MODELS:
        build(name, MODELS[name], tokenizer)
