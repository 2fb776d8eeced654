"""Builds the models of the fidelity tests and records Hugging Face transformers' answers.

    python tests/fidelity/make_models.py            # all of them, into tests/fidelity/models
    python tests/fidelity/make_models.py llama-yarn # some of them

Each model is a complete model folder with seeded random weights, plus `golden.json`: prompts as
token ids, the float32 log-probabilities of transformers for every position, and greedy tokens.
Norms and biases differ from their defaults and the weights are large, so that an ignored norm, bias
or rope setting moves the answer by far more than the tolerance. The script checks its results:
float32 must agree with float64, and no greedy choice may be a near tie.

Needs: torch, transformers >= 5, tokenizers, safetensors, timm. Nothing is downloaded.
"""

import json
import os
import re
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers import (
    AXK1Config,
    AfmoeConfig,
    ApertusConfig,
    ArceeConfig,
    BailingHybridConfig,
    BambaConfig,
    BioGptConfig,
    BitNetConfig,
    BloomConfig,
    CodeGenConfig,
    Cohere2Config,
    Cohere2MoeConfig,
    CohereConfig,
    CwmConfig,
    DbrxConfig,
    DeepseekV2Config,
    DeepseekV3Config,
    DeepseekV32Config,
    DoryConfig,
    Ernie4_5_MoeConfig,
    Ernie4_5Config,
    Exaone4Config,
    ExaoneConfig,
    ExaoneMoeConfig,
    FalconConfig,
    FalconH1Config,
    FalconMambaConfig,
    Gemma2Config,
    Gemma3TextConfig,
    Gemma3nTextConfig,
    Gemma4TextConfig,
    GemmaConfig,
    Dots1Config,
    FlexOlmoConfig,
    FlintConfig,
    Glm4Config,
    Glm4MoeConfig,
    Glm4MoeLiteConfig,
    GlmConfig,
    GlmMoeDsaConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoConfig,
    GPTJConfig,
    GptOssConfig,
    GPTNeoXConfig,
    GraniteConfig,
    GraniteMoeConfig,
    GraniteMoeHybridConfig,
    GraniteMoeSharedConfig,
    GraniteMoeSWAConfig,
    GraniteSWAConfig,
    HeliumConfig,
    HunYuanDenseV1Config,
    HunYuanMoEV1Config,
    HYV3Config,
    HyperCLOVAXConfig,
    IQuestCoderConfig,
    InternLM3Config,
    Jais2Config,
    JambaConfig,
    KimiLinearConfig,
    Kolibri1Config,
    LagunaConfig,
    Lfm2Config,
    Lfm2MoeConfig,
    Llama4TextConfig,
    LongcatFlashConfig,
    Mamba2Config,
    MambaConfig,
    MellumConfig,
    MiMoV2FlashConfig,
    MiniCPM3Config,
    MiniMaxConfig,
    MiniMaxM2Config,
    Mistral4Config,
    Ministral3Config,
    MinistralConfig,
    MixtralConfig,
    MptConfig,
    NanoChatConfig,
    NemotronConfig,
    NemotronHConfig,
    Olmo2Config,
    OlmoConfig,
    Olmo3Config,
    OlmoeConfig,
    OlmoHybridConfig,
    OPTConfig,
    PersimmonConfig,
    Phi3Config,
    PhiConfig,
    PhimoeConfig,
    Qwen2MoeConfig,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen4ExpTextConfig,
    Qwen3MoeConfig,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
    SarvamMLAConfig,
    SarvamMoEConfig,
    SeedOssConfig,
    SmolLM3Config,
    SolarOpenConfig,
    StableLmConfig,
    Starcoder2Config,
    VaultGemmaConfig,
    YoutuConfig,
    Zamba2Config,
)
from transformers import Mistral4ForCausalLM
from transformers.modeling_outputs import MoeCausalLMOutputWithPast
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phimoe.modeling_phimoe import PhimoeRotaryEmbedding

from safetensors.torch import load_file, save_file

import authors
import authors_newer
import authors_states
import wrappers
from corpus import sentences, train_tokenizer

# transformers 5.24 has the class, and does not find it.
AutoModelForCausalLM.register(Mistral4Config, Mistral4ForCausalLM, exist_ok=True)

# `Llama4ForConditionalGeneration` of transformers 5.24 reads it, and outputs of text lack it.
MoeCausalLMOutputWithPast.image_outputs = None

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


# Models of the other families are smaller, and have shorter prompts, as their layers are shared.
SMALL = TINY | dict(hidden_size=32, intermediate_size=48, head_dim=8, initializer_range=0.25)
SHORT = [(None, [1, 7, 40, 70])]


def small(config, without="", **changes):
    """Returns a model of `config` with SMALL settings, except those named in `without`."""
    settings = {k: v for k, v in SMALL.items() if k not in without.split()} | changes
    return dict(config=config(**settings), runs=SHORT, has_tokenizer=False)


# The names of sizes in the configs that have their own.
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_positions=256)
NO_SIZES = "hidden_size num_hidden_layers num_attention_heads max_position_embeddings"
NO_KV = "num_key_value_heads head_dim"
MPT = dict(d_model=32, n_heads=4, n_layers=2, max_seq_len=256)

MODELS |= {
    "mistral-full": small(MistralConfig, sliding_window=None, tie_word_embeddings=True),
    "qwen3-biases": small(Qwen3Config, attention_bias=True, num_key_value_heads=4),
    "apertus": small(ApertusConfig, mlp_bias=False),
    "apertus-llama3": small(
        ApertusConfig,
        num_hidden_layers=3,
        attention_bias=True,
        **rope("llama3", 500_000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=32),
    ),
    "arcee": small(ArceeConfig),
    "arcee-biases": small(
        ArceeConfig, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        **rope("yarn", factor=4.0, original_max_position_embeddings=64),
    ),
    "bloom": small(BloomConfig, NO_KV + " intermediate_size", n_layer=2, n_head=4),
    "bloom-six-heads": small(
        BloomConfig, NO_KV + " intermediate_size hidden_size", n_layer=3, n_head=6, hidden_size=48,
        layer_norm_epsilon=1e-3,
    ),
    "cohere": small(CohereConfig, logit_scale=2.0),
    "cohere-norms": small(
        CohereConfig, use_qk_norm=True, attention_bias=True, logit_scale=1.5,
        num_key_value_heads=1, tie_word_embeddings=False,
    ),
    "cohere2": small(Cohere2Config, num_hidden_layers=4, sliding_window=20, logit_scale=2.0),
    "cohere2-layer-types": small(
        Cohere2Config, num_hidden_layers=3, sliding_window=9, attention_bias=True,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"], logit_scale=1.5,
    ),
    "ernie4_5": small(Ernie4_5Config),
    "ernie4_5-biases": small(
        Ernie4_5Config, use_bias=True, head_dim=16, tie_word_embeddings=False,
        **rope("default", 10_000.0),
    ),
    "exaone4": small(Exaone4Config, num_hidden_layers=4, sliding_window=20),
    "exaone4-full": small(
        Exaone4Config, sliding_window=None, layer_types=["full_attention"] * 2,
        tie_word_embeddings=True,
    ),
    "falcon-7b": small(FalconConfig, NO_KV + " intermediate_size"),
    "falcon-groups": small(
        FalconConfig, NO_KV + " intermediate_size", new_decoder_architecture=True, num_kv_heads=2,
        bias=True, ffn_hidden_size=80,
    ),
    "falcon-one-norm": small(
        FalconConfig, NO_KV + " intermediate_size", new_decoder_architecture=True, num_kv_heads=2,
        num_ln_in_parallel_attn=1, **rope("default", 500_042.0),
    ),
    # The eager attention of transformers adds the biases of ALiBi twice.
    "falcon-alibi": small(
        FalconConfig, NO_KV, alibi=True, multi_query=False, parallel_attn=False, bias=True,
    )
    | dict(attention="sdpa"),
    "falcon-alibi-twelve-heads": small(
        FalconConfig, NO_KV + " hidden_size num_attention_heads", alibi=True, multi_query=True,
        hidden_size=48, num_attention_heads=12, tie_word_embeddings=False,
    )
    | dict(attention="sdpa"),
    "falcon-in-turn": small(
        FalconConfig, NO_KV + " intermediate_size", multi_query=False, parallel_attn=False,
        bias=True,
    ),
    "gemma": small(GemmaConfig, head_dim=16),
    "gemma-one-kv-head": small(GemmaConfig, num_key_value_heads=1, attention_bias=True),
    "gemma2": small(Gemma2Config, num_hidden_layers=4, sliding_window=20, query_pre_attn_scalar=24),
    "gemma2-no-caps": small(
        Gemma2Config, num_hidden_layers=3, sliding_window=9, attn_logit_softcapping=None,
        final_logit_softcapping=5.0, head_dim=16, hidden_activation="gelu",
    ),
    "gemma3": small(Gemma3TextConfig, num_hidden_layers=7, sliding_window=12),
    "gemma3-linear": small(
        Gemma3TextConfig, num_hidden_layers=3, sliding_window=20, query_pre_attn_scalar=10,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        final_logit_softcapping=9.0, attn_logit_softcapping=20.0,
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1_000_000.0),
            sliding_attention=dict(rope_type="default", rope_theta=10_000.0),
        ),
    ),
    "gemma3n": small(
        Gemma3nTextConfig, num_hidden_layers=4, sliding_window=12, num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2, laurel_rank=6,
        vocab_size_per_layer_input=500, hidden_size_per_layer_input=8, altup_num_inputs=3,
        activation_sparsity_pattern=[0.9, 0.0, 0.5, 0.0],
    ),
    "gemma3n-own-keys": small(
        Gemma3nTextConfig, num_hidden_layers=5, sliding_window=20, num_kv_shared_layers=0,
        intermediate_size=[48] * 4 + [40], laurel_rank=4, vocab_size_per_layer_input=512,
        hidden_size_per_layer_input=4, altup_num_inputs=2, altup_active_idx=1,
        altup_correct_scale=False, final_logit_softcapping=20.0, tie_word_embeddings=False,
        hidden_activation="gelu", initializer_range=0.1,
    ),
    "gemma4": small(
        Gemma4TextConfig, num_hidden_layers=4, sliding_window=12, num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2, global_head_dim=16, vocab_size_per_layer_input=512, hidden_size_per_layer_input=6,
        use_double_wide_mlp=True, final_logit_softcapping=30.0, initializer_range=0.1,
    )
    | dict(runs=[(None, [1, 7, 40])]),
    "gemma4-experts": small(
        Gemma4TextConfig, num_hidden_layers=3, sliding_window=9, global_head_dim=12,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        num_global_key_value_heads=1, attention_k_eq_v=True, enable_moe_block=True, num_experts=5,
        top_k_experts=2, moe_intermediate_size=12, hidden_size_per_layer_input=0,
        hidden_activation="gelu", initializer_range=0.15,
        rope_parameters=dict(
            full_attention=dict(
                rope_type="proportional", rope_theta=1e5, partial_rotary_factor=0.5, factor=2.0,
            ),
            sliding_attention=dict(rope_type="default", rope_theta=500.0),
        ),
    )
    | dict(before=wrappers.with_global_heads),
    "gemma4-biases": small(
        Gemma4TextConfig, num_hidden_layers=7, sliding_window=20, global_head_dim=8,
        num_global_key_value_heads=4, attention_k_eq_v=True, attention_bias=True,
        hidden_size_per_layer_input=0, tie_word_embeddings=False, initializer_range=0.15,
        intermediate_size=32, num_kv_shared_layers=0,
    ),
    "glm": small(GlmConfig),
    "glm-no-bias": small(GlmConfig, attention_bias=False, head_dim=16, tie_word_embeddings=True),
    "glm4": small(Glm4Config, attention_bias=False),
    "glm4-biases": small(Glm4Config, num_hidden_layers=3, num_key_value_heads=1, head_dim=16),
    "gpt2": small(GPT2Config, NO_SIZES + " " + NO_KV, **GPT2),
    "gpt2-inverse": small(
        GPT2Config, NO_SIZES + " " + NO_KV, **GPT2, n_inner=56, tie_word_embeddings=False,
        scale_attn_by_inverse_layer_idx=True, activation_function="relu",
    ),
    "gpt_neox": small(GPTNeoXConfig, NO_KV),
    "gpt_neox-in-turn": small(
        GPTNeoXConfig, NO_KV, use_parallel_residual=False, attention_bias=False,
        hidden_act="gelu_fast",
        rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5),
    ),
    "granite": small(
        GraniteConfig, embedding_multiplier=12.0, attention_multiplier=0.2, logits_scaling=0.5,
        residual_multiplier=0.6,
    ),
    "granite-biases": small(
        GraniteConfig, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        residual_multiplier=1.5, attention_multiplier=0.3,
    ),
    "hunyuan": small(HunYuanDenseV1Config),
    "hunyuan-alpha": small(
        HunYuanDenseV1Config, attention_bias=True, tie_word_embeddings=True, head_dim=16,
        **rope("dynamic", alpha=50.0, factor=1.0),
    ),
    "mpt": small(MptConfig, NO_SIZES + " intermediate_size " + NO_KV, **MPT),
    "mpt-clip": small(
        MptConfig, NO_SIZES + " intermediate_size " + NO_KV, **MPT | dict(d_model=48, n_heads=6),
        attn_config=dict(clip_qkv=1.5, softmax_scale=0.2),
    ),
    "nemotron": small(NemotronConfig),
    "nemotron-biases": small(
        NemotronConfig, attention_bias=True, mlp_bias=True, num_key_value_heads=1,
        rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.25),
        head_dim=16, norm_eps=1e-3, hidden_act="relu",
    ),
    "olmo2": small(Olmo2Config),
    "olmo2-biases": small(Olmo2Config, attention_bias=True, num_key_value_heads=1, rms_norm_eps=1e-3),
    "olmo3": small(Olmo3Config, num_hidden_layers=4, sliding_window=20),
    "olmo3-yarn": small(
        Olmo3Config, num_hidden_layers=2, sliding_window=12,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters=dict(
            full_attention=dict(rope_type="yarn", factor=4.0, rope_theta=500_000.0,
                                original_max_position_embeddings=64),
            sliding_attention=dict(rope_type="default", rope_theta=500_000.0),
        ),
    ),
    "opt": small(OPTConfig, NO_KV + " intermediate_size", ffn_dim=48, word_embed_proj_dim=32),
    "opt-no-bias": small(
        OPTConfig, NO_KV + " intermediate_size", ffn_dim=56, enable_bias=False,
        activation_function="gelu", tie_word_embeddings=False, word_embed_proj_dim=32,
    ),
    "opt-post-norm": small(
        OPTConfig, NO_KV + " intermediate_size", ffn_dim=48, word_embed_proj_dim=16,
        do_layer_norm_before=False,
    ),
    "opt-no-final-norm": small(
        OPTConfig, NO_KV + " intermediate_size", ffn_dim=48, word_embed_proj_dim=48,
        _remove_final_layer_norm=True, layer_norm_elementwise_affine=False,
        tie_word_embeddings=False, initializer_range=0.1,
    ),
    "phi3": small(Phi3Config, sliding_window=20),
    "phi3-partial": small(
        Phi3Config, "head_dim", max_position_embeddings=256, original_max_position_embeddings=64,
        num_attention_heads=2,
        rope_parameters=dict(
            rope_type="longrope", rope_theta=10_000.0, partial_rotary_factor=0.75,
            short_factor=[1.0 + 0.05 * i for i in range(6)],
            long_factor=[1.0 + 0.75 * i for i in range(6)],
        ),
    ) | dict(runs=[(64, [1, 7, 34]), (None, [70, 100])]),
    "seed_oss": small(SeedOssConfig),
    "seed_oss-out-bias": small(
        SeedOssConfig, attention_bias=False, attention_out_bias=True, mlp_bias=True, head_dim=16,
        tie_word_embeddings=True,
    ),
    "smollm3": small(SmolLM3Config, num_hidden_layers=5),
    "smollm3-windows": small(
        SmolLM3Config, num_hidden_layers=4, use_sliding_window=True, sliding_window=12,
        no_rope_layers=[1, 0, 0, 1], attention_bias=True, tie_word_embeddings=False,
    ),
    "stablelm": small(StableLmConfig, "head_dim", num_key_value_heads=4),
    "stablelm-parallel": small(
        StableLmConfig, "head_dim", use_parallel_residual=True, qk_layernorm=True,
        use_qkv_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0, partial_rotary_factor=0.5),
    ),
    "starcoder2": small(Starcoder2Config, "head_dim", sliding_window=20),
    "starcoder2-no-bias": small(
        Starcoder2Config, "head_dim", use_bias=False, num_key_value_heads=1, norm_epsilon=1e-3,
        tie_word_embeddings=False, hidden_act="gelu",
    ),
}

