"""The fidelity tests' models of families which transformers lacks, or has in other classes alone.

Most are models of transformers in which some mixers are replaced. The replacements are written from
the formulas of vLLM 0.33, in a form that needs no states: all tokens at once, in any precision.
`make_models.py` builds them.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Ernie4_5_MoeConfig,
    GenerationMixin,
    NemotronHConfig,
    Step3p7TextConfig,
)
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3
from transformers.models.ernie4_5_moe import modeling_ernie4_5_moe as ernie
from transformers.models.nemotron_h import modeling_nemotron_h as nemotron_h
from transformers.models.step3p7 import modeling_step3p7 as step3p7

from authors import ERNIE_ALONE, LING, published, read, respelled, without_choice_biases, write


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotated(x, width, theta):
    """Turns the first `width` elements of heads, `[batch, tokens, heads, head_dim]`. A pair is an
    element of each half."""
    frequencies = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * frequencies
    cos, sin = angles.cos().to(x.dtype)[:, None], angles.sin().to(x.dtype)[:, None]
    first, second, rest = x.split([width // 2, width // 2, x.shape[-1] - width], dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


class LightningAttention(nn.Module):
    """vLLM's `BailingMoELinearAttention`."""

    def __init__(self, config, layer):
        super().__init__()
        self.config, self.heads = config, config.num_attention_heads
        self.dim = config.linear_head_dim
        hidden, width = config.hidden_size, self.heads * self.dim
        self.query_key_value = nn.Linear(hidden, 3 * width, bias=config.use_qkv_bias)
        if config.use_qk_norm:
            self.query_layernorm = nn.Linear(1, self.dim, bias=False)
            self.key_layernorm = nn.Linear(1, self.dim, bias=False)
            for norm in (self.query_layernorm, self.key_layernorm):
                norm.weight = nn.Parameter(torch.ones(self.dim))
        self.g_norm = nn.Linear(1, width, bias=False)
        self.g_norm.weight = nn.Parameter(torch.ones(width))
        self.g_proj = nn.Linear(hidden, width, bias=False)
        self.dense = nn.Linear(width, hidden, bias=False)
        factor = 1 - layer / (config.num_hidden_layers - 1) + 1e-5
        start = 2 ** -(2 ** -(math.log2(self.heads) - 3))
        self.slopes = [start ** (head + 1) * factor for head in range(self.heads)]

    def forward(self, hidden_states, **_):
        config, x = self.config, hidden_states
        batch, tokens, _ = x.shape
        qkv = self.query_key_value(x)
        qkv = F.silu(qkv) if config.linear_silu else qkv
        q, k, v = qkv.view(batch, tokens, 3, self.heads, self.dim).unbind(2)
        if config.use_qk_norm:
            q = rms(q, self.query_layernorm.weight, config.rms_norm_eps)
            k = rms(k, self.key_layernorm.weight, config.rms_norm_eps)
        if config.linear_rope:
            width = int(self.dim * config.linear_rotary_factor)
            theta = config.rope_parameters["rope_theta"]
            q, k = rotated(q, width, theta), rotated(k, width, theta)
        q = q * self.dim**-0.5
        distances = torch.arange(tokens)[:, None] - torch.arange(tokens)
        slopes = torch.tensor(self.slopes, dtype=torch.float32).to(x.dtype)[:, None, None]
        decays = torch.exp(-slopes * distances.clamp(min=0)) * (distances >= 0)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * decays
        y = torch.einsum("bhij,bjhd->bihd", scores, v).reshape(batch, tokens, -1)
        groups = y.unflatten(-1, (config.group_norm_size, -1))
        y = rms(groups, 1.0, config.rms_norm_eps).flatten(2) * self.g_norm.weight
        return self.dense(y * torch.sigmoid(self.g_proj(x))), None


