"""Makes tiny models and converts them with llama.cpp's own converter, for tests/formats/converted.

    python tests/formats/convert_models.py LLAMA_CPP          # all of them
    python tests/formats/convert_models.py LLAMA_CPP gemma3   # some of them

LLAMA_CPP is a checkout of llama.cpp: its `conversion` and `gguf-py` are imported. Each model has
the settings of one in tests/fidelity/make_models.py, changed where the format cannot hold them.
Beside each file are transformers' logits in float32, of the same weights. All weights are exact in
the type that they are stored in.

Needs: torch, transformers >= 5, gguf, numpy. Nothing is downloaded.
"""

import copy
import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
OUT = HERE / "converted"
LLAMA_CPP = Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP), str(HERE.parent / "fidelity")]

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from make_models import MODELS, randomize, scaled_scores  # noqa: E402
from transformers import AutoModelForCausalLM, Mxfp4Config  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402

from conversion import ModelType, get_model_architecture, get_model_class  # noqa: E402
from conversion.stablelm import StableLMModel  # noqa: E402

VOCAB = 96


def same_scores(factor):
    """Returns a YaRN with one factor for rotations and scores: the format has no more."""
    return dict(rope_parameters=scaled_scores(factor, factor)["rope_parameters"])


# The converter wants a multiple of 64 elements in the heads of Mamba.
SMALL_HEADS = dict(mamba_num_heads=8, mamba_head_dim=8)
# Settings that differ from those of the model in make_models.py.
CASES = {
    "apertus-llama3": dict(attention_bias=False),
    "arcee": dict(),
    "bloom": dict(),
    "bloom-six-heads": dict(hidden_size=48, num_hidden_layers=1),
    "cohere": dict(),
    "cohere-norms": dict(tie_word_embeddings=True, attention_bias=False),
    "cohere2": dict(),
    "deepseek_v2": dict(moe_intermediate_size=32),
    "deepseek_v2-groups": dict(
        moe_intermediate_size=32,
        attention_bias=False,
        mlp_bias=False,
        # The format has the keys' matrices turned, so rows of both forms must be 16-bit floats.
        kv_lora_rank=24,
        **same_scores(0.6),
    ),
    "deepseek_v3": dict(moe_intermediate_size=32),
    "ernie4_5": dict(),
    "ernie4_5_moe": dict(moe_intermediate_size=32),
    "ernie4_5_moe-interval": dict(
        moe_intermediate_size=32, tie_word_embeddings=True, moe_layer_end_index=3
    ),
    "exaone4": dict(),
    "falcon-7b": dict(),
    "falcon-groups": dict(bias=False, ffn_hidden_size=128),
    "falcon-one-norm": dict(rope_theta=10_000.0),
    "falcon_h1": dict(
        lm_head_multiplier=0.5,
        embedding_multiplier=2.0,
        mlp_multipliers=[0.5, 2.0],
        key_multiplier=0.5,
        attention_out_multiplier=0.25,
        attention_in_multiplier=2.0,
        ssm_in_multiplier=0.5,
        ssm_out_multiplier=2.0,
        ssm_multipliers=[0.5, 2.0, 0.25, 4.0, 0.5],
    ),
    "falcon_h1-norms": dict(
        ssm_in_multiplier=0.5,
        projectors_bias=False,
        mamba_proj_bias=False,
        attention_bias=False,
        mlp_bias=False,
        time_step_limit=[0.0, float("inf")],
    ),
    "falcon_mamba": dict(),
    "gemma": dict(),
    "gemma2": dict(query_pre_attn_scalar=8),
    "gemma3": dict(query_pre_attn_scalar=8),
    "gemma3-linear": dict(
        query_pre_attn_scalar=8,
        attn_logit_softcapping=None,
        layer_types=["sliding_attention"] * 5 + ["full_attention"],
        num_hidden_layers=6,
    ),
    "glm": dict(rms_norm_eps=1e-5),
    "glm4": dict(),
    "glm4_moe": dict(moe_intermediate_size=32),
    "glm4_moe-raw": dict(moe_intermediate_size=32),
    "gpt2": dict(n_positions=64),
    "gpt_neox": dict(),
    "gpt_neox-in-turn": dict(hidden_act="gelu", rope_theta=10_000.0),
    "gpt_oss": dict(swiglu_alpha=1.702, swiglu_limit=7.0),
    "gpt_oss-mxfp4": dict(swiglu_alpha=1.702, swiglu_limit=7.0),
    "granite": dict(),
    "granite_hybrid": dict(),
    "granite_hybrid-dense": dict(
        mamba_proj_bias=False,
        attention_bias=False,
        position_embedding_type="nope",
        time_step_limit=[0.0, float("inf")],
    ),
    "granite_moe": dict(tie_word_embeddings=True),
    "hunyuan": dict(),
    "hunyuan-alpha": dict(max_position_embeddings=32_768),
    "hunyuan_moe-one": dict(num_experts=3),
    "internlm2": dict(),
    "internlm3": dict(),
    "jamba": dict(),
    "lfm2": dict(),
    "lfm2_moe": dict(moe_intermediate_size=32),
    "llama-linear": dict(hidden_size=32, head_dim=8),
    # llama.cpp has these numbers in its code.
    "llama4": dict(
        intermediate_size=32, attention_chunk_size=8192, floor_scale=8192, attn_scale=0.1
    ),
    "mamba": dict(),
    "mamba2": dict(),
    "minimax_m2-partial": dict(intermediate_size=32, hidden_act="silu", rotary_dim=4),
    "mixtral": dict(),
    "mpt": dict(max_seq_len=64),
    "mpt-clip": dict(max_seq_len=64, num_hidden_layers=1, softmax_scale=None),
    "nemotron": dict(),
    "nemotron-biases": dict(hidden_act="relu2", head_dim=8),
    "nemotron_h": dict(),
    "nemotron_h-experts": dict(
        moe_intermediate_size=16,
        layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
        **SMALL_HEADS,
    ),
    "nemotron_h-latent-experts": dict(
        moe_latent_size=16,
        moe_intermediate_size=32,
        mlp_hidden_act="relu2",
        mlp_bias=False,
        **SMALL_HEADS,
    ),
    "olmo2": dict(),
    "olmo3": dict(),
    "olmo3-yarn": dict(),
    "olmoe": dict(num_experts=4, num_experts_per_tok=3),
    "phi3": dict(),
    "phi3-partial": dict(),
    "qwen2_moe": dict(moe_intermediate_size=32, shared_expert_intermediate_size=32),
    "qwen3_moe": dict(moe_intermediate_size=32),
    "qwen3_next": dict(moe_intermediate_size=32, shared_expert_intermediate_size=32),
    "seed_oss": dict(),
    "smollm3": dict(),
    "stablelm": dict(),
    "stablelm-parallel": dict(),
    "starcoder2": dict(sliding_window=None),
}
# Stored as 16-bit floats. The others are stored in blocks of 8 bits.
HALVES = ["apertus-llama3", "cohere2", "gpt2", "glm4", "stablelm"]