MODELS |= {
    "gptj": small(GPTJConfig, NO_SIZES + " " + NO_KV, **GPT2, rotary_dim=4),
    "gptj-whole-heads": small(
        GPTJConfig, NO_SIZES + " " + NO_KV, **GPT2, rotary_dim=8, n_inner=56,
        activation_function="relu", tie_word_embeddings=True,
    ),
    "gpt_bigcode": small(GPTBigCodeConfig, NO_SIZES + " " + NO_KV, **GPT2),
    "gpt_bigcode-heads": small(
        GPTBigCodeConfig, NO_SIZES + " " + NO_KV, **GPT2, multi_query=False, n_inner=56,
        scale_attn_weights=False, tie_word_embeddings=False, activation_function="relu",
    ),
    "helium": small(HeliumConfig),
    "helium-biases": small(
        HeliumConfig, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        **rope("linear", factor=2.0),
    ),
    "ministral": small(
        MinistralConfig, num_hidden_layers=3, sliding_window=12,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "ministral-full": small(
        MinistralConfig, sliding_window=12, layer_types=["full_attention"] * 2,
        tie_word_embeddings=True,
    ),
    "ministral3": small(
        Ministral3Config,
        **rope("yarn", 500_000.0, factor=32.0, original_max_position_embeddings=16, mscale=1.0,
               mscale_all_dim=1.0, llama_4_scaling_beta=0.3, beta_fast=32.0, beta_slow=1.0),
    ),
    "ministral3-window": small(
        Ministral3Config, sliding_window=12, tie_word_embeddings=True,
        **rope("yarn", 10_000.0, factor=8.0, original_max_position_embeddings=24,
               llama_4_scaling_beta=0.1),
    ),
    "olmo": small(OlmoConfig, "head_dim"),
    "olmo-clip": small(
        OlmoConfig, "head_dim", clip_qkv=1.5, attention_bias=True, tie_word_embeddings=True,
        num_key_value_heads=1,
    ),
    "phi": small(PhiConfig, "head_dim", num_key_value_heads=4),
    "phi-partial": small(
        PhiConfig, "head_dim", num_hidden_layers=3, hidden_act="gelu",
        rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.25),
    ),
    "vaultgemma": small(VaultGemmaConfig, num_hidden_layers=3, sliding_window=12),
    "vaultgemma-no-caps": small(
        VaultGemmaConfig, sliding_window=20, attn_logit_softcapping=None,
        final_logit_softcapping=5.0, query_pre_attn_scalar=10, hidden_activation="gelu",
        layer_types=["full_attention", "sliding_attention"],
    ),
}

# Mixtures of experts.
MODELS |= {
    "dots1": small(
        Dots1Config, num_hidden_layers=3, n_routed_experts=8, n_shared_experts=2, n_group=2,
        topk_group=1, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
        routed_scaling_factor=1.5, first_k_dense_replace=1, sliding_window=None,
    ),
    "dots1-window": small(
        Dots1Config, num_hidden_layers=3, n_routed_experts=6, n_shared_experts=1,
        num_experts_per_tok=2, moe_intermediate_size=24, sliding_window=12, max_window_layers=1,
        attention_bias=True, tie_word_embeddings=True,
    ),
    "flex_olmo": small(FlexOlmoConfig, "head_dim", num_experts=6, num_experts_per_tok=2),
    "flex_olmo-norm": small(
        FlexOlmoConfig, "head_dim", num_experts=4, num_experts_per_tok=3, norm_topk_prob=True,
        attention_bias=True, num_key_value_heads=1, tie_word_embeddings=True,
    ),
    "granite_moe_shared": small(
        GraniteMoeSharedConfig, "head_dim", num_local_experts=4, num_experts_per_tok=2,
        shared_intermediate_size=40, embedding_multiplier=12.0, attention_multiplier=0.2,
        logits_scaling=0.5, residual_multiplier=0.6,
    ),
    "granite_moe_shared-none": small(
        GraniteMoeSharedConfig, "head_dim", num_local_experts=4, num_experts_per_tok=3,
        attention_bias=True, tie_word_embeddings=True, attention_multiplier=0.4,
    ),
    "mixtral": small(MixtralConfig, num_local_experts=4, num_experts_per_tok=2),
    "mixtral-window": small(
        MixtralConfig, num_local_experts=6, num_experts_per_tok=3, sliding_window=20,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
    ),
    "qwen2_moe": small(
        Qwen2MoeConfig, "head_dim", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
        shared_expert_intermediate_size=40,
    ),
    "qwen2_moe-sparse": small(
        Qwen2MoeConfig, "head_dim", num_hidden_layers=4, num_experts=5, num_experts_per_tok=4,
        moe_intermediate_size=24, shared_expert_intermediate_size=40, norm_topk_prob=True,
        decoder_sparse_step=2, mlp_only_layers=[3], tie_word_embeddings=True, qkv_bias=False,
    ),
    "qwen3_moe": small(
        Qwen3MoeConfig, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
        norm_topk_prob=True,
    ),
    "qwen3_moe-raw": small(
        Qwen3MoeConfig, num_hidden_layers=3, num_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=32, norm_topk_prob=False, attention_bias=True, mlp_only_layers=[0],
        head_dim=16, tie_word_embeddings=True,
    ),
    "olmoe": small(OlmoeConfig, "head_dim", num_experts=8, num_experts_per_tok=3),
    "olmoe-clip": small(
        OlmoeConfig, "head_dim", num_experts=4, num_experts_per_tok=2, clip_qkv=1.5,
        norm_topk_prob=True, attention_bias=True,
    ),
    "granite_moe": small(
        GraniteMoeConfig, "head_dim", num_local_experts=4, num_experts_per_tok=2,
        embedding_multiplier=12.0, attention_multiplier=0.2, logits_scaling=0.5,
        residual_multiplier=0.6,
    ),
    "granite_moe-tied": small(
        GraniteMoeConfig, "head_dim", num_local_experts=6, num_experts_per_tok=3,
        attention_bias=True, tie_word_embeddings=True, attention_multiplier=0.4,
    ),
    "ernie4_5_moe": small(
        Ernie4_5_MoeConfig, "head_dim", num_hidden_layers=3, moe_num_experts=6, moe_k=2,
        moe_intermediate_size=24, moe_num_shared_experts=2,
    ),
    "ernie4_5_moe-interval": small(
        Ernie4_5_MoeConfig, "head_dim", num_hidden_layers=4, moe_num_experts=5, moe_k=3,
        moe_intermediate_size=24, moe_num_shared_experts=0, moe_layer_interval=2,
        moe_layer_start_index=0, moe_layer_end_index=2, tie_word_embeddings=False,
        use_bias=True,
    ),
    "glm4_moe": small(
        Glm4MoeConfig, num_hidden_layers=3, n_routed_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=24, routed_scaling_factor=1.5, n_group=2, topk_group=1,
        use_qk_norm=True, attention_bias=True, num_nextn_predict_layers=0,
    ),
    "glm4_moe-raw": small(
        Glm4MoeConfig, num_hidden_layers=2, n_routed_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=24, n_shared_experts=2, norm_topk_prob=False,
        first_k_dense_replace=0, num_nextn_predict_layers=0,
    ),
    "hunyuan_moe": small(
        HunYuanMoEV1Config, num_experts=4, moe_topk=2,
        rope_parameters=dict(type="dynamic", rope_type="dynamic", alpha=50.0, factor=1.5,
                             rope_theta=10_000.0),
    ),
    "hunyuan_moe-one": small(
        HunYuanMoEV1Config, num_experts=5, moe_topk=1, attention_bias=True,
        tie_word_embeddings=True,
    ),
}

