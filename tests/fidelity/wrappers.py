"""The multimodal models of the fidelity tests: real classes of transformers with a tiny tower.

`make_models.py` builds them. A prompt is text alone, so the towers change no answer.
"""

import json

from safetensors.torch import load_file, save_file
from transformers import (
    Gemma3Config,
    Gemma3nConfig,
    Gemma4Config,
    Glm4vConfig,
    Glm4vMoeConfig,
    Llama4Config,
    LlavaConfig,
    Mistral3Config,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    Qwen3_5Config,
    Qwen3_5MoeConfig,
    Qwen3VLConfig,
    Qwen3VLMoeConfig,
    Qwen4ExpConfig,
)

TOWER = dict(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8,
    patch_size=4,
)
VISUAL = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4)
# Ids that no prompt has.
IMAGE = dict(image_token_index=509, boi_token_index=510, eoi_token_index=511)
QWEN = dict(
    image_token_id=508, video_token_id=509, vision_start_token_id=510, vision_end_token_id=511,
)
GLM = dict(
    image_token_id=506, video_token_id=507, image_start_token_id=508, image_end_token_id=509,
    video_start_token_id=510, video_end_token_id=511,
)

OUTSIDE, INSIDE = "language_model.model.", "model.language_model."


def axes(sections, theta, **changes):
    """Returns rotary parameters with an axis for each section."""
    parameters = dict(rope_type="default", rope_theta=theta, mrope_section=sections)
    return dict(rope_parameters=parameters | changes)


def respelled(*pairs):
    """Returns a change of the names that tensors begin with."""

    def respell(folder):
        def new(name):
            pair = next((pair for pair in pairs if name.startswith(pair[0])), ("", ""))
            return pair[1] + name[len(pair[0]) :]

        path = folder / "model.safetensors"
        tensors = {new(name): tensor for name, tensor in load_file(path).items()}
        save_file(tensors, path, metadata=dict(format="pt"))

    return respell


def both(*changes):
    """Returns a change that makes all `changes`."""
    return lambda folder: [change(folder) for change in changes]


def inside(folder):
    """Gives tensors the names that transformers 4.52 wrote."""
    respelled(
        (OUTSIDE, INSIDE), ("language_model.lm_head", "lm_head"),
        ("vision_tower", "model.vision_tower"),
        ("multi_modal_projector", "model.multi_modal_projector"),
    )(folder)


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def write(folder, config):
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def without(*fields):
    """Returns a change that leaves `fields` out."""

    def leave_out(folder):
        config = config_of(folder)
        write(folder, {name: value for name, value in config.items() if name not in fields})

    return leave_out


def with_global_heads(folder):
    """Gives the heads of layers with full attention the fields of published configs of Gemma 4."""
    config = config_of(folder)
    text = config.get("text_config", config)
    sizes = next(iter(text.pop("per_layer_config").values()))
    text |= dict(
        global_head_dim=sizes["head_dim"],
        num_global_key_value_heads=sizes.get("num_key_value_heads"),
    )
    write(folder, config)


def of_class(architecture):
    """Returns a change to the published name of a class."""
    return lambda folder: write(folder, config_of(folder) | dict(architectures=[architecture]))


def in_form_4(text):
    """Gives the fields of a text model the names of transformers 4."""
    parameters = text.pop("rope_parameters")
    if "full_attention" in parameters:
        full, sliding = parameters["full_attention"], parameters["sliding_attention"]
        text |= dict(rope_theta=full.pop("rope_theta"), rope_local_base_freq=sliding["rope_theta"])
        text["rope_scaling"] = full if full["rope_type"] != "default" else None
    else:
        text["rope_theta"] = parameters.pop("rope_theta")
        if "partial_rotary_factor" in parameters:
            text["partial_rotary_factor"] = parameters.pop("partial_rotary_factor")
        default = parameters == dict(rope_type="default")
        text["rope_scaling"] = None if default else parameters