class WithLightning(deepseek_v3.DeepseekV3DecoderLayer):
    """A layer of DeepSeek V3 that has lightning attention if the config says so."""

    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        group = getattr(config, "layer_group_size", None)
        if group is None:
            return
        if (layer_idx + 1) % group:
            self.self_attn = LightningAttention(config, layer_idx)
        else:
            # vLLM has the model's number in these norms, too.
            norms = (self.self_attn.q_a_layernorm, self.self_attn.kv_a_layernorm)
            for norm in filter(None, norms):
                norm.variance_epsilon = config.rms_norm_eps


deepseek_v3.DeepseekV3DecoderLayer = WithLightning


def as_ling_2_5(folder):
    """Rewrites a DeepSeek V3 with lightning attention as a Ling 2.5."""
    tensors, config = read(folder)
    tensors = respelled(
        tensors,
        [*LING, ("self_attn", "attention"), ("gate.e_score_correction_bias", "gate.expert_bias")],
    )
    names = dict(
        n_routed_experts="num_experts", n_shared_experts="num_shared_experts",
        linear_rotary_factor="partial_rotary_factor",
    )
    config["head_dim"] = config.pop("linear_head_dim")
    config = published(
        config, "BailingMoeV2_5ForCausalLM", "bailing_hybrid", names, ["attention_bias"],
        score_function="sigmoid", moe_router_enable_expert_bias=True, use_bias=False,
        router_dtype="fp32", num_nextn_predict_layers=0,
    )
    write(folder, tensors, config)


class LowRankAttention(nn.Module):
    """vLLM's `Step3TextAttention`."""

    def __init__(self, config):
        super().__init__()
        self.config, hidden = config, config.hidden_size
        self.heads, self.dim = config.num_attention_heads, config.step_head_dim
        self.q_proj = nn.Linear(hidden, config.share_q_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.dim, bias=False)
        self.inter_norm = nn.Linear(1, config.share_q_dim, bias=False)
        self.inter_norm.weight = nn.Parameter(torch.ones(config.share_q_dim))
        self.wq = nn.Linear(config.share_q_dim, self.heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, hidden, bias=False)

    def forward(self, hidden_states, **_):
        x, eps = hidden_states, self.config.rms_norm_eps
        q = self.wq(rms(self.q_proj(x), self.inter_norm.weight, eps))
        q = q.unflatten(-1, (self.heads, self.dim))
        k = self.k_proj(x).unsqueeze(2)
        theta = self.config.rope_parameters["rope_theta"]
        q, k = rotated(q, self.dim, theta), rotated(k, self.dim, theta)
        scores = torch.einsum("bihd,bjd->bhij", q, k.squeeze(2)) * self.dim**-0.5
        tokens = x.shape[1]
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        y = torch.einsum("bhij,bjd->bihd", weights, self.v_proj(x))
        return self.o_proj(y.flatten(2)), None


class WithLowRank(ernie.Ernie4_5_MoeDecoderLayer):
    """A layer of ERNIE 4.5 with queries of a low rank, if the config has one."""

    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        if getattr(config, "share_q_dim", None):
            self.self_attn = LowRankAttention(config)


ernie.Ernie4_5_MoeDecoderLayer = WithLowRank


def as_step3(folder):
    """Rewrites an ERNIE with queries of a low rank as the text model of Step 3."""
    tensors, config = read(folder)
    count = config["moe_num_experts"]
    together = {}
    for name, tensor in tensors.items():
        if ".mlp.experts.0." in name:
            each = [tensors[name.replace("experts.0.", f"experts.{i}.")] for i in range(count)]
            together[name.replace("mlp.experts.0.", "moe.")] = torch.stack(each)
        elif ".mlp.experts." not in name and not name.endswith("e_score_correction_bias"):
            together[name] = tensor
    first = config["moe_layer_start_index"]
    names = dict(
        moe_k="moe_top_k", max_position_embeddings="max_position_embedding",
        num_key_value_heads="num_attention_groups", step_head_dim="head_dim",
    )
    sparse = range(first, config["num_hidden_layers"])
    num_shared = config.pop("moe_num_shared_experts")
    config["share_expert_dim"] = num_shared * config["moe_intermediate_size"]
    config = published(
        config, "Step3TextForCausalLM", "step3_text", names,
        [*ERNIE_ALONE, "moe_layer_start_index", "head_dim", "hidden_act"],
        norm_expert_weight=config["moe_norm_min"] < 1, num_attention_groups=1,
        moe_layers_enum=",".join(map(str, sparse)),
    )
    pairs = [("mlp.shared_experts", "share_expert"), ("mlp.gate.", "moe.gate.")]
    write(folder, respelled(together, pairs), config)