# Multi-head latent attention.
LATENT = dict(
    kv_lora_rank=24, q_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10
)
# All tokens of the recorded contexts are chosen.
INDEXER = dict(index_topk=160, index_head_dim=16, index_n_heads=2)
LONGCAT = dict(ffn_hidden_size=40, expert_ffn_hidden_size=12, head_dim=8)
DEEPSEEK_MOE = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24)


def latent(config, without="", **changes):
    heads = changes.get("num_attention_heads", SMALL["num_attention_heads"])
    without = f"{NO_KV} {without}"
    return small(config, without, **LATENT | changes, num_key_value_heads=heads)


def scaled_scores(mscale, mscale_all_dim, **rest):
    return rope("yarn", factor=4.0, original_max_position_embeddings=64, mscale=mscale,
                mscale_all_dim=mscale_all_dim, **rest)


def in_float8(folder):
    """Rounds the matrices of layers to 8-bit floats with a scale a block, as values of float32.

    Returns the function that writes them as such: DeepSeek V3's checkpoints.
    """
    path, (height, width) = folder / "model.safetensors", (16, 8)
    tensors = load_file(path)
    coded = dict(tensors)
    for name, tensor in tensors.items():
        if tensor.dim() != 2 or "layers." not in name or name.endswith("mlp.gate.weight"):
            continue
        rows, columns = tensor.shape
        padded = torch.zeros(-(-rows // height) * height, -(-columns // width) * width)
        padded[:rows, :columns] = tensor
        blocks = padded.unflatten(1, (-1, width)).unflatten(0, (-1, height))
        scales = (blocks.abs().amax((1, 3)) / 448.0).clamp(min=1e-9)
        spread = scales.repeat_interleave(height, 0).repeat_interleave(width, 1)
        codes = (padded / spread).to(torch.float8_e4m3fn)
        tensors[name] = (codes.float() * spread)[:rows, :columns].contiguous()
        coded[name] = codes[:rows, :columns].contiguous()
        coded[f"{name}_scale_inv"] = scales
    save_file(tensors, path, metadata={"format": "pt"})

    def write(folder):
        save_file(coded, path, metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = dict(
            quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
            weight_block_size=[height, width],
        )
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    return write


MODELS |= {
    "deepseek_v2": latent(
        DeepseekV2Config, **DEEPSEEK_MOE, num_hidden_layers=3, q_lora_rank=None,
        first_k_dense_replace=1, **scaled_scores(0.707, 0.707),
    ),
    "deepseek_v2-groups": latent(
        DeepseekV2Config, **DEEPSEEK_MOE, n_shared_experts=1, topk_method="group_limited_greedy",
        n_group=4, topk_group=2, routed_scaling_factor=2.5, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True, kv_lora_rank=32, v_head_dim=16, **scaled_scores(1.3, 0.6),
    ),
    "deepseek_v3": latent(
        DeepseekV3Config, **DEEPSEEK_MOE, num_hidden_layers=3, n_group=4, topk_group=2,
        first_k_dense_replace=1, **scaled_scores(1.0, 1.0),
    ),
    "deepseek_v3-halves": latent(
        DeepseekV3Config, **DEEPSEEK_MOE, q_lora_rank=None, n_group=1, topk_group=1,
        n_shared_experts=2, norm_topk_prob=False, routed_scaling_factor=1.25,
        first_k_dense_replace=0, rope_interleave=False, attention_bias=True, rms_norm_eps=1e-3,
        tie_word_embeddings=True, num_attention_heads=3, hidden_size=48, v_head_dim=20,
        num_nextn_predict_layers=0, **rope("linear", factor=2.0, mscale_all_dim=0.8),
    ),
    "deepseek_v3-float8": latent(
        DeepseekV3Config, **DEEPSEEK_MOE, n_group=2, topk_group=1, first_k_dense_replace=1,
        num_nextn_predict_layers=0,
    ) | dict(prepare=in_float8, dtype="float32"),
    "glm4_moe_lite": latent(
        Glm4MoeLiteConfig, **DEEPSEEK_MOE, num_hidden_layers=3, rms_norm_eps=1e-3,
        **rope("default", 1_000_000.0),
    ),
    "glm4_moe_lite-listed": latent(
        Glm4MoeLiteConfig, **DEEPSEEK_MOE, num_hidden_layers=3, n_group=2, topk_group=1,
        mlp_layer_types=["sparse", "dense", "sparse"], rope_interleave=False,
        norm_topk_prob=False, attention_bias=True, tie_word_embeddings=True,
    ),
    "deepseek_v32": latent(
        DeepseekV32Config, **DEEPSEEK_MOE | INDEXER, num_hidden_layers=3, n_group=4, topk_group=2,
        first_k_dense_replace=1, **scaled_scores(1.0, 1.0),
    ),
    "deepseek_v32-listed": latent(
        DeepseekV32Config, **DEEPSEEK_MOE | INDEXER, num_hidden_layers=3, n_group=2, topk_group=1,
        mlp_layer_types=["sparse", "dense", "sparse"], norm_topk_prob=False, attention_bias=True,
        tie_word_embeddings=True, **rope("default", 500.0),
    ),
    "glm_moe_dsa": latent(
        GlmMoeDsaConfig, **DEEPSEEK_MOE | INDEXER, num_hidden_layers=3, first_k_dense_replace=1,
        rms_norm_eps=1e-3, indexer_types=["full", "shared", "full"],
        **rope("default", 1_000_000.0),
    ),
    "glm_moe_dsa-groups": latent(
        GlmMoeDsaConfig, **DEEPSEEK_MOE | INDEXER, n_group=2, topk_group=1, n_shared_experts=2,
        routed_scaling_factor=1.25, first_k_dense_replace=0, attention_bias=True,
        **rope("linear", factor=2.0),
    ),
    "longcat_flash": latent(
        LongcatFlashConfig, "num_hidden_layers intermediate_size", **LONGCAT, num_layers=2,
        moe_topk=3, n_routed_experts=4, zero_expert_num=3, **scaled_scores(1.0, 1.0),
    ),
    "longcat_flash-no-zeros": latent(
        LongcatFlashConfig, "num_hidden_layers intermediate_size", **LONGCAT, num_layers=1,
        moe_topk=2, n_routed_experts=6, zero_expert_num=0, attention_bias=True,
        tie_word_embeddings=True, routed_scaling_factor=1.5, **rope("default", 500.0),
    ),
    "minicpm3": latent(MiniCPM3Config, scale_emb=3.0, dim_model_base=24, v_head_dim=None),
    "minicpm3-one-query": latent(
        MiniCPM3Config, q_lora_rank=None, attention_bias=True, tie_word_embeddings=False,
        scale_depth=2.0, dim_model_base=40, scale_emb=2.0,
        **rope("longrope", short_factor=[1.0 + 0.05 * i for i in range(4)],
               long_factor=[1.0 + 0.75 * i for i in range(4)],
               original_max_position_embeddings=64),
    ) | dict(runs=[(64, [1, 7, 34]), (None, [70, 100])]),
    # Its code sets the row of the padding token to zero while it loads.
    "youtu": latent(YoutuConfig, "pad_token_id"),
    "youtu-halves": latent(
        YoutuConfig, "pad_token_id", q_lora_rank=None, rope_interleave=False, attention_bias=True,
        tie_word_embeddings=False, kv_lora_rank=16, **rope("default", 500.0),
    ),
}


def as_internlm2(folder):
    """Rewrites a Llama in the names and the order of rows of InternLM2, whose code is not here."""
    path = folder / "model.safetensors"
    tensors, config = load_file(path), json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    names = dict(
        zip(
            "model.embed_tokens input_layernorm post_attention_layernorm self_attn.o_proj "
            "mlp.gate_proj mlp.up_proj mlp.down_proj".split(),
            "model.tok_embeddings attention_norm ffn_norm attention.wo "
            "feed_forward.w1 feed_forward.w3 feed_forward.w2".split(),
        )
    )
    renamed = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"(model\.layers\.\d+\.)self_attn\.q_proj\.(weight|bias)", name):
            parts = [tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            rest = parts[0].shape[1:]
            groups = [part.reshape(kv_heads, -1, *rest) for part in parts]
            stacked = torch.cat(groups, dim=1).reshape(-1, *rest)
            renamed[f"{match[1]}attention.wqkv.{match[2]}"] = stacked.contiguous()
        elif not re.search(r"self_attn\.[kv]_proj", name):
            for ours, theirs in names.items():
                name = name.replace(ours, theirs)
            renamed["output.weight" if name == "lm_head.weight" else name] = tensor
    save_file(renamed, path)
    rename(folder, config, "InternLM2ForCausalLM", "internlm2", attention_bias="bias")


def as_internlm3(folder):
    """Gives a Llama the fields of InternLM3, whose code is not here."""
    config = json.loads((folder / "config.json").read_text())
    rename(folder, config, "InternLM3ForCausalLM", "internlm3", attention_bias="qkv_bias",
           mlp_bias="bias")


def as_mxfp4(folder):
    """Rounds the experts of gpt-oss to MXFP4, in the form of the published checkpoints."""
    path = folder / "model.safetensors"
    stored, numbers = {}, torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    for name, tensor in load_file(path).items():
        if not re.search(r"experts\.(gate_up|down)_proj$", name):
            stored[name] = tensor
            continue
        groups = tensor.float().transpose(1, 2).unflatten(-1, (-1, 32))
        exponents = (groups.abs().amax(-1) / 6).log2().round()
        scaled = groups / exponents.exp2()[..., None]
        codes = (scaled.abs()[..., None] - numbers).abs().argmin(-1) + 8 * (scaled < 0)
        codes = codes.to(torch.uint8)
        stored[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).contiguous()
        stored[f"{name}_scales"] = (exponents + 127).to(torch.uint8).contiguous()
    save_file(stored, path, metadata=dict(format="pt"))
    config = json.loads((folder / "config.json").read_text())
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=kept)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


MODELS |= {
    "gpt_oss": small(
        GptOssConfig, num_hidden_layers=4, num_local_experts=6, num_experts_per_tok=2,
        sliding_window=12, swiglu_limit=1.0, swiglu_alpha=1.3,
    ),
    "gpt_oss-no-bias": small(
        GptOssConfig, num_hidden_layers=3, num_local_experts=4, num_experts_per_tok=3,
        sliding_window=20, attention_bias=False, tie_word_embeddings=True, num_key_value_heads=1,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        **rope("default", 5_000.0),
    )
    | dict(form=4),
    "gpt_oss-mxfp4": small(
        GptOssConfig, hidden_size=64, intermediate_size=32, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=12, swiglu_limit=2.0, initializer_range=0.12,
    )
    | dict(prepare=as_mxfp4),
    "llama4": small(
        Llama4TextConfig, num_hidden_layers=5, intermediate_size_mlp=40, num_local_experts=4,
        attention_chunk_size=16, floor_scale=8, attn_scale=0.3, interleave_moe_layer_step=2,
    ),
    "llama4-top-2": small(
        Llama4TextConfig, num_hidden_layers=3, intermediate_size_mlp=40, num_local_experts=4,
        num_experts_per_tok=2, attention_chunk_size=24, attn_temperature_tuning=False,
        no_rope_layers=[1, 0, 1], use_qk_norm=False, attention_bias=True, num_key_value_heads=1,
        **rope("llama3", 500_000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=32),
    ),
}


def as_minicpm(folder):
    """Gives a Granite the fields of MiniCPM, whose code is not here."""
    config = json.loads((folder / "config.json").read_text())
    config["scale_depth"] = config.pop("residual_multiplier") * config["num_hidden_layers"] ** 0.5
    config["dim_model_base"] = config["hidden_size"] / config.pop("logits_scaling")
    config.pop("attention_multiplier")
    rename(folder, config, "MiniCPMForCausalLM", "minicpm", embedding_multiplier="scale_emb")


def as_internlm(folder):
    """Gives a Llama the fields of InternLM 1, whose code is not here."""
    config = json.loads((folder / "config.json").read_text())
    config["rotary"] = dict(base=config.pop("rope_parameters")["rope_theta"], type="dynamic")
    rename(folder, config, "InternLMForCausalLM", "internlm", attention_bias="bias")


def rename(folder, config, architecture, model_type, **fields):
    config = {fields.get(name, name): value for name, value in config.items()}
    config |= dict(architectures=[architecture], model_type=model_type)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


MODELS |= {
    "internlm2": small(LlamaConfig, "head_dim") | dict(rewrite=as_internlm2),
    "internlm2-biases": small(LlamaConfig, "head_dim", attention_bias=True, num_key_value_heads=1)
    | dict(rewrite=as_internlm2),
    "internlm3": small(LlamaConfig) | dict(rewrite=as_internlm3),
    "internlm3-biases": small(
        LlamaConfig, attention_bias=True, mlp_bias=True, head_dim=16,
        **rope("dynamic", 10_000.0, factor=1.0),
    )
    | dict(rewrite=as_internlm3),
}

MODELS |= {
    "internlm": small(LlamaConfig, "head_dim", attention_bias=True) | dict(rewrite=as_internlm),
    "internlm-no-bias": small(LlamaConfig, "head_dim", num_key_value_heads=4, **rope("default", 500.0))
    | dict(rewrite=as_internlm),
    "minicpm": small(
        GraniteConfig, "head_dim", embedding_multiplier=12.0, attention_multiplier=8**-0.5,
        residual_multiplier=1.4 / 2**0.5, logits_scaling=2.0, tie_word_embeddings=True,
    )
    | dict(rewrite=as_minicpm),
    "minicpm-longrope": small(
        GraniteConfig, "head_dim", num_hidden_layers=3, attention_multiplier=8**-0.5,
        residual_multiplier=0.5, logits_scaling=2.0, max_position_embeddings=256,
        **rope("longrope", short_factor=[1.0 + 0.05 * i for i in range(4)],
               long_factor=[1.0 + 0.75 * i for i in range(4)], original_max_position_embeddings=64),
    )
    | dict(rewrite=as_minicpm, runs=[(64, [1, 7, 34]), (None, [70, 100])]),
}

# State-space models and hybrids. Prompts cross the blocks of sixteen tokens in which states lie.
NO_ATTENTION = "intermediate_size num_attention_heads num_key_value_heads head_dim"
NO_ATTENTION += " max_position_embeddings"
BAMBA = dict(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=12, mamba_n_groups=2)

MODELS |= {
    "mamba": small(MambaConfig, NO_ATTENTION, state_size=5),
    "mamba-biases": small(
        MambaConfig, NO_ATTENTION, state_size=16, conv_kernel=3, expand=3, time_step_rank=3,
        use_bias=True, use_conv_bias=False, tie_word_embeddings=False, layer_norm_epsilon=1e-3,
    ),
    "falcon_mamba": small(FalconMambaConfig, NO_ATTENTION, state_size=8),
    "falcon_mamba-biases": small(
        FalconMambaConfig, NO_ATTENTION, state_size=16, conv_kernel=2, use_bias=True,
        mixer_rms_eps=1e-2, tie_word_embeddings=False, time_step_rank=5,
    ),
    "mamba2": small(
        Mamba2Config, NO_ATTENTION, num_heads=8, head_dim=8, state_size=12, n_groups=2,
        chunk_size=16,
    ),
    "mamba2-limits": small(
        Mamba2Config, NO_ATTENTION, num_heads=6, head_dim=16, state_size=20, n_groups=3,
        expand=3, conv_kernel=3, use_bias=True, use_conv_bias=False, tie_word_embeddings=True,
        time_step_limit=(0.4, 0.9), chunk_size=8, layer_norm_epsilon=1e-3,
    ),
    "bamba": small(
        BambaConfig, "head_dim", num_hidden_layers=4, attn_layer_indices=[1, 3],
        mamba_chunk_size=16, **BAMBA,
    ),
    "bamba-biases": small(
        BambaConfig, "head_dim", num_hidden_layers=3, attn_layer_indices=[2],
        attention_bias=True, mlp_bias=True, mamba_proj_bias=True, mamba_conv_bias=False,
        mamba_d_conv=3, mamba_chunk_size=8, time_step_limit=(0.3, 0.8),
        tie_word_embeddings=True, **BAMBA,
    ),
    "jamba": small(
        JambaConfig, "head_dim", num_hidden_layers=4, attn_layer_period=3, attn_layer_offset=1,
        expert_layer_period=2, expert_layer_offset=0, num_experts=4, num_experts_per_tok=2,
        mamba_d_state=8, initializer_range=0.12,
    ),
    "jamba-dense": small(
        JambaConfig, "head_dim", num_hidden_layers=3, attn_layer_period=2, attn_layer_offset=1,
        num_experts=1, num_experts_per_tok=1, mamba_d_state=5, mamba_d_conv=3, mamba_expand=3,
        mamba_dt_rank=3, mamba_conv_bias=False, mamba_proj_bias=True, tie_word_embeddings=True,
    ),
    "granite_hybrid": small(
        GraniteMoeHybridConfig, "head_dim", num_hidden_layers=4,
        layer_types=["mamba", "attention", "mamba", "attention"],
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=24,
        embedding_multiplier=2.0, residual_multiplier=0.5, attention_multiplier=0.2,
        logits_scaling=1.5, mamba_chunk_size=16, **BAMBA,
    ),
    "granite_hybrid-dense": small(
        GraniteMoeHybridConfig, "head_dim", num_hidden_layers=3,
        layer_types=["mamba", "mamba", "attention"], num_local_experts=0,
        shared_intermediate_size=40, position_embedding_type="rope", mamba_proj_bias=True,
        mamba_conv_bias=False, attention_bias=True, attention_multiplier=0.3,
        time_step_limit=(0.3, 0.8), mamba_chunk_size=8, tie_word_embeddings=True, **BAMBA,
    ),
    "granite_hybrid-attention": small(
        GraniteMoeHybridConfig, "head_dim", layer_types=["attention", "attention"],
        num_local_experts=0, shared_intermediate_size=40, position_embedding_type="rope",
        attention_multiplier=0.4, logits_scaling=2.0, **BAMBA,
    ),
    "falcon_h1": small(
        FalconH1Config, mamba_d_ssm=64, mamba_chunk_size=16, lm_head_multiplier=0.7,
        embedding_multiplier=1.5, mlp_multipliers=[0.8, 1.2], key_multiplier=0.6,
        attention_out_multiplier=0.9, attention_in_multiplier=1.1, ssm_in_multiplier=1.3,
        ssm_out_multiplier=0.8, ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7], **BAMBA,
    ),
    "falcon_h1-norms": small(
        FalconH1Config, mamba_d_ssm=64, mamba_chunk_size=8, mamba_rms_norm=True,
        mamba_norm_before_gate=False, mamba_proj_bias=True, projectors_bias=True,
        mamba_conv_bias=False, attention_bias=True, mlp_bias=True, time_step_limit=(0.3, 0.8),
        ssm_in_multiplier=0.7, tie_word_embeddings=True, **BAMBA,
    ),
    "falcon_h1-norm-first": small(
        FalconH1Config, mamba_d_ssm=64, mamba_chunk_size=8, mamba_rms_norm=True,
        mamba_norm_before_gate=True, **BAMBA,
    ),
    "nemotron_h": small(
        NemotronHConfig, "num_hidden_layers", mamba_num_heads=8, mamba_head_dim=8,
        ssm_state_size=12, n_groups=2, chunk_size=16,
        layers_block_type=["mamba", "mlp", "attention", "mamba", "mlp"],
    ),
    "nemotron_h-biases": small(
        NemotronHConfig, "num_hidden_layers", mamba_num_heads=6, mamba_head_dim=12,
        ssm_state_size=20, n_groups=3, chunk_size=8, conv_kernel=3, use_bias=True,
        use_conv_bias=False, mlp_bias=True, time_step_min=0.5, mlp_hidden_act="gelu",
        layers_block_type=["attention", "mlp", "mlp", "mamba"],
    ),
}

# Models whose mixers carry a state: gated delta rules, short convolutions, lightning attention.
DELTA = dict(
    head_dim=16, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=8, linear_value_head_dim=12,
)
QWEN3_NEXT = DELTA | dict(
    initializer_range=0.15,
    num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
    shared_expert_intermediate_size=40,
)

LFM2_MOE = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)

