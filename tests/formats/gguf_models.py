"""Tiny models whose weights are exact in the types of the files of `converted`.

Needs: torch, transformers >= 5, gguf, numpy. Nothing is downloaded.
"""

import copy
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "fidelity"))

import authors  # noqa: E402
import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from make_models import MODELS, SMALL, randomize, rope, scaled_scores, small  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: E402
from transformers import Glm4vConfig, Glm4vMoeConfig  # noqa: E402
from transformers import LlamaConfig, Qwen2VLConfig, Qwen3VLConfig, Qwen3VLMoeConfig  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402

VOCAB = 96


def same_scores(factor):
    """Returns a YaRN with one factor for rotations and scores: the format has no more."""
    return dict(rope_parameters=scaled_scores(factor, factor)["rope_parameters"])


def turn_experts(folder):
    """Stores matrices of experts as the published models have them, `[experts, in, out]`."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        if tensors[name].ndim == 3:
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
    save_file(tensors, path, metadata=dict(format="pt"))


def with_images(config, sections, **changes):
    """Returns a multimodal model, whose text model is that of a file."""
    text = {k: v for k, v in SMALL.items() if k != "rope_theta"} | changes
    text["rope_parameters"] = dict(
        rope_type="default", rope_theta=10_000.0, mrope_section=sections, mrope_interleaved=True
    )
    vision = dict(depth=1, embed_dim=8, hidden_size=8, intermediate_size=8, num_heads=1)
    if config in (Glm4vConfig, Glm4vMoeConfig):
        text["rope_parameters"] |= dict(partial_rotary_factor=0.5)
        vision |= dict(out_hidden_size=32)
    elif config is not Qwen2VLConfig:
        vision |= dict(out_hidden_size=32, deepstack_visual_indexes=[0])
    return dict(config=config(text_config=text, vision_config=vision))


MODELS["glm4v"] = with_images(Glm4vConfig, [1, 1, 0])
MODELS["glm4v_moe"] = with_images(
    Glm4vMoeConfig, [1, 1, 0], n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
    moe_intermediate_size=32, first_k_dense_replace=1, n_group=1, topk_group=1,
)
MODELS["qwen2_vl"] = with_images(Qwen2VLConfig, [1, 2, 1])
MODELS["qwen3_vl"] = with_images(Qwen3VLConfig, [1, 2, 1])
MODELS["qwen3_vl_moe"] = with_images(
    Qwen3VLMoeConfig, [1, 2, 1], num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64
) | dict(rewrite=turn_experts)
# transformers has no class for it, and its code is Llama's.
MODELS["xverse"] = small(LlamaConfig, num_key_value_heads=4)
# The converter reads the widths that factors give alone.
MODELS["deci_lm"] = small(
    LlamaConfig,
    num_key_value_heads=4,
    **rope(
        "llama3", 500_000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32,
    ),
) | authors.blocks((2, 256), (None, 512), (4, None))
CLASSES = {"minimax": "MiniMaxText01ForCausalLM", "xverse": "XverseForCausalLM"}


def without_tables(folder):
    """Removes the tables of decays, which published checkpoints do not have."""
    path = folder / "model.safetensors"
    tables = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
    tensors = load_file(path)
    save_file({key: tensor for key, tensor in tensors.items() if not key.endswith(tables)}, path)


MODELS["minimax"]["rewrite"] = without_tables

# The converter wants a multiple of 64 elements in the heads of Mamba.
SMALL_HEADS = dict(mamba_num_heads=8, mamba_head_dim=8)
# Settings that differ from those of the model in make_models.py.
CASES = {
    # llama.cpp has the period of windows in its code.
    "afmoe": dict(
        moe_intermediate_size=32, layer_types=["sliding_attention"] * 3 + ["full_attention"]
    ),
    "apertus-llama3": dict(attention_bias=False),
    "arcee": dict(),
    "baichuan": dict(),
    # llama.cpp knows the models with ALiBi by their number of layers.
    "baichuan-alibi": dict(
        num_hidden_layers=40, hidden_size=8, num_attention_heads=2, num_key_value_heads=2,
        head_dim=4, intermediate_size=8,
    ),
    "bailing_moe": dict(moe_intermediate_size=32),
    "bailing_moe_v2": dict(moe_intermediate_size=32),
    "bamba": dict(),
    "bamba-biases": dict(mamba_proj_bias=False, time_step_limit=[0.0, float("inf")]),
    "bloom": dict(),
    "bloom-six-heads": dict(hidden_size=48, num_hidden_layers=1),
    # The converter takes the width of a head from the hidden size.
    "chatglm": dict(num_attention_heads=3, num_key_value_heads=1),
    "cohere": dict(),
    "cohere-norms": dict(tie_word_embeddings=True, attention_bias=False),
    "cohere2": dict(),
    "dbrx": dict(),
    "deci_lm": dict(intermediate_size=512, num_hidden_layers=3),
    "deepseek": dict(moe_intermediate_size=32),
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
    "deepseek_v32": dict(moe_intermediate_size=32),
    "dots1": dict(moe_intermediate_size=32),
    "ernie4_5": dict(),
    "ernie4_5_moe": dict(moe_intermediate_size=32),
    "ernie4_5_moe-interval": dict(
        moe_intermediate_size=32, tie_word_embeddings=True, moe_layer_end_index=3
    ),
    "exaone": dict(),
    "exaone4": dict(),
    "exaone_moe": dict(moe_intermediate_size=32),
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
    "gemma3n": dict(altup_num_inputs=4, vocab_size_per_layer_input=96),
    "gemma3n-own-keys": dict(
        altup_num_inputs=4,
        altup_active_idx=0,
        altup_correct_scale=True,
        vocab_size_per_layer_input=96,
        tie_word_embeddings=True,
        hidden_activation="gelu_pytorch_tanh",
    ),
    "gemma4": dict(vocab_size_per_layer_input=96),
    "gemma4-experts": dict(
        moe_intermediate_size=32,
        hidden_activation="gelu_pytorch_tanh",
        rope_parameters=dict(
            full_attention=dict(
                rope_type="proportional", rope_theta=1e5, partial_rotary_factor=0.5
            ),
            sliding_attention=dict(rope_type="default", rope_theta=500.0),
        ),
    ),
    "glm": dict(rms_norm_eps=1e-5),
    "glm4": dict(),
    "glm4_moe": dict(moe_intermediate_size=32),
    "glm4_moe-raw": dict(moe_intermediate_size=32),
    "glm4_moe_lite": dict(moe_intermediate_size=32),
    "glm_moe_dsa": dict(moe_intermediate_size=32),
    "glm4v": dict(),
    "glm4v_moe": dict(),
    "gpt2": dict(n_positions=64),
    "gpt_bigcode": dict(n_positions=64),
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
    "granite_moe_shared": dict(),
    "hunyuan": dict(),
    "hunyuan-alpha": dict(max_position_embeddings=32_768),
    "hunyuan_moe-one": dict(num_experts=3),
    "hy_v3": dict(moe_intermediate_size=32),
    "internlm2": dict(),
    "internlm3": dict(),
    "iquestcoder": dict(),
    "jais2": dict(),
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
    # The format has one factor of the stream, and llama.cpp has attention in every eighth layer.
    "minimax": dict(
        intermediate_size=32,
        num_local_experts=3,
        num_hidden_layers=9,
        layer_types=["linear_attention"] * 7 + ["full_attention", "linear_attention"],
        full_attn_alpha_factor=1.5,
        full_attn_beta_factor=1.0,
        linear_attn_alpha_factor=1.5,
        linear_attn_beta_factor=1.0,
        mlp_alpha_factor=1.5,
        mlp_beta_factor=1.0,
    ),
    "minimax_m2-partial": dict(intermediate_size=32, hidden_act="silu", rotary_dim=4),
    "mixtral": dict(),
    "mpt": dict(max_seq_len=64),
    "mpt-clip": dict(max_seq_len=64, num_hidden_layers=1, softmax_scale=None),
    "nanbeige": dict(),
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
    "orion": dict(),
    "pangu_embedded": dict(),
    "phi3": dict(),
    "phi3-partial": dict(),
    "mellum": dict(moe_intermediate_size=32),
    "minicpm": dict(),
    "minicpm3": dict(scale_emb=12.0, dim_model_base=256),
    "ministral3": dict(),
    "olmo": dict(),
    "olmo-clip": dict(attention_bias=False),
    "phi": dict(intermediate_size=128),
    # The format has one factor of LongRoPE, and the jitter is in no key.
    "phimoe": dict(
        router_jitter_noise=0.01,
        original_max_position_embeddings=512,
        rope_parameters=rope(
            "longrope",
            short_factor=[1.0, 1.1, 1.3, 1.4],
            long_factor=[1.5, 2.0, 3.0, 4.0],
            short_mscale=1.0,
            long_mscale=1.0,
            original_max_position_embeddings=512,
        )["rope_parameters"],
    ),
    "qwen2_moe": dict(moe_intermediate_size=32, shared_expert_intermediate_size=32),
    "qwen3_moe": dict(moe_intermediate_size=32),
    "qwen3_next": dict(moe_intermediate_size=32, shared_expert_intermediate_size=32),
    "seed_oss": dict(),
    "smollm3": dict(),
    "stablelm": dict(),
    "stablelm-parallel": dict(),
    "starcoder2": dict(sliding_window=None),
    "qwen3_5": dict(),
    "qwen3_5-interval": dict(),
    "qwen3_5_moe": dict(moe_intermediate_size=32, shared_expert_intermediate_size=32),
    "solar_open": dict(moe_intermediate_size=32),
    "youtu": dict(),
    "qwen2_vl": dict(),
    "qwen3_vl": dict(),
    "qwen3_vl_moe": dict(),
    "xverse": dict(),
}
# Models whose weights are changed before they are compared.
CHANGED = ["bailing_moe", "deci_lm", "deepseek"]
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
    text = config.get_text_config()
    text.vocab_size = VOCAB
    has_width = getattr(text, "intermediate_size", None)
    if has_width and "intermediate_size" not in text.attribute_map:
        is_list = isinstance(has_width, list)
        text.intermediate_size = [64] * len(has_width) if is_list else 64
    for field, value in changes.items():
        if field == "rope_theta":
            config.rope_parameters["rope_theta"] = value
        elif field == "softmax_scale":
            config.attn_config.softmax_scale = value
        else:
            setattr(config, field, value)
    auto = AutoModelForCausalLM if text is config else AutoModelForImageTextToText
    model = auto.from_config(config, dtype=torch.float32).eval()
    randomize(model, 0)
    transposed = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, Conv1D)}
    if config.model_type in ("gpt_oss", "llama4_text"):
        names = (key for key, _ in model.named_parameters())
        transposed |= {key for key in names if key.endswith(("gate_up_proj", "down_proj"))}
    for key, parameter in model.named_parameters():
        parameter.data = exact(parameter, key in transposed, name in HALVES)
    return model