class OfSizes(nemotron_h.NemotronHBlock):
    """A layer of Nemotron-H with the fields of its own block, if the config has blocks."""

    def __init__(self, config, layer_idx):
        blocks = getattr(config, "block_configs", None)
        own = copy.copy(config)
        for field, value in (blocks[layer_idx] if blocks else {}).items():
            if field not in ("block_type", "sliding_window"):
                setattr(own, field, value)
        super().__init__(own if blocks else config, layer_idx)
        self.window = blocks[layer_idx].get("sliding_window") if blocks else None
        if blocks and hasattr(self.mixer, "config"):
            self.mixer.config = config if self.block_type == "full_attention" else own

    def forward(self, hidden_states, attention_mask=None, **rest):
        if self.window:
            tokens = torch.arange(hidden_states.shape[1])
            distances = tokens[:, None] - tokens
            is_hidden = (distances < 0) | (distances >= self.window)
            least = torch.finfo(hidden_states.dtype).min
            attention_mask = torch.zeros(is_hidden.shape, dtype=hidden_states.dtype)
            attention_mask = attention_mask.masked_fill(is_hidden, least)[None, None]
        return super().forward(hidden_states, attention_mask=attention_mask, **rest)


nemotron_h.NemotronHBlock = OfSizes


def as_puzzle(folder):
    """Gives a Nemotron-H with blocks the fields of its published config."""
    tensors, config = read(folder)
    blockwise = {field for block in config["block_configs"] for field in block}
    dropped = ["layers_block_type", "hybrid_override_pattern", *blockwise]
    config = {name: value for name, value in config.items() if name not in dropped}
    config |= dict(architectures=["NemotronHPuzzleForCausalLM"], model_type="nemotron_h_puzzle")
    write(folder, tensors, config)


def blocks(*listed):
    """Returns the settings of a Nemotron-H with such blocks."""
    kinds = dict(mamba="linear_attention", attention="full_attention")
    names = [block["block_type"] for block in listed]
    return dict(
        block_configs=list(listed), layers_block_type=[kinds.get(name, name) for name in names],
    )


def moe(experts, taken, width, shared, **rest):
    return dict(
        block_type="moe", n_routed_experts=experts, num_experts_per_tok=taken,
        moe_intermediate_size=width, moe_shared_expert_intermediate_size=shared, **rest,
    )


class Step3p5ForCausalLM(step3p7.Step3p7PreTrainedModel, GenerationMixin):
    """The text model of Step 3.7 alone, which transformers has no class for."""

    config_class = Step3p7TextConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.model = step3p7.Step3p7TextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, **rest):
        hidden = self.model(input_ids, **rest).last_hidden_state
        return CausalLMOutputWithPast(logits=self.lm_head(hidden))


AutoModelForCausalLM.register(Step3p7TextConfig, Step3p5ForCausalLM, exist_ok=True)