MODELS |= {
    "qwen3_next": small(Qwen3NextConfig, "head_dim", **QWEN3_NEXT) | dict(form=4),
    "qwen3_next-layer-types": small(
        Qwen3NextConfig, "head_dim", **QWEN3_NEXT | dict(
            num_hidden_layers=3, linear_num_key_heads=3, linear_num_value_heads=3,
            linear_key_head_dim=20, linear_value_head_dim=7, linear_conv_kernel_dim=2,
            layer_types=["full_attention", "linear_attention", "linear_attention"],
            mlp_only_layers=[1], norm_topk_prob=False, attention_bias=True,
            num_key_value_heads=1, tie_word_embeddings=True, hidden_act="gelu",
            rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5),
        ),
    ),
    "qwen3_5": small(Qwen3_5TextConfig, "head_dim", **DELTA),
    "qwen3_5-interval": small(
        Qwen3_5TextConfig, "head_dim", **DELTA | dict(
            num_hidden_layers=3, full_attention_interval=2, linear_num_value_heads=2,
            linear_conv_kernel_dim=3, attention_bias=True, tie_word_embeddings=True,
        ),
    ),
    "qwen3_5_moe": small(Qwen3_5MoeTextConfig, "head_dim intermediate_size", **QWEN3_NEXT),
    "qwen3_5_moe-interval": small(
        Qwen3_5MoeTextConfig, "head_dim intermediate_size", **QWEN3_NEXT | dict(
            full_attention_interval=3, num_hidden_layers=3, num_experts=4, num_experts_per_tok=3,
        ),
    ),
    "lfm2": small(
        Lfm2Config, "head_dim intermediate_size", num_hidden_layers=4, full_attn_idxs=[1, 3],
        block_ff_dim=96, block_multiple_of=16,
    ) | dict(form=4),
    "lfm2-biases": small(
        Lfm2Config, "head_dim", num_hidden_layers=3, conv_bias=True, conv_L_cache=5,
        block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention", "conv"],
        tie_word_embeddings=False, norm_eps=1e-3, num_key_value_heads=1,
    ),
    "lfm2_moe": small(
        Lfm2MoeConfig, "head_dim", **LFM2_MOE, num_hidden_layers=4, num_dense_layers=1,
        layer_types=["conv", "conv", "full_attention", "conv"],
    ),
    "lfm2_moe-no-bias": small(
        Lfm2MoeConfig, "head_dim", **LFM2_MOE, num_hidden_layers=3, num_dense_layers=0,
        layer_types=["full_attention", "conv", "conv"], use_expert_bias=False, conv_bias=True,
        norm_topk_prob=False, routed_scaling_factor=1.5, conv_L_cache=4, tie_word_embeddings=False,
    ),
    # Their decays are tensors of the checkpoint, which must not be rounded.
    "minimax": small(
        MiniMaxConfig, num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=2,
        block_size=24, full_attn_alpha_factor=1.5, full_attn_beta_factor=0.7,
        linear_attn_alpha_factor=0.8, linear_attn_beta_factor=1.2, mlp_alpha_factor=1.3,
        mlp_beta_factor=0.9,
    ) | dict(dtype="float32"),
    "minimax-layer-types": small(
        MiniMaxConfig, num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=3,
        block_size=16, num_key_value_heads=1, head_dim=12, tie_word_embeddings=True,
        layer_types=["linear_attention", "linear_attention", "full_attention"], hidden_act="gelu",
    ) | dict(dtype="float32"),
}