def exact(parameter, transposed, half):
    """Returns the nearest values that the file's type can hold."""
    values = parameter.detach().float().numpy()
    if values.ndim == 1:
        return parameter.detach()
    rows = np.ascontiguousarray(values.swapaxes(-1, -2) if transposed else values)
    shape = rows.shape
    if half or rows.shape[-1] % 32:
        rows = rows.astype(np.float16).astype(np.float32)
    else:
        q8_0 = gguf.GGMLQuantizationType.Q8_0
        rows = gguf.quants.dequantize(gguf.quants.quantize(rows, q8_0), q8_0)
    rows = rows.reshape(shape)
    return torch.from_numpy(np.ascontiguousarray(rows.swapaxes(-1, -2) if transposed else rows))


def tiny_model(name, changes):
    config = copy.deepcopy(MODELS[name]["config"])
    config.vocab_size = VOCAB
    has_width = getattr(config, "intermediate_size", None)
    if has_width and "intermediate_size" not in config.attribute_map:
        config.intermediate_size = 64
    for field, value in changes.items():
        if field == "rope_theta":
            config.rope_parameters["rope_theta"] = value
        elif field == "softmax_scale":
            config.attn_config.softmax_scale = value
        else:
            setattr(config, field, value)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    randomize(model, 0)
    transposed = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, Conv1D)}
    if config.model_type in ("gpt_oss", "llama4_text"):
        names = (key for key, _ in model.named_parameters())
        transposed |= {key for key in names if key.endswith(("gate_up_proj", "down_proj"))}
    for key, parameter in model.named_parameters():
        parameter.data = exact(parameter, key in transposed, name in HALVES)
    return model