def as_step3p5(folder):
    """Gives a text model of Step 3.7 the names and the fields of Step 3.5's published config."""
    tensors, config = read(folder)
    together = {}
    for name, tensor in tensors.items():
        if name.endswith("mlp.experts.gate_up_proj"):
            start = name.removesuffix("mlp.experts.gate_up_proj")
            gate, up = tensor.chunk(2, dim=1)
            together |= {f"{start}moe.gate_proj.weight": gate, f"{start}moe.up_proj.weight": up}
        else:
            together[name] = tensor
    pairs = [
        ("mlp.experts.down_proj", "moe.down_proj.weight"), ("mlp.shared_experts", "share_expert"),
        ("mlp.gate.e_score_correction_bias", "moe.router_bias"), ("mlp.gate.", "moe.gate."),
    ]
    ropes, kinds = config.pop("rope_parameters"), config["layer_types"]
    sparse = [i for i, kind in enumerate(config.pop("mlp_layer_types")) if kind == "sparse"]
    config.pop("per_layer_config", None)
    own = dict(
        num_key_value_heads="num_attention_groups", n_routed_experts="moe_num_experts",
        num_experts_per_tok="moe_top_k",
    )
    config = {own.get(name, name): value for name, value in config.items()}
    for name in "num_local_experts hidden_act query_pre_attn_scalar attention_bias".split():
        config.pop(name, None)
    # Layers for several tokens a step go on with the lists.
    last = kinds[-1]
    scaling = {k: v for k, v in ropes["full_attention"].items() if k != "rope_theta"}
    scaling.pop("partial_rotary_factor", None)
    config |= dict(
        architectures=["Step3p5ForCausalLM"], model_type="step3p5", layer_types=kinds + [last],
        rope_theta=[ropes[kind]["rope_theta"] for kind in kinds + [last]],
        partial_rotary_factors=[
            ropes[kind].get("partial_rotary_factor", 1.0) for kind in kinds + [last]
        ],
        rope_scaling=scaling, yarn_only_types=["full_attention"],
        moe_layers_enum=",".join(map(str, sparse + [len(kinds)])), use_rope_layers=[],
        num_nextn_predict_layers=1, use_head_wise_attn_gate=True, use_moe_router_bias=True,
        moe_router_activation="sigmoid", norm_expert_weight=True, need_fp32_gate=True,
        att_impl_type="GQA", zero_centered=True, sink=False,
        attention_other_setting=dict(
            attention_type="sliding_attention",
            num_attention_heads=config.pop("num_sliding_attention_heads"),
            num_attention_groups=config["num_attention_groups"], head_dim=config["head_dim"],
        ),
    )
    for name in ("swiglu_limits", "swiglu_limits_shared"):
        if config.get(name):
            config[name] = config[name] + [0.0]
    write(folder, respelled(together, pairs), config)