# Models that show one setting each are still smaller.
TINIEST = dict(
    vocab_size=64, hidden_size=24, intermediate_size=16, num_attention_heads=3,
    num_key_value_heads=1,
)


def tiniest(config, without="", **changes):
    smallest = {k: v for k, v in TINIEST.items() if k not in without.split()}
    return small(config, without, **smallest | changes) | dict(runs=[(None, [1, 24])])


MODELS |= {
    "phi-head-norms": tiniest(
        PhiConfig, "head_dim", qk_layernorm=True, hidden_act="mish",
    ),
    "bloom-norms-go-on": tiniest(
        BloomConfig, NO_KV + " intermediate_size", n_layer=2, n_head=3,
        apply_residual_connection_post_layernorm=True,
    ),
    "qwen2_moe-dense": tiniest(
        Qwen2MoeConfig, "head_dim", num_hidden_layers=4, num_experts=0, hidden_act="hardswish",
        use_sliding_window=True, sliding_window=6, max_window_layers=2, tie_word_embeddings=True,
    ),
    "qwen3_moe-windows": tiniest(
        Qwen3MoeConfig, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8,
        mlp_only_layers=[1], use_sliding_window=True, sliding_window=6, hidden_act="relu6",
    ),
    "ernie4_5_moe-norm-min": tiniest(
        Ernie4_5_MoeConfig, "head_dim", moe_num_experts=6, moe_k=2, moe_intermediate_size=8,
        moe_num_shared_experts=1, moe_norm_min=0.6, hidden_act="leaky_relu",
    ),
    "hunyuan_moe-listed": tiniest(
        HunYuanMoEV1Config, num_experts=4, moe_topk=[1, 3], intermediate_size=8,
        hidden_act="gelu_python_tanh",
    ),
    "internlm3-biased": tiniest(InternLM3Config, attention_bias=True, mlp_bias=True),
    "nemotron_h-experts": tiniest(
        NemotronHConfig, "num_hidden_layers", mamba_num_heads=4, mamba_head_dim=4,
        ssm_state_size=8, n_groups=2, chunk_size=16, n_routed_experts=6, num_experts_per_tok=2,
        n_group=3, topk_group=2, moe_intermediate_size=12, routed_scaling_factor=1.5,
        moe_shared_expert_intermediate_size=20,
    ),
    "nemotron_h-latent-experts": tiniest(
        NemotronHConfig, "num_hidden_layers", mamba_num_heads=4, mamba_head_dim=4,
        ssm_state_size=8, n_groups=1, chunk_size=16, n_routed_experts=5, num_experts_per_tok=3,
        moe_latent_size=12, moe_intermediate_size=10, moe_shared_expert_intermediate_size=8,
        norm_topk_prob=False, mlp_bias=True, mlp_hidden_act="tanh",
        layers_block_type=["moe", "linear_attention", "moe"],
    ),
    "gpt2-odd-heads": tiniest(
        GPT2Config, NO_KV + " intermediate_size num_hidden_layers head_dim hidden_size "
        "num_attention_heads max_position_embeddings",
        **GPT2 | dict(n_embd=20), n_inner=20, activation_function="laplace",
    ),
    "jamba-odd-heads": tiniest(
        JambaConfig, "head_dim", hidden_size=27, num_hidden_layers=2, attn_layer_period=2,
        attn_layer_offset=1, num_experts=1, mamba_d_state=4, mamba_expand=1,
        use_mamba_kernels=False, hidden_act="gelu_10",
    ),
}

def as_exaone(folder):
    """Gives an EXAONE the fields of its published checkpoints."""
    config = json.loads((folder / "config.json").read_text())
    rename(folder, config, "ExaoneForCausalLM", "exaone", num_hidden_layers="num_layers",
           rms_norm_eps="layer_norm_epsilon", hidden_act="activation_function")


CODEGEN = dict(vocab_size=64, n_embd=32, n_layer=2, n_inner=16, n_positions=256)
MODELS |= {
    "persimmon": tiniest(PersimmonConfig, NO_KV),
    "persimmon-no-head-norms": tiniest(
        PersimmonConfig, NO_KV, qk_layernorm=False, hidden_act="gelu", layer_norm_eps=1e-3,
        tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.75),
    ),
    "codegen": tiniest(
        CodeGenConfig, NO_SIZES + " " + NO_KV, n_head=4, rotary_dim=4, **CODEGEN,
    ),
    # Heads that lie across the parts of the matrix.
    "codegen-two-heads": tiniest(
        CodeGenConfig, NO_SIZES + " " + NO_KV, n_head=2, rotary_dim=16, activation_function="relu",
        layer_norm_epsilon=1e-3, **CODEGEN,
    ),
    "exaone": tiniest(ExaoneConfig) | dict(rewrite=as_exaone),
    "exaone-biases": tiniest(
        ExaoneConfig, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        hidden_act="gelu", rms_norm_eps=1e-3, head_dim=10, **rope("linear", 900.0, factor=2.0),
    )
    | dict(rewrite=as_exaone),
    "jais2": tiniest(Jais2Config),
    "jais2-no-biases": tiniest(
        Jais2Config, attention_bias=False, mlp_bias=False, layer_norm_eps=1e-3, head_dim=10,
        hidden_act="silu", tie_word_embeddings=True, **rope("default", 700.0),
    ),
    "minimax_m2": tiniest(
        MiniMaxM2Config, num_local_experts=4, num_experts_per_tok=2, intermediate_size=12,
    ),
    "minimax_m2-partial": tiniest(
        MiniMaxM2Config, num_local_experts=4, num_experts_per_tok=3, intermediate_size=10,
        rotary_dim=4, hidden_act="gelu", tie_word_embeddings=True,
    ),
    "solar_open": tiniest(
        SolarOpenConfig, "intermediate_size", n_routed_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=10,
    ),
    "solar_open-groups": tiniest(
        SolarOpenConfig, "intermediate_size", n_routed_experts=6, num_experts_per_tok=3,
        moe_intermediate_size=5, n_group=3, topk_group=2, n_shared_experts=2, attention_bias=True,
        norm_topk_prob=False, routed_scaling_factor=1.5, tie_word_embeddings=True,
    ),
}

MODELS |= {
    "cwm": tiniest(CwmConfig, num_hidden_layers=5, sliding_window=6, bos_token_id=1)
    | dict(before=wrappers.without("layer_types")),
    "cwm-layer-types": tiniest(
        CwmConfig, num_hidden_layers=3, sliding_window=5, mlp_bias=True, tie_word_embeddings=True,
        bos_token_id=1,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        **rope("default", 500.0),
    ),
    "iquestcoder": tiniest(IQuestCoderConfig)
    | dict(before=wrappers.of_class("IQuestCoderForCausalLM")),
    "iquestcoder-biases": tiniest(
        IQuestCoderConfig, attention_bias=True, mlp_bias=True, head_dim=10, hidden_act="gelu",
        tie_word_embeddings=True, **rope("linear", 900.0, factor=2.0),
    )
    | dict(before=wrappers.of_class("IQuestCoderForCausalLM")),
    "hyperclovax": tiniest(
        HyperCLOVAXConfig, embedding_multiplier=2.0, logits_scaling=0.5, residual_multiplier=0.7,
        attention_multiplier=0.2,
    ),
    "hyperclovax-norms-before": tiniest(
        HyperCLOVAXConfig, use_post_norm=False, attention_bias=True, mlp_bias=True, head_dim=10,
        logits_scaling=1.5, tie_word_embeddings=True,
    ),
}