def set_vocab(self):
    """Writes a vocabulary of tokens that mean nothing, in place of a tokenizer."""
    writer, size = self.gguf_writer, self.hparams["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * size)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(2)


def published_form(config):
    """Gives a config of transformers 5 the fields that the converter reads from published ones."""
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    kind = config["model_type"]
    part = rope.get("partial_rotary_factor", 0.25 if "neox" in kind else 1.0)
    config.setdefault("rotary_pct", part)
    if "partial_rotary_factor" in rope:
        config.setdefault("partial_rotary_factor", rope["partial_rotary_factor"])
    if kind == "minimax_m2":
        config["scoring_func"] = "sigmoid"
        config.setdefault("rotary_dim", config["head_dim"])
        config["num_local_experts"] = config.get("num_local_experts", config.get("num_experts"))
    if kind in ("deepseek_v2", "deepseek_v3"):
        config["scoring_func"] = "softmax" if kind == "deepseek_v2" else "sigmoid"
    if kind == "granitemoehybrid":
        names = dict(linear_attention="mamba", full_attention="attention")
        config["layer_types"] = [names.get(name, name) for name in config["layer_types"]]
    if kind == "nemotron_h":
        letters = dict(mamba="M", attention="*", full_attention="*", mlp="-", moe="E")
        letters["linear_attention"] = "M"
        kinds = config.pop("layers_block_type", None) or config["layer_types"]
        config["hybrid_override_pattern"] = "".join(letters[kind] for kind in kinds)
        config["num_hidden_layers"] = len(kinds)
        if "E" not in config["hybrid_override_pattern"]:
            for field in ("num_experts_per_tok", "n_routed_experts", "n_group", "topk_group"):
                config.pop(field)
    if kind == "gpt2":
        config["n_ctx"] = config["n_positions"]
    if kind == "bloom":
        config["seq_length"] = 256
    if kind == "glm":
        config["seq_length"] = 256
    if kind == "mpt":
        config["architectures"] = ["MPTForCausalLM"]
    if kind == "falcon" and config["multi_query"] and not config["new_decoder_architecture"]:
        config.pop("num_kv_heads", None)
    if kind == "qwen3_moe":
        config["num_experts"] = config["num_local_experts"]
    if kind == "hunyuan_v1_moe":
        layers = config["num_hidden_layers"]
        config |= dict(moe_intermediate_size=[config["intermediate_size"]] * layers)
        topk = config["moe_topk"]
        config |= dict(moe_topk=topk if isinstance(topk, list) else [topk] * layers)
        config |= dict(num_shared_expert=[1] * layers)
    return config


def convert(folder, name):
    path = folder / "config.json"
    hparams = published_form(json.loads(path.read_text()))
    # The converter of Gemma 3 counts the tokens of this file.
    vocab = {f"t{i}": i for i in range(VOCAB)}
    tokenizer = dict(model=dict(vocab=vocab), added_tokens=[])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    converter = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    converter.set_vocab = set_vocab
    # These models have no layers that predict several tokens.
    converter.no_mtp = True
    kinds = gguf.LlamaFileType
    kind = kinds.MOSTLY_F16 if name in HALVES else kinds.MOSTLY_Q8_0
    with torch.inference_mode():
        out = OUT / f"{name}.gguf"
        converter(folder, kind, out, eager=True, model_name=name, hparams=hparams).write()


def stack_head_norms(self, data_torch, name, bid):
    """Does what `StableLMModel.modify_tensors` is meant to: it drops the norms of heads."""
    for norm, heads in [("q", "num_attention_heads"), ("k", "num_key_value_heads")]:
        if f"{norm}_layernorm.norms" not in name:
            continue
        parts = vars(self).setdefault(f"{norm}_parts_{bid}", {})
        parts[name] = data_torch
        if len(parts) == self.hparams[heads]:
            ordered = [parts[key] for key in sorted(parts)]
            yield f"blk.{bid}.attn_{norm}_norm.weight", torch.stack(ordered)
        return
    yield from super(StableLMModel, self).modify_tensors(data_torch, name, bid)


def golden(model, path):
    """Records prompts, and transformers' logits after their last tokens."""
    rng = np.random.default_rng(7)
    prompts = []
    for length in (1, 9, 40):
        ids = rng.integers(3, VOCAB, length).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        prompts.append(dict(ids=ids, logits=[round(x, 4) for x in logits.tolist()]))
    path.write_text(json.dumps(prompts, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    StableLMModel.modify_tensors = stack_head_norms
    OUT.mkdir(exist_ok=True)
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder) / name
            model = tiny_model(name, CASES[name])
            model.save_pretrained(folder)
            MODELS[name].get("rewrite", lambda _: None)(folder)
            if name.endswith("mxfp4"):
                MODELS[name]["prepare"](folder)
                whole = Mxfp4Config(dequantize=True)
                model = AutoModelForCausalLM.from_pretrained(
                    folder, dtype=torch.float32, quantization_config=whole
                )
            golden(model, OUT / f"{name}.golden.json")
            try:
                convert(folder, name)
            except Exception as error:
                print(f"{name}: FAILED {type(error).__name__} {error}")
                continue
        print(f"{name}: {(OUT / f'{name}.gguf').stat().st_size / 1000:.0f} kB")
    shutil.rmtree(OUT / "__pycache__", ignore_errors=True)