def models(tiniest, rope):
    """Returns the models by their folders. `tiniest` makes one of a config, with smallest sizes."""
    latent = dict(
        kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=6,
        num_experts_per_tok=2, moe_intermediate_size=8, tie_word_embeddings=False,
    )
    ernie_moe = dict(
        moe_intermediate_size=8, use_bias=False, moe_num_shared_experts=2, num_attention_heads=3,
    )
    step = dict(num_experts_per_tok=2, moe_intermediate_size=8, share_expert_dim=12)
    default = dict(rope_type="default", rope_theta=100.0)
    return {
        "nemotron_h_puzzle": tiniest(
            NemotronHConfig, "num_hidden_layers", mamba_num_heads=4, mamba_head_dim=4,
            ssm_state_size=8, n_groups=2, chunk_size=16, moe_latent_size=None,
            **blocks(
                dict(block_type="mamba"), moe(6, 2, 12, 20, routed_scaling_factor=1.5),
                dict(block_type="attention", sliding_window=5),
                moe(4, 3, 8, 12, routed_scaling_factor=2.0),
            ),
        )
        | dict(rewrite=as_puzzle),
        "nemotron_h_puzzle-widths": tiniest(
            NemotronHConfig, "num_hidden_layers", mamba_num_heads=4, mamba_head_dim=4,
            ssm_state_size=6, n_groups=1, chunk_size=16, mlp_bias=True, norm_topk_prob=False,
            **blocks(
                dict(block_type="attention"), dict(block_type="mlp", intermediate_size=10),
                moe(5, 2, 10, 8, moe_latent_size=12), dict(block_type="mamba", ssm_state_size=6),
                dict(block_type="mlp", intermediate_size=14),
                moe(3, 1, 6, 16, moe_latent_size=8),
            ),
        )
        | dict(rewrite=as_puzzle),
        "step3_text": tiniest(
            Ernie4_5_MoeConfig, "head_dim", **ernie_moe, num_hidden_layers=3, moe_num_experts=5,
            moe_k=2, moe_layer_start_index=1, moe_norm_min=1.0, share_q_dim=10, step_head_dim=12,
            tie_word_embeddings=False, **rope("default", 5_000.0),
        )
        | dict(before=without_choice_biases, rewrite=as_step3),
        "step3_text-normalized": tiniest(
            Ernie4_5_MoeConfig, "head_dim", **ernie_moe, num_hidden_layers=2, moe_num_experts=4,
            moe_k=3, moe_layer_start_index=0, share_q_dim=16, step_head_dim=8, rms_norm_eps=1e-3,
            tie_word_embeddings=True, **rope("default", 500.0),
        )
        | dict(before=without_choice_biases, rewrite=as_step3),
        "step3p5": tiniest(
            Step3p7TextConfig, **step, num_hidden_layers=4, n_routed_experts=6, sliding_window=6,
            layer_types=["full_attention", "sliding_attention"] * 2, num_sliding_attention_heads=4,
            mlp_layer_types=["dense", "sparse", "sparse", "sparse"], moe_router_scaling_factor=1.5,
            swiglu_limits=[0.0, 0.0, 1.0, 1.5], swiglu_limits_shared=[1.0, 0.0, 0.0, 1.25],
            rope_parameters=dict(
                full_attention=dict(
                    rope_type="llama3", rope_theta=500.0, partial_rotary_factor=0.5, factor=2.0,
                    low_freq_factor=1.0, high_freq_factor=32.0,
                    original_max_position_embeddings=64,
                ),
                sliding_attention=default,
            ),
        )
        | dict(rewrite=as_step3p5),
        "step3p5-wide": tiniest(
            Step3p7TextConfig, **step, num_hidden_layers=3, n_routed_experts=4, sliding_window=9,
            head_dim=10, num_key_value_heads=3, rms_norm_eps=1e-3, tie_word_embeddings=False,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            mlp_layer_types=["sparse", "dense", "sparse"],
            rope_parameters=dict(full_attention=default | dict(rope_theta=700.0),
                                 sliding_attention=default),
        )
        | dict(rewrite=as_step3p5),
        "bailing_moe_v2_5": tiniest(
            DeepseekV3Config, "head_dim", **latent, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=4, q_lora_rank=10, first_k_dense_replace=1, n_routed_experts=8,
            n_group=4, topk_group=2, routed_scaling_factor=2.5, layer_group_size=2,
            linear_head_dim=8, linear_rotary_factor=0.5, linear_rope=True, linear_silu=False,
            use_qk_norm=True, use_qkv_bias=False, group_norm_size=4, **rope("default", 6_000.0),
        )
        | dict(rewrite=as_ling_2_5, runs=[(None, [1, 7, 70])]),
        "bailing_moe_v2_5-plain": tiniest(
            DeepseekV3Config, "head_dim", **latent, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=2, q_lora_rank=None, first_k_dense_replace=0, n_routed_experts=4,
            n_group=1, topk_group=1, n_shared_experts=2, norm_topk_prob=False,
            routed_scaling_factor=1.5, rms_norm_eps=1e-3, layer_group_size=3,
            linear_head_dim=10, linear_rotary_factor=1.0, linear_rope=False, linear_silu=True,
            use_qk_norm=False, use_qkv_bias=True, group_norm_size=1, **rope("default", 500.0),
        )
        | dict(rewrite=as_ling_2_5),
    }