NEO = NO_KV + " num_hidden_layers num_attention_heads"
MODELS |= {
    "gpt_neo": tiniest(
        GPTNeoConfig, NEO, num_layers=2, num_heads=3, window_size=6,
        attention_types=[[["global", "local"], 1]],
    )
    | dict(before=wrappers.without("attention_layers")),
    "gpt_neo-windows": tiniest(
        GPTNeoConfig, NEO + " intermediate_size", num_layers=3, num_heads=2, window_size=5,
        attention_types=[[["local"], 2], [["global"], 1]], activation_function="relu",
        layer_norm_epsilon=1e-3, tie_word_embeddings=False,
    ),
}


def phimoe_cos_sin(self, x, position_ids):
    """Returns cosines and sines with the frequencies of the authors' code.

    transformers 5.24 has those of short contexts in long ones, too.
    """
    parameters = self.config.rope_parameters
    length = int(position_ids.max()) + 1
    inv_freq, factor = self.rope_init_fn(self.config, seq_len=length)
    if parameters["rope_type"] != "default":
        is_long = length > parameters["original_max_position_embeddings"]
        factor = parameters["long_mscale" if is_long else "short_mscale"]
    angles = position_ids[..., None].float() * inv_freq
    angles = torch.cat((angles, angles), dim=-1)
    return (angles.cos() * factor).to(x.dtype), (angles.sin() * factor).to(x.dtype)


PhimoeRotaryEmbedding.forward = phimoe_cos_sin

DBRX = NO_SIZES + " intermediate_size " + NO_KV
MODELS |= {
    "phimoe": tiniest(
        PhimoeConfig, num_local_experts=5, router_jitter_noise=0.3, attention_bias=True,
        lm_head_bias=True,
        **rope(
            "longrope",
            short_factor=[1.0, 1.1, 1.3, 1.4],
            long_factor=[1.5, 2.0, 3.0, 4.0],
            short_mscale=1.25,
            long_mscale=1.5,
            original_max_position_embeddings=32,
        ),
    )
    | dict(runs=[(32, [1, 7]), (None, [40])]),
    "phimoe-windows": tiniest(
        PhimoeConfig, num_hidden_layers=3, num_local_experts=4, router_jitter_noise=0.1,
        sliding_window=6, tie_word_embeddings=True, hidden_act="gelu", rms_norm_eps=1e-3,
    )
    | dict(form=4),
    # The base of wavelengths is in `attn_config` alone in published checkpoints.
    "dbrx": tiniest(
        DbrxConfig, DBRX, d_model=24, n_heads=3, n_layers=2, max_seq_len=256,
        attn_config=dict(kv_n_heads=1, clip_qkv=0.7, rope_theta=500.0),
        ffn_config=dict(ffn_hidden_size=16, moe_num_experts=5, moe_top_k=2),
        **rope("default", 500.0),
    )
    | dict(rewrite=wrappers.without("rope_parameters")),
    "dbrx-plain": tiniest(
        DbrxConfig, DBRX, d_model=32, n_heads=4, n_layers=3, max_seq_len=256,
        attn_config=dict(kv_n_heads=2, clip_qkv=3, rope_theta=500.0),
        ffn_config=dict(
            ffn_hidden_size=8, moe_num_experts=3, moe_top_k=2, moe_normalize_expert_weights=None,
            ffn_act_fn=dict(name="relu"),
        ),
        **rope("default", 2_000.0),
    ),
    "afmoe": tiniest(
        AfmoeConfig, num_hidden_layers=4, num_dense_layers=1, global_attn_every_n_layers=2,
        sliding_window=6, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        num_shared_experts=1, route_scale=1.5, mup_enabled=True,
    ),
    "afmoe-biases": tiniest(
        AfmoeConfig, num_hidden_layers=3, num_dense_layers=0, sliding_window=9, num_experts=3,
        num_experts_per_tok=2, moe_intermediate_size=8, num_shared_experts=2, attention_bias=True,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        tie_word_embeddings=True, hidden_act="gelu", **rope("default", 500.0),
    ),
    "exaone_moe": tiniest(
        ExaoneMoeConfig, num_hidden_layers=4, sliding_window=6, sliding_window_pattern=2,
        num_experts=6, num_experts_per_tok=2, moe_intermediate_size=8, n_group=3, topk_group=2,
    ),
    "exaone_moe-listed": tiniest(
        ExaoneMoeConfig, num_hidden_layers=3, sliding_window=9,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        mlp_layer_types=["sparse", "dense", "sparse"],
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, num_shared_experts=2,
        norm_topk_prob=False, routed_scaling_factor=1.5, tie_word_embeddings=True,
    ),
}

MODELS |= {
    "recurrent_gemma": small(
        RecurrentGemmaConfig, "head_dim intermediate_size", num_hidden_layers=3,
        intermediate_size=32, attention_window_size=20,
    ),
    "recurrent_gemma-wide": tiniest(
        RecurrentGemmaConfig, "head_dim intermediate_size", num_hidden_layers=4,
        intermediate_size=24, attention_window_size=9, lru_width=30, conv1d_width=3,
        block_types=["attention", "recurrent"], attention_bias=True, logits_soft_cap=4.0,
        tie_word_embeddings=False, hidden_activation="gelu", partial_rotary_factor=1.0,
    ),
}

MODELS |= {
    "hy_v3": tiniest(
        HYV3Config, num_hidden_layers=3, num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=8, **rope("default", 500.0),
    ),
    "hy_v3-biases": tiniest(
        HYV3Config, num_experts=4, num_experts_per_tok=3, moe_intermediate_size=8,
        num_shared_experts=2, router_scaling_factor=1.5, mlp_layer_types=["sparse", "dense"],
        attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
    ),
    "mellum": tiniest(
        MellumConfig, num_hidden_layers=3, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=8, sliding_window=6,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters=dict(
            full_attention=rope(
                "yarn", 500.0, factor=4.0, original_max_position_embeddings=128,
            )["rope_parameters"],
            sliding_attention=rope("default", 100.0)["rope_parameters"],
        ),
    ),
    "mellum-dense": tiniest(
        MellumConfig, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8,
        mlp_layer_types=["dense", "sparse"], norm_topk_prob=False, attention_bias=True,
        tie_word_embeddings=True,
    ),
    "biogpt": tiniest(BioGptConfig, NO_KV),
    "biogpt-unscaled": tiniest(
        BioGptConfig, NO_KV, num_hidden_layers=3, scale_embedding=False, hidden_act="relu",
        tie_word_embeddings=False,
    ),
    "nanochat": tiniest(NanoChatConfig),
    "nanochat-biases": tiniest(
        NanoChatConfig, num_key_value_heads=3, num_hidden_layers=3, attention_bias=True,
        final_logit_softcapping=4.0, hidden_act="gelu", rms_norm_eps=1e-3,
        tie_word_embeddings=True, **rope("default", 500.0),
    ),
}

LATENT = dict(
    num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=8, qk_nope_head_dim=6,
    qk_rope_head_dim=4, v_head_dim=6,
)
MODELS |= {
    "cohere2_moe": tiniest(
        Cohere2MoeConfig, num_hidden_layers=5, first_k_dense_replace=1, sliding_window=6,
        num_experts=4, num_shared_experts=1, logit_scale=1.5, prefix_dense_intermediate_size=20,
    )
    | dict(rewrite=authors.of_first_dense(1)),
    "cohere2_moe-sigmoid": tiniest(
        Cohere2MoeConfig, num_hidden_layers=4, first_k_dense_replace=2, sliding_window=9,
        sliding_window_pattern=2, prefix_dense_sliding_window_pattern=2, num_experts=5,
        num_experts_per_tok=3, num_shared_experts=2, expert_selection_fn="sigmoid",
        shared_expert_combination_strategy="sum", rms_norm_eps=1e-3, attention_bias=True,
        tie_word_embeddings=False, logit_scale=2.0, **rope("default", 500.0),
    )
    | dict(rewrite=authors.of_first_dense(2)),
    "cohere2_moe-plain": tiniest(
        Cohere2MoeConfig, num_hidden_layers=3, sliding_window=5, num_experts=4,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        mlp_layer_types=["sparse", "sparse", "dense"], norm_topk_prob=False,
        expert_selection_fn="sigmoid", logit_scale=1.5,
    ),
    "granite_swa": tiniest(
        GraniteSWAConfig, "head_dim", num_hidden_layers=5, sliding_window=6,
        layer_rope_theta=[0, 500.0, 10_000.0, 500.0, 0], embedding_multiplier=2.0,
        attention_multiplier=0.3, residual_multiplier=0.7, logits_scaling=0.5,
    )
    | dict(before=wrappers.without("layer_types")),
    "granite_swa-biases": tiniest(
        GraniteSWAConfig, "head_dim", num_hidden_layers=3, num_key_value_heads=3, sliding_window=9,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        attention_bias=True, mlp_bias=True, tie_word_embeddings=False, attention_multiplier=0.3,
        **rope("default", 700.0),
    )
    | dict(before=wrappers.without("layer_rope_theta")),
    "granite_moe_swa": tiniest(
        GraniteMoeSWAConfig, "head_dim", num_hidden_layers=5, sliding_window=6,
        layer_rope_theta=[0, 500.0, 10_000.0, 500.0, 0], num_local_experts=4,
        shared_intermediate_size=12, attention_multiplier=0.3, residual_multiplier=0.7,
    )
    | dict(before=wrappers.without("layer_types")),
    "granite_moe_swa-alone": tiniest(
        GraniteMoeSWAConfig, "head_dim", num_hidden_layers=3, num_key_value_heads=3,
        sliding_window=9, num_local_experts=5, num_experts_per_tok=3, attention_bias=True,
        tie_word_embeddings=True, attention_multiplier=0.3, logits_scaling=0.5,
        **rope("default", 700.0),
    ),
    "sarvam_moe": tiniest(
        SarvamMoEConfig, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=8,
    ),
    "sarvam_moe-groups": tiniest(
        SarvamMoEConfig, num_hidden_layers=3, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=8, n_shared_experts=2, n_group=4, topk_group=2, use_qk_norm=False,
        attention_bias=True, norm_topk_prob=False, routed_scaling_factor=1.5,
        first_k_dense_replace=0, partial_rotary_factor=0.5, tie_word_embeddings=True,
        **rope("default", 500.0, partial_rotary_factor=0.5),
    ),
    "sarvam_mla": tiniest(
        SarvamMLAConfig, "head_dim", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=8,
        **LATENT,
    ),
    "sarvam_mla-yarn": tiniest(
        SarvamMLAConfig, "head_dim", num_hidden_layers=3, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=8, n_shared_experts=2, first_k_dense_replace=2, q_lora_rank=10,
        tie_word_embeddings=True, norm_topk_prob=False, routed_scaling_factor=1.5, **LATENT,
        **rope("yarn", 500.0, factor=4.0, original_max_position_embeddings=64, mscale=1.0,
               mscale_all_dim=0.8),
    )
    | dict(rewrite=authors.as_sarvam),
}