def as_published(*left_out):
    """Returns a change to the form of a published config: `left_out` has the text's fields that
    such a config leaves to defaults, or has beside `text_config`."""

    def publish(folder):
        config = config_of(folder)
        text = config["text_config"]
        in_form_4(text)
        config["torch_dtype"] = config.pop("dtype")
        config["eos_token_id"] = [text.pop("eos_token_id"), 511]
        for field in left_out:
            text.pop(field)
        config.pop("tie_word_embeddings", None)
        write(folder, config | dict(transformers_version="4.51.0"))

    return publish


def flat(folder):
    """Puts the fields of the text model beside those of others, as Qwen2-VL is published."""
    config = config_of(folder)
    text = config.pop("text_config")
    in_form_4(text)
    text["rope_scaling"]["type"] = text["rope_scaling"].pop("rope_type").replace("default", "mrope")
    text.pop("model_type")
    text.pop("layer_types")
    config["torch_dtype"] = config.pop("dtype")
    write(folder, text | config | dict(transformers_version="4.51.0"))


def tied_in_text(folder):
    """Says so in `text_config` alone, as transformers 4 does."""
    config = config_of(folder)
    config["tie_word_embeddings"] = False
    config["text_config"]["tie_word_embeddings"] = True
    write(folder, config)


def experts_by_input(folder):
    """Gives experts the shapes of published checkpoints of Qwen3-VL."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if ".mlp.experts." in name:
            tensors[name] = tensor.transpose(1, 2).contiguous()
    save_file(tensors, path, metadata=dict(format="pt"))


def experts_by_output(folder):
    """Gives experts the names and shapes of published checkpoints of Qwen3.5."""
    import torch

    path = folder / "model.safetensors"
    tensors, stacks = {}, {}
    for name, tensor in load_file(path).items():
        module, found, rest = name.partition(".mlp.experts.")
        if not found:
            tensors[name] = tensor
            continue
        expert, part, _ = rest.split(".")
        stacks.setdefault(f"{module}{found}", {})[int(expert), part] = tensor
    for module, parts in stacks.items():
        experts = range(1 + max(expert for expert, _ in parts))
        both = [torch.cat([parts[e, "gate_proj"], parts[e, "up_proj"]]) for e in experts]
        tensors[f"{module}gate_up_proj"] = torch.stack(both)
        tensors[f"{module}down_proj"] = torch.stack([parts[e, "down_proj"] for e in experts])
    save_file(tensors, path, metadata=dict(format="pt"))


def with_unread_of_ngrams(folder):
    """Adds the tensors of Qwen4-Exp that vLLM skips, and that transformers' class has not."""
    import torch

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tables = [name for name in tensors if ".ple.ple_embedding." in name]
    for module in {name.partition(".ple_embedding.")[0] for name in tables}:
        tensors[f"{module}.ple_embedding.token_lookup"] = torch.arange(4)
        tensors[f"{module}.ple_embedding.hashstats_uses"] = torch.arange(3)
    last = "model.language_model.hyper_connection_mixer.block_inject_weight.weight"
    tensors[last] = torch.ones(2, 2, dtype=torch.bfloat16)
    save_file(tensors, path, metadata=dict(format="pt"))