KIMI = LATENT | dict(num_local_experts=6, num_experts_per_tok=2, moe_intermediate_size=8)
LATENT_MOE = LATENT | dict(
    num_experts_per_tok=2, moe_intermediate_size=8, n_routed_experts=6, q_lora_rank=10,
)


def as_kimi_linear(folder):
    """Gives a Kimi Linear the fields of its published config."""
    tensors, config = authors.read(folder)
    names = dict(
        linear_num_heads="num_heads", linear_head_dim="head_dim",
        linear_conv_kernel_dim="short_conv_kernel_size",
    )
    inner = {name: config.pop(ours) for ours, name in names.items()}
    kinds = list(enumerate(config.pop("layer_types"), 1))
    inner["full_attn_layers"] = [layer for layer, kind in kinds if kind == "full_attention"]
    inner["kda_layers"] = [layer for layer, kind in kinds if kind != "full_attention"]
    config["first_k_dense_replace"] = config.pop("mlp_layer_types").count("dense")
    # transformers 5.24 writes dense layers with the module of experts.
    parts = ("gate", "up", "down")
    renamed = [(f"block_sparse_moe.{part}_proj", f"mlp.{part}_proj") for part in parts]
    tensors = authors.respelled(tensors, renamed)
    config |= dict(
        linear_attn_config=inner, mla_use_nope=True, moe_layer_freq=1, rope_scaling=None,
        rope_theta=10_000.0, moe_router_activation_func="sigmoid", use_grouped_topk=True,
        num_nextn_predict_layers=0,
    )
    authors.write(folder, tensors, config)


def as_ling_3(folder):
    """Gives a Ling 3.0 the fields of its published config."""
    tensors, config = authors.read(folder)
    config["head_dim"] = config.pop("linear_head_dim")
    for name in ("linear_num_heads", "linear_conv_kernel_dim", "qk_head_dim"):
        config.pop(name)
    authors.write(folder, tensors, config | dict(architectures=["BailingMoeV3ForCausalLM"]))


MIMO_V2 = dict(n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=8)


def as_mimo_v2(folder):
    """Gives a MiMo V2 Flash the fields of its published config."""
    tensors, config = authors.read(folder)
    rope, types = config.pop("rope_parameters"), config.pop("layer_types")
    config |= dict(
        hybrid_layer_pattern=[int(kind == "sliding_attention") for kind in types],
        moe_layer_freq=[int(kind == "sparse") for kind in config.pop("mlp_layer_types")],
        layernorm_epsilon=config.pop("rms_norm_eps"),
        sliding_window_size=config.pop("sliding_window") - 1,
        rope_theta=rope["full_attention"]["rope_theta"],
        swa_rope_theta=rope["sliding_attention"]["rope_theta"],
        partial_rotary_factor=rope["full_attention"]["partial_rotary_factor"],
        swa_num_attention_heads=config["num_attention_heads"],
        swa_num_key_value_heads=2 * config["num_key_value_heads"],
        swa_head_dim=config["head_dim"], swa_v_head_dim=config["v_head_dim"],
        add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
        n_shared_experts=None, routed_scaling_factor=None, scoring_func="sigmoid",
        topk_method="noaux_tc",
    )
    authors.write(folder, tensors, config)


def in_ternary(folder):
    """Rounds the matrices of layers to -1, 0 and 1 times a scale, as values of float32.

    Returns the function that writes them with two bits: the published checkpoint of BitNet.
    """
    tensors, config = authors.read(folder)
    coded = dict(tensors)
    for name, tensor in tensors.items():
        if not name.endswith("_proj.weight"):
            continue
        scale = tensor.abs().mean()
        ternary = (tensor / scale).round().clamp(-1, 1)
        tensors[name] = ternary * scale
        rows = -(-tensor.shape[0] // 4)
        codes = torch.ones(4 * rows, tensor.shape[1], dtype=torch.uint8)
        codes[: tensor.shape[0]] = (ternary + 1).to(torch.uint8)
        parts = codes.unflatten(0, (4, rows))
        coded[name] = sum(parts[i] << 2 * i for i in range(4)).to(torch.uint8)
        coded[f"{name}_scale"] = scale.reshape(1)
    authors.write(folder, tensors, config)

    def write(folder):
        quantized = dict(
            quant_method="bitnet", linear_class="autobitlinear", quantization_mode="offline",
            modules_to_not_convert=None,
        )
        authors.write(folder, coded, authors.config_of(folder) | dict(quantization_config=quantized))

    return write


def with_own_convolutions(folder):
    """Cuts the convolutions of OLMo Hybrid as its authors do. transformers 5.24 writes three equal
    parts."""
    tensors, config = authors.read(folder)
    key_heads, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    keys = key_heads * config["linear_key_head_dim"]
    widths = [keys, keys, heads * config["linear_value_head_dim"]]
    for name in [name for name in tensors if name.endswith("q_conv1d.weight")]:
        names = [name.replace("q_conv", f"{part}_conv") for part in "qkv"]
        whole = torch.cat([tensors[name] for name in names])
        tensors |= zip(names, whole.split(widths))
    authors.write(folder, tensors, config)


def with_class_norms(folder):
    """Gives an OLMo Hybrid the norms' names of its class, and cuts its convolutions."""
    with_own_convolutions(folder)
    tensors, config = authors.read(folder)
    names = dict(
        attention_layer_norm="input_layernorm", feedforward_layer_norm="post_attention_layernorm",
    )
    authors.write(folder, authors.respelled(tensors, names.items()), config)


def with_unused_norms(folder):
    """Gives an A.X K1 the tensors of the published checkpoints: norms of experts in dense layers,
    and no biases of the choice."""
    tensors, config = authors.read(folder)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}.post_mlp_layernorm.weight"
        tensors.setdefault(name, torch.full([config["hidden_size"]], 3.0))
        tensors.pop(f"model.layers.{layer}.mlp.gate.e_score_correction_bias", None)
    authors.write(folder, tensors, config)


MODELS |= {
    "olmo_hybrid": tiniest(
        OlmoHybridConfig, "head_dim", num_hidden_layers=4, num_key_value_heads=3,
        linear_key_head_dim=8, linear_value_head_dim=12, initializer_range=0.15,
        rope_parameters=dict(rope_type="default", rope_theta=None),
    )
    | dict(before=with_class_norms),
    "olmo_hybrid-rope": tiniest(
        OlmoHybridConfig, "head_dim", num_hidden_layers=3, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_conv_kernel_dim=3, linear_allow_neg_eigval=False,
        linear_key_head_dim=6, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-3,
        layer_types=["full_attention", "linear_attention", "linear_attention"],
        **rope("default", 500.0),
    )
    | dict(before=with_own_convolutions),
    "axk1": tiniest(
        AXK1Config, "head_dim", **LATENT_MOE, num_hidden_layers=3, n_group=3, topk_group=2,
        first_k_dense_replace=1, **scaled_scores(1.0, 1.0),
    ),
    "axk1-listed": tiniest(
        AXK1Config, "head_dim", **LATENT_MOE, num_hidden_layers=3, n_group=1, topk_group=1,
        mlp_layer_types=["sparse", "dense", "sparse"], norm_topk_prob=False, attention_bias=True,
        routed_scaling_factor=1.5, rope_interleave=False, tie_word_embeddings=True,
        rms_norm_eps=1e-3, **rope("default", 500.0),
    )
    | dict(before=with_unused_norms),
    "kimi_linear": tiniest(
        KimiLinearConfig, "head_dim", **KIMI, num_hidden_layers=5, linear_num_heads=2,
        linear_head_dim=8, initializer_range=0.2, tie_word_embeddings=False,
    )
    | dict(rewrite=as_kimi_linear),
    "kimi_linear-listed": tiniest(
        KimiLinearConfig, "head_dim", **KIMI | dict(q_lora_rank=10), num_hidden_layers=3,
        linear_num_heads=3, linear_head_dim=10, linear_conv_kernel_dim=3, n_group=3, topk_group=2,
        layer_types=["full_attention", "linear_attention", "linear_attention"],
        mlp_layer_types=["sparse", "dense", "sparse"], norm_topk_prob=False, n_shared_experts=2,
        routed_scaling_factor=1.5, initializer_range=0.2, tie_word_embeddings=False,
    ),
    "bitnet": tiniest(
        BitNetConfig, "head_dim", num_hidden_layers=3, num_key_value_heads=3,
        attention_bias=True, rms_norm_eps=1e-3, **rope("default", 700.0),
    ),
    "bitnet-ternary": tiniest(BitNetConfig, "head_dim", tie_word_embeddings=True)
    | dict(prepare=in_ternary, dtype="float32"),
    "laguna": tiniest(
        LagunaConfig, num_hidden_layers=4, num_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=8, shared_expert_intermediate_size=12, sliding_window=6,
        layer_types=["full_attention", "sliding_attention"] * 2,
        num_attention_heads_per_layer=[3, 4, 2, 4],
    ),
    "laguna-elements": tiniest(
        LagunaConfig, num_hidden_layers=3, num_experts=5, num_experts_per_tok=3,
        moe_intermediate_size=8, shared_expert_intermediate_size=8, gating="per-element",
        attention_bias=True, moe_routed_scaling_factor=1.5, num_key_value_heads=3,
        mlp_layer_types=["sparse", "dense", "sparse"], tie_word_embeddings=True, head_dim=10,
    ),
    "bailing_moe_v3": tiniest(
        BailingHybridConfig, "head_dim", **KIMI, num_hidden_layers=4, head_dim=8,
        layer_group_size=2, first_k_dense_replace=1, n_group=3, topk_group=2,
        initializer_range=0.2, tie_word_embeddings=False, **rope("default", 6_000_000.0),
    )
    | dict(before=wrappers.without("layer_types", "mlp_layer_types"), rewrite=as_ling_3),
    "bailing_moe_v3-softplus": tiniest(
        BailingHybridConfig, "head_dim", **KIMI | dict(q_lora_rank=10), num_hidden_layers=3,
        head_dim=10, short_conv_kernel_size=3, kda_safe_gate=False, n_group=1, topk_group=1,
        layer_types=["full_attention", "linear_attention", "linear_attention"],
        mlp_layer_types=["sparse", "dense", "sparse"], norm_topk_prob=False, n_shared_experts=2,
        routed_scaling_factor=1.5, initializer_range=0.2, tie_word_embeddings=False,
        **rope("default", 500.0),
    ),
    "mimo_v2_flash": small(
        MiMoV2FlashConfig, "head_dim", **MIMO_V2, num_hidden_layers=7, sliding_window=6,
        head_dim=12, v_head_dim=8,
    )
    | dict(rewrite=as_mimo_v2),
    "mimo_v2_flash-listed": tiniest(
        MiMoV2FlashConfig, **MIMO_V2, num_hidden_layers=3, num_attention_heads=4,
        sliding_window=9, head_dim=8, v_head_dim=8, attention_value_scale=None,
        attention_bias=True, norm_topk_prob=False, tie_word_embeddings=True, n_group=2,
        topk_group=1, routed_scaling_factor=1.5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        mlp_layer_types=["sparse", "dense", "sparse"],
        rope_parameters=dict(
            full_attention=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5),
            sliding_attention=dict(rope_type="default", rope_theta=900.0, partial_rotary_factor=0.25),
        ),
    ),
    "mistral4": tiniest(
        Mistral4Config, "head_dim", **LATENT_MOE, num_hidden_layers=3, first_k_dense_replace=1,
        **scaled_scores(1.0, 1.0, llama_4_scaling_beta=0.4),
    ),
    "mistral4-groups": tiniest(
        Mistral4Config, "head_dim", **LATENT_MOE | dict(q_lora_rank=None), n_group=3, topk_group=2,
        norm_topk_prob=False, routed_scaling_factor=1.5, rope_interleave=False,
        attention_bias=True, tie_word_embeddings=True,
        **rope("yarn", 500.0, factor=8.0, original_max_position_embeddings=8,
               llama_4_scaling_beta=0.3),
    ),
}