def models(small_settings, short_runs):
    """Returns the models by their folders. `small_settings` are the text's settings."""

    def text(without="", **changes):
        return {k: v for k, v in small_settings.items() if k not in without.split()} | changes

    def model(config, text_config, before=lambda _: None, **rest):
        return dict(
            config=config(text_config=text_config, **rest), before=before, runs=short_runs,
            has_tokenizer=False, is_multimodal=True,
        )

    def gemma3(text_config, before, **rest):
        vision = TOWER | dict(model_type="siglip_vision_model")
        return model(
            Gemma3Config, text_config, before, vision_config=vision, mm_tokens_per_image=1,
            **IMAGE | rest,
        )

    def gemma3n(text_config, before=lambda _: None, **rest):
        tower = dict(
            hidden_size=8, vocab_size=4, vocab_offset=512, architecture="test_vit",
            model_args=dict(embed_dim=8, depth=1, num_heads=2),
        )
        audio = dict(
            hidden_size=8, vocab_size=4, vocab_offset=516, conf_num_hidden_layers=1,
            conf_num_attention_heads=2, input_feat_size=16, sscp_conv_channel_size=[2, 2],
        )
        tokens = dict(
            image_token_id=510, boi_token_id=511, eoi_token_id=509, audio_token_id=508,
            boa_token_id=507, eoa_token_id=506,
        )
        return model(
            Gemma3nConfig, text_config, before, vision_config=tower, audio_config=audio,
            **tokens | rest,
        )

    def gemma4(text_config, before=lambda _: None, **rest):
        vision = dict(
            hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, head_dim=8, patch_size=4, position_embedding_size=8,
        )
        tokens = dict(
            image_token_id=510, boi_token_id=511, eoi_token_id=509, video_token_id=508,
            boa_token_id=507, eoa_token_index=506, audio_token_id=505,
        )
        return model(
            Gemma4Config, text_config, before, vision_config=vision, audio_config=None,
            **tokens | rest,
        )

    def llama4(text_config, before=lambda _: None, **rest):
        vision = TOWER | dict(projector_input_dim=8, projector_output_dim=8, vision_output_dim=8)
        return model(Llama4Config, text_config, before, vision_config=vision, **IMAGE | rest)

    def mistral3(text_config, before, **rest):
        vision = TOWER | dict(model_type="pixtral", head_dim=4)
        return model(
            Mistral3Config, text_config, before, vision_config=vision, image_token_index=509,
            **rest,
        )

    def llava(text_config, before, **rest):
        vision = TOWER | dict(model_type="clip_vision_model", projection_dim=8, vocab_size=8)
        return model(
            LlavaConfig, text_config, before, vision_config=vision, image_token_index=509, **rest,
        )

    def qwen(config, text_config, before=lambda _: None, visual=None, **rest):
        return model(
            config, text_config, before, vision_config=VISUAL | (visual or {}), **QWEN | rest,
        )

    visual_2 = dict(embed_dim=8, hidden_size=32)
    visual_2_5 = dict(out_hidden_size=32, fullatt_block_indexes=[0])
    visual_3 = dict(out_hidden_size=32, num_position_embeddings=4, deepstack_visual_indexes=[0])
    visual_3_5 = dict(out_hidden_size=32, num_position_embeddings=4)
    visual_glm = dict(out_hidden_size=32, image_size=16)
    per_layer = dict(
        vocab_size_per_layer_input=500, hidden_size_per_layer_input=12, laurel_rank=6,
        altup_num_inputs=3, num_hidden_layers=4, num_kv_shared_layers=2, sliding_window=9,
        layer_types=["sliding_attention", "full_attention"] * 2,
        activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0],
    )
    delta = dict(
        num_hidden_layers=3, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=8, linear_value_head_dim=12, head_dim=16, initializer_range=0.15,
        layer_types=["linear_attention", "linear_attention", "full_attention"],
    )
    experts = dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
        shared_expert_intermediate_size=16,
    )
    ngrams = dict(
        hc_count=2, hc_lowrank=6, ple_layer_ids=[2], ple_embed_dim=12, heads_per_ngram=3,
        ngram_vocab_size_base=70, split_ngram_parts=5, indexer_n_heads=1, indexer_kv_heads=1,
        indexer_head_dim=16, indexer_budget=96, indexer_compress_ratio=4,
    )
    mixture = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12)
    glm_experts = dict(
        n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, n_group=2,
        topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.5,
    )
    llama4_text = dict(
        num_local_experts=4, intermediate_size_mlp=40, attention_chunk_size=16, floor_scale=8,
    )
    return {
        "gemma3_vl": gemma3(
            text(
                num_hidden_layers=6, sliding_window=20, query_pre_attn_scalar=24,
                rope_parameters=dict(
                    full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                    sliding_attention=dict(rope_type="default", rope_theta=1e4),
                ),
            ),
            as_published(
                "layer_types", "rope_theta", "rope_local_base_freq", "tie_word_embeddings",
                "_sliding_window_pattern", "hidden_activation", "rms_norm_eps",
            ),
        ),
        "gemma3_vl-inside": gemma3(
            text(
                num_hidden_layers=3, sliding_window=9,
                attention_bias=True, tie_word_embeddings=False,
                layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            ),
            inside, tie_word_embeddings=False,
        ),
        "gemma3n_vl": gemma3n(text(**per_layer)),
        "gemma3n_vl-published": gemma3n(
            text(**per_layer | dict(altup_num_inputs=2, num_kv_shared_layers=0)),
            as_published("tie_word_embeddings", "rope_theta", "rope_local_base_freq"),
        ),
        "gemma4_vl": gemma4(
            text(
                num_hidden_layers=4, num_kv_shared_layers=2, sliding_window=9, global_head_dim=16,
                layer_types=["sliding_attention", "full_attention"] * 2,
                hidden_size_per_layer_input=4, vocab_size_per_layer_input=512,
                final_logit_softcapping=20.0, initializer_range=0.15,
            ),
        ),
        "gemma4_vl-published": gemma4(
            text(
                num_hidden_layers=2, sliding_window=20, global_head_dim=16,
                layer_types=["sliding_attention", "full_attention"], num_global_key_value_heads=1,
                attention_k_eq_v=True, enable_moe_block=True, num_experts=4, top_k_experts=3,
                moe_intermediate_size=8, hidden_size_per_layer_input=0,
                use_bidirectional_attention="vision", initializer_range=0.15,
            ),
            with_global_heads,
        ),
        "llama4_vl": llama4(text(num_hidden_layers=4, **llama4_text)),
        "llama4_vl-published": llama4(
            text(num_hidden_layers=3, num_experts_per_tok=2, **llama4_text,
                 interleave_moe_layer_step=2, use_qk_norm=False, attention_bias=True,
                 rope_parameters=dict(
                     rope_type="llama3", rope_theta=5e5, factor=4.0, low_freq_factor=1.0,
                     high_freq_factor=4.0, original_max_position_embeddings=32,
                 )),
            as_published("layer_types", "moe_layers", "tie_word_embeddings", "rms_norm_eps"),
        ),
        "mistral3": mistral3(
            text(
                model_type="mistral", sliding_window=None, tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=1e5),
            ),
            as_published("tie_word_embeddings"), tie_word_embeddings=False,
        ),
        "mistral3-inside": mistral3(
            text(
                model_type="ministral3", head_dim=12,
                rope_parameters=dict(
                    rope_type="yarn", rope_theta=1e4, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                    original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0,
                    llama_4_scaling_beta=0.3,
                ),
            ),
            inside,
        ),
        "mistral3-experts": mistral3(
            text(
                "head_dim", model_type="mistral4", num_key_value_heads=4, kv_lora_rank=24,
                q_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
                n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                rope_parameters=dict(
                    rope_type="yarn", rope_theta=1e4, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                    original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0,
                    llama_4_scaling_beta=0.3,
                ),
            ),
            as_published("tie_word_embeddings"), tie_word_embeddings=False,
        ),
        "llava": llava(
            text("head_dim", model_type="llama", num_key_value_heads=4),
            as_published(
                "num_key_value_heads", "attention_bias", "mlp_bias", "hidden_act", "rope_theta",
                "rope_scaling", "tie_word_embeddings", "rms_norm_eps",
            ),
        ),
        "llava-inside": llava(
            text(
                model_type="mistral", sliding_window=20, head_dim=12, tie_word_embeddings=True,
            ),
            inside, tie_word_embeddings=True,
        ),
        "llava-qwen2": llava(
            text("head_dim", model_type="qwen2", tie_word_embeddings=True), tied_in_text,
            tie_word_embeddings=True,
        ),
        "qwen2_vl": qwen(
            Qwen2VLConfig, text("head_dim", **axes([1, 1, 2], 1e6)), flat, visual_2,
        ),
        "qwen2_vl-inside": qwen(
            Qwen2VLConfig,
            text("head_dim", num_key_value_heads=1, **axes(
                [2, 1, 1], 1e4, rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
            )),
            respelled(("model.", INSIDE), ("visual.", "model.visual.")), visual_2,
            tie_word_embeddings=True,
        ),
        "qwen2_5_vl": qwen(
            Qwen2_5_VLConfig,
            text(
                "head_dim", num_hidden_layers=3, use_sliding_window=True, sliding_window=9,
                max_window_layers=1, **axes([1, 1, 2], 1e6),
            ),
            flat, visual_2_5, tie_word_embeddings=True,
        ),
        "qwen2_5_vl-nested": qwen(
            Qwen2_5_VLConfig, text("head_dim", rms_norm_eps=1e-3, **axes([1, 2, 1], 500.0)),
            tied_in_text, visual_2_5, tie_word_embeddings=True,
        ),
        "qwen3_vl": qwen(
            Qwen3VLConfig, text(**axes([2, 1, 1], 5e6, mrope_interleaved=True)),
            as_published("rms_norm_eps", "attention_bias", "hidden_act"), visual_3,
        ),
        "qwen3_vl-tied": qwen(
            Qwen3VLConfig,
            text(attention_bias=True, head_dim=12, **axes([2, 2, 2], 1e4, mrope_interleaved=True)),
            lambda _: None, visual_3, tie_word_embeddings=True,
        ),
        "qwen3_vl_moe": qwen(
            Qwen3VLMoeConfig, text(**mixture, **axes([2, 1, 1], 1e6, mrope_interleaved=True)),
            both(as_published("rms_norm_eps", "tie_word_embeddings"), experts_by_input), visual_3,
        ),
        "qwen3_vl_moe-sparse": qwen(
            Qwen3VLMoeConfig,
            text(
                "head_dim", num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1],
                **mixture, **axes([1, 1, 2], 1e4, mrope_interleaved=True),
            ),
            lambda _: None, visual_3, tie_word_embeddings=True,
        ),
        "qwen3_5_vl": qwen(
            Qwen3_5Config,
            text("head_dim", **delta, **axes(
                [2, 1, 1], 1e5, mrope_interleaved=True, partial_rotary_factor=0.5,
            )),
            as_published("rms_norm_eps", "tie_word_embeddings"), visual_3_5,
        ),
        "qwen3_5_vl-tied": qwen(
            Qwen3_5Config, text("head_dim", **delta | dict(linear_conv_kernel_dim=3)),
            lambda _: None, visual_3_5, tie_word_embeddings=True,
        ),
        "qwen3_5_moe_vl": qwen(
            Qwen3_5MoeConfig, text("head_dim intermediate_size", **delta, **experts),
            lambda _: None, visual_3_5,
        ),
        "qwen3_5_moe_vl-published": qwen(
            Qwen3_5MoeConfig, text("head_dim intermediate_size", **delta, **experts),
            experts_by_output, visual_3_5,
        ),
        "qwen4_exp_vl": qwen(
            Qwen4ExpConfig, text("head_dim intermediate_size", **delta, **experts, **ngrams, **axes(
                [2, 1, 1], 1e5, mrope_interleaved=True, partial_rotary_factor=0.5,
            )),
            lambda _: None, visual_3_5,
        ),
        "qwen4_exp_vl-published": qwen(
            Qwen4ExpConfig,
            text("head_dim intermediate_size", **delta, **experts, **ngrams | dict(ngram_size=2)),
            both(experts_by_output, with_unread_of_ngrams), visual_3_5, tie_word_embeddings=True,
        ),
        "glm4v": model(
            Glm4vConfig, text("head_dim", **axes([1, 1, 2], 1e4)),
            vision_config=VISUAL | visual_glm, **GLM,
        ),
        "glm4v-published": model(
            Glm4vConfig,
            text("head_dim", num_attention_heads=2, num_key_value_heads=1, **axes(
                [1, 1, 2], 500.0, partial_rotary_factor=0.5,
            )),
            as_published("rms_norm_eps"), vision_config=VISUAL | visual_glm, **GLM,
        ),
        "glm4v_moe": model(
            Glm4vMoeConfig,
            text(num_hidden_layers=3, **glm_experts, **axes(
                [1, 1], 1e4, partial_rotary_factor=0.5,
            ) | dict(head_dim=8)),
            vision_config=VISUAL | visual_glm, **GLM,
        ),
        "glm4v_moe-published": model(
            Glm4vMoeConfig,
            text(**glm_experts | dict(n_group=1, first_k_dense_replace=0, n_shared_experts=2),
                 attention_bias=False, **axes([2, 1, 1], 1e5, partial_rotary_factor=1.0)),
            as_published("rms_norm_eps", "tie_word_embeddings"),
            vision_config=VISUAL | visual_glm, **GLM,
        ),
    }