MODELS |= {
    "zamba2": small(
        Zamba2Config, "head_dim num_key_value_heads", num_hidden_layers=3, hidden_size=24,
        intermediate_size=16, num_attention_heads=3, n_mamba_heads=4, mamba_d_state=8,
        adapter_rank=4, layers_block_type=["linear_attention", "hybrid", "hybrid"],
        tie_word_embeddings=True,
    )
    | dict(runs=[(None, [1, 40])]),
    "zamba2-blocks": tiniest(
        Zamba2Config, "head_dim num_key_value_heads", num_hidden_layers=4, n_mamba_heads=6,
        mamba_d_state=6, mamba_d_conv=3, mamba_ngroups=2, adapter_rank=3, num_mem_blocks=2,
        layers_block_type=["hybrid", "linear_attention", "hybrid", "hybrid"],
        use_shared_attention_adapter=True, use_mem_rope=True, add_bias_linear=True,
        rms_norm_eps=1e-3, tie_word_embeddings=True, time_step_min=0.01, initializer_range=0.12,
        **rope("default", 500.0),
    ),
}


def as_dory(folder):
    """Gives tensors their published names: attention and MLP are layers of their own."""
    def renamed(name):
        found = re.fullmatch(r"(?:model|backbone)\.layers\.(\d+)\.(\w+)(.*)", name)
        if found is None:
            return name.replace("model.embed_tokens", "backbone.embeddings")
        pair, part, rest = found.groups()
        of_mlp = int(part in ("mlp", "lambda_2"))
        part = {"lambda_1": "attn_alpha", "lambda_2": "mlp_alpha"}.get(part, "mixer")
        rest = rest.replace("gate_proj", "g_proj") if not of_mlp else rest
        return f"backbone.layers.{2 * int(pair) + of_mlp}.{part}{rest}"

    path = folder / "model.safetensors"
    tensors = {renamed(name): tensor for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata=dict(format="pt"))


def with_wide_logits(folder):
    """Multiplies logits, so that few greedy choices are near ties."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.logit_scale"] *= 5
    save_file(tensors, path, metadata=dict(format="pt"))


MODELS |= {
    # Inputs of matrices have norms of 1, so weights are larger.
    "dory": small(
        DoryConfig, num_hidden_layers=4, n_input_layers=1, n_output_layers=1, sliding_window=6,
        initializer_range=1.0, ngpt_alpha_init=0.4,
    )
    | dict(before=with_wide_logits, rewrite=as_dory),
    "dory-three": tiniest(
        DoryConfig, num_hidden_layers=3, n_input_layers=1, n_output_layers=0, n_recurrent_loops=3,
        sliding_window=9, initializer_range=1.2, ngpt_alpha_init=-0.3, hidden_act="gelu",
        num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", factor=2.0, rope_theta=500.0),
            sliding_attention=dict(rope_type="default", rope_theta=100.0),
        ),
    )
    | dict(rewrite=as_dory),
}

MODELS |= {
    "flint": tiniest(
        FlintConfig, num_hidden_layers=5, num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=8, shared_expert_intermediate_size=12, sliding_window=6,
    )
    | dict(before=wrappers.without("layer_types", "mlp_only_layers")),
    "flint-raw": tiniest(
        FlintConfig, num_hidden_layers=4, num_experts=4, num_experts_per_tok=3,
        moe_intermediate_size=8, shared_expert_intermediate_size=8, sliding_window=9,
        layer_types=["sliding_attention", "full_attention", "sliding_attention",
                     "sliding_attention"],
        mlp_only_layers=[3], decoder_sparse_step=2, norm_topk_prob=False, attention_bias=True,
        tie_word_embeddings=True, hidden_act="gelu", **rope("default", 500.0),
    ),
    "kolibri1": tiniest(
        Kolibri1Config, "intermediate_size", num_hidden_layers=6, num_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12,
        sliding_window=6,
    )
    | dict(before=wrappers.without("layer_types")),
    "kolibri1-normalized": tiniest(
        Kolibri1Config, "intermediate_size", num_hidden_layers=3, num_experts=5,
        num_experts_per_tok=3, moe_intermediate_size=8, shared_expert_intermediate_size=8,
        sliding_window=9, norm_topk_prob=True,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        tie_word_embeddings=True, hidden_act="gelu", **rope("default", 500.0),
    ),
}

# Contexts are no longer than those in which the indexer chooses all tokens.
QWEN4_EXP = dict(
    hc_lowrank=6, ple_layer_ids=[1], ple_embed_dim=24, heads_per_ngram=2, ngram_vocab_size_base=90,
    make_ngram_vocab_size_divisible_by=8, split_ngram_parts=3, indexer_n_heads=2,
    indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=96, indexer_compress_ratio=8,
)

MODELS |= {
    # The tests of guesses have contexts of 160 tokens.
    "qwen4_exp": small(
        Qwen4ExpTextConfig, "head_dim intermediate_size",
        **QWEN3_NEXT | QWEN4_EXP | dict(indexer_budget=160), hc_count=3,
        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5),
    ),
    "qwen4_exp-layers": tiniest(
        Qwen4ExpTextConfig, "head_dim intermediate_size",
        **QWEN3_NEXT | QWEN4_EXP | dict(
            num_hidden_layers=4, hc_count=2, ple_layer_ids=[4, 1], ngram_size=4,
            ple_conv_kernel_size=2, split_ngram_parts=1, seed=77, eos_token_id=[14, 5],
            output_gate_type="sigmoid", norm_topk_prob=False, num_experts_per_tok=3,
            indexer_budget=48, indexer_compress_ratio=4, rms_norm_eps=1e-3,
            tie_word_embeddings=True, attention_bias=True, num_key_value_heads=1,
            layer_types=["linear_attention", "full_attention"] + ["linear_attention"] * 2,
        ),
    ),
    # No layer has embeddings of n-grams.
    "qwen4_exp-plain": tiniest(
        Qwen4ExpTextConfig, "head_dim intermediate_size",
        **QWEN3_NEXT | QWEN4_EXP | dict(
            num_hidden_layers=2, hc_count=2, ple_layer_ids=None, output_gate_type="sigmoid",
            layer_types=["linear_attention", "full_attention"],
        ),
    ),
}

MODELS |= authors.models(tiniest, rope)
MODELS |= authors_newer.models(tiniest, rope)
MODELS |= authors_states.models(tiniest, rope)
MODELS |= wrappers.models(SMALL, SHORT)

# Parts of the names of embeddings and output layers.
EMBEDDINGS = ["embed", "lm_head", "wte", "wpe"]
# The models whose norms multiply by one plus their weight.
PLUS_ONE = ["gemma", "gemma2", "gemma3_text", "nemotron", "vaultgemma", "qwen3_next"]
PLUS_ONE += ["qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text"]
PLUS_ONE += ["recurrent_gemma", "gemma3_chunked", "step3p5"]


def randomize(model, seed):
    """Sets random weights. Norms and biases do not stay at one and zero, so they have an effect."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config.get_text_config()
    for name, parameter in model.named_parameters():
        if name.endswith(("linear_attn.A_log", "forget_gate.A_log")):
            # Heads that forget within a token, and heads that remember the whole prompt.
            parameter.data.uniform_(-5.0, 1.0, generator=generator)
        elif name.endswith("rg_lru.recurrent_param"):
            # The same of channels.
            parameter.data.uniform_(-6.0, 0.0, generator=generator)
        elif name.endswith("bias"):
            parameter.data.normal_(0.0, 0.3, generator=generator)
        elif parameter.dim() == 1 or "norm" in name.replace("norm_attn_norm.attn", ""):
            parameter.data.uniform_(0.5, 1.5, generator=generator)
            if config.model_type in PLUS_ONE:
                parameter.data -= 1.0
        elif any(part in name for part in EMBEDDINGS):
            parameter.data.normal_(0.0, 0.35, generator=generator)
        else:
            deviation = getattr(config, "initializer_range", 0.25)
            parameter.data.normal_(0.0, deviation, generator=generator)
    for name, buffer in model.named_buffers():
        if name.endswith("correction_bias"):
            buffer.normal_(0.0, 0.3, generator=generator)
        if name.endswith("layer_scalar"):
            buffer.uniform_(0.5, 1.2, generator=generator)
        if name.endswith("expert_bias"):
            buffer.data.normal_(0.0, 0.1, generator=generator)


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
    spec.get("prepare", lambda _: None)(folder)
    if spec.get("has_tokenizer", True):
        tokenizer.save_pretrained(folder)
    if spec.get("form") == 4:
        path = folder / "config.json"
        config = transformers_4_form(json.loads(path.read_text()))
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    spec.get("before", lambda _: None)(folder)


def auto_class(spec):
    """Returns the class of transformers that finds the model's class."""
    return AutoModelForImageTextToText if spec.get("is_multimodal") else AutoModelForCausalLM


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
    if SMALL["eos_token_id"] in generated:
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
    load = lambda dtype: auto_class(spec).from_pretrained(
        folder,
        dtype=dtype,
        attn_implementation=spec.get("attention", "eager"),
        experts_implementation="eager",
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
    vocab_size = spec["config"].get_text_config().vocab_size
    prompt_ids = [token % vocab_size for token in prompt_ids]
    for seed in range(100):
        for old in folder.iterdir():
            old.unlink()
        model = auto_class(spec).from_config(spec["config"])
        randomize(model, seed)
        save(model, tokenizer, spec, folder)
        rewrite = spec.get("rewrite", lambda _: None)
        if "prepare" in spec:
            rewrite = spec["prepare"](folder)
        try:
            answer = golden(folder, spec, prompt_ids)
        except PoorTest as reason:
            print(f"{name}: seed {seed} skipped, {reason}")
            continue
        rewrite(folder)
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
    *(
        dict(
            rope_type="llama3",
            factor=16.0,
            low_freq_factor=low,
            high_freq_factor=1.0,
            original_max_position_embeddings=256,
        )
        for low in (1.0, 4.0)
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
