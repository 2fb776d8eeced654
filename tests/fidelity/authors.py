"""The fidelity tests' models of families whose code is in the folders of their authors alone.

Each is a model of transformers with the same maths, rewritten after its answers are recorded: in
the names, the order of rows and the fields of the authors' checkpoints. `make_models.py` builds
them.
"""

import json
import re

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Ernie4_5_MoeConfig,
    GlmConfig,
    LlamaConfig,
    MiniMaxConfig,
    Qwen2Config,
    SarvamMoEConfig,
    StableLmConfig,
)


def read(folder):
    return load_file(folder / "model.safetensors"), config_of(folder)


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def write(folder, tensors, config):
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def published(config, architecture, model_type, renamed=(), dropped=(), **others):
    """Returns a config as authors write it: with other names, and without the dropped fields."""
    renamed, dropped = dict(renamed), {"rope_parameters", "layer_types", "dtype", *dropped}
    rope = config.get("rope_parameters") or {}
    kept = {renamed.get(name, name): value for name, value in config.items() if name not in dropped}
    scaling = {k: v for k, v in rope.items() if k not in ("rope_theta", "partial_rotary_factor")}
    kept |= dict(
        architectures=[architecture], model_type=model_type, torch_dtype="bfloat16",
        rope_theta=rope.get("rope_theta"),
        rope_scaling=None if scaling.get("rope_type") == "default" else scaling,
    )
    return kept | others


def respelled(tensors, pairs):
    """Returns tensors with parts of their names replaced."""

    def new(name):
        for ours, theirs in pairs:
            name = name.replace(ours, theirs)
        return name

    return {new(name): tensor for name, tensor in tensors.items()}


def stacked(tensors, module):
    """Returns tensors in which q, k and v of a layer are one `module`."""
    together = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"(.*)self_attn\.q_proj\.(weight|bias)", name):
            parts = [tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            together[f"{match[1]}{module}.{match[2]}"] = torch.cat(parts)
        elif not re.search(r"self_attn\.[kv]_proj", name):
            together[name] = tensor
    return together


def as_chatglm(architecture):
    """Rewrites a GLM-4 as a ChatGLM."""

    def rewrite(folder):
        tensors, config = read(folder)
        tensors = respelled(
            stacked(tensors, "self_attention.query_key_value"),
            [
                ("self_attn.o_proj", "self_attention.dense"),
                ("mlp.gate_up_proj", "mlp.dense_h_to_4h"),
                ("mlp.down_proj", "mlp.dense_4h_to_h"),
                ("model.embed_tokens", "transformer.embedding.word_embeddings"),
                ("model.layers", "transformer.encoder.layers"),
                ("model.norm", "transformer.encoder.final_layernorm"),
                ("lm_head", "transformer.output_layer"),
            ],
        )
        tensors["transformer.rotary_pos_emb.inv_freq"] = torch.ones(2)
        theta = config["rope_parameters"]["rope_theta"]
        names = dict(
            num_hidden_layers="num_layers", vocab_size="padded_vocab_size",
            intermediate_size="ffn_hidden_size", head_dim="kv_channels",
            max_position_embeddings="seq_length", rms_norm_eps="layernorm_epsilon",
            attention_bias="add_qkv_bias",
        )
        config = published(
            config, architecture, "chatglm", names,
            ["num_key_value_heads", "hidden_act", "attention_dropout"],
            multi_query_attention=True, multi_query_group_num=config["num_key_value_heads"],
            rope_ratio=theta / 10_000, original_rope=True, rmsnorm=True, post_layer_norm=True,
            add_bias_linear=False, apply_residual_connection_post_layernorm=False,
            apply_query_key_layer_scaling=True, attention_softmax_in_fp32=True,
            fp32_residual_connection=False,
        )
        # The class has no field for the base.
        config.pop("rope_theta")
        config.pop("rope_scaling")
        write(folder, tensors, config)

    return rewrite


def as_mimo(folder):
    """Gives a Qwen2 the fields and the unread layers of MiMo."""
    tensors, config = read(folder)
    first = {name: tensor for name, tensor in tensors.items() if name.startswith("model.layers.0.")}
    for name, tensor in first.items():
        tensors[name.replace("layers.0", "mtp_layers.0")] = tensor.clone()
    width = config["hidden_size"]
    tensors["model.mtp_layers.0.input_proj.weight"] = torch.zeros(width, 2 * width)
    config = published(
        config, "MiMoForCausalLM", "mimo", head_dim=width // config["num_attention_heads"],
        attention_bias=True, num_nextn_predict_layers=1,
    )
    write(folder, tensors, config)


def as_orion(folder):
    """Gives a StableLM the fields of Orion."""
    tensors, config = read(folder)
    dropped = "partial_rotary_factor qk_layernorm use_parallel_residual use_qkv_bias".split()
    config = published(
        config, "OrionForCausalLM", "orion", dict(layer_norm_eps="rms_norm_eps"), dropped,
    )
    write(folder, tensors, config)


def as_pangu(folder):
    """Gives a Llama the fields of openPangu Embedded."""
    tensors, config = read(folder)
    names = dict(attention_bias="bias")
    dropped = ["mlp_bias", "pretraining_tp"]
    write(folder, tensors, published(config, "PanguEmbeddedForCausalLM", "PanguEmbedded", names, dropped))


def without_choice_biases(folder):
    """Takes the biases from the choice of ERNIE's experts: they change nothing if they are zero."""
    tensors, config = read(folder)
    for name, tensor in tensors.items():
        if name.endswith("e_score_correction_bias"):
            tensor.zero_()
    write(folder, tensors, config)


def of_softmax(folder):
    """Returns the tensors and the config of an ERNIE, whose rotary pairs are neighbours, with pairs
    of both halves of a head."""
    tensors, config = read(folder)
    width = config["hidden_size"] // config["num_attention_heads"]
    turned = {}
    for name, tensor in tensors.items():
        if name.endswith("e_score_correction_bias"):
            continue
        if re.search(r"self_attn\.[qk]_proj\.weight", name):
            tensor = tensor.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)
        turned[name] = tensor
    return turned, config


# The fields that ERNIE has for experts.
ERNIE = dict(moe_num_experts="num_experts", moe_k="num_experts_per_tok")
ERNIE_ALONE = "moe_norm_min moe_layer_end_index moe_layer_interval use_bias".split()


def as_deepseek(folder):
    """Rewrites an ERNIE as a DeepSeek MoE."""
    tensors, config = of_softmax(folder)
    names = ERNIE | dict(
        moe_num_experts="n_routed_experts", moe_num_shared_experts="n_shared_experts",
        moe_layer_start_index="first_k_dense_replace",
    )
    config = published(
        config, "DeepseekForCausalLM", "deepseek", names, ERNIE_ALONE, scoring_func="softmax",
        norm_topk_prob=config["moe_norm_min"] < 1, moe_layer_freq=1,
    )
    write(folder, tensors, config)


def with_unit_columns(folder):
    """Divides the columns of the output layer by their norms, in float32."""
    without_choice_biases(folder)
    tensors, config = read(folder)
    head = tensors["lm_head.weight"].float()
    tensors["lm_head.weight"] = head / (head.norm(dim=0, keepdim=True) + 1e-7)
    write(folder, tensors, config)


# The names of Ling.
LING = [
    ("self_attn.o_proj", "attention.dense"),
    ("model.embed_tokens", "model.word_embeddings"),
]


def as_ling(folder):
    """Rewrites an ERNIE as a Ling of the first generation."""
    tensors, config = of_softmax(folder)
    tensors = respelled(stacked(tensors, "attention.query_key_value"), LING)
    names = ERNIE | dict(
        moe_num_shared_experts="num_shared_experts", moe_layer_start_index="first_k_dense_replace",
    )
    config = published(
        config, "BailingMoeForCausalLM", "bailing_moe", names, ERNIE_ALONE, use_bias=False,
        norm_topk_prob=config["moe_norm_min"] < 1, norm_head=False, use_qkv_bias=False,
    )
    write(folder, tensors, config)


def as_ling_of_norms(folder):
    """Rewrites an ERNIE as a Ling whose output layer is still to be divided by norms."""
    as_ling(folder)
    tensors, config = read(folder)
    head = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = head * torch.linspace(0.5, 3.0, head.shape[1])
    write(folder, tensors, config | dict(norm_head=True))


def as_ling_2(folder):
    """Gives a Sarvam, whose tensors have Ling's names already, the fields of Ling 2.0."""
    tensors, config = read(folder)
    names = dict(
        n_routed_experts="num_experts", n_shared_experts="num_shared_experts",
        attention_bias="use_qkv_bias",
    )
    part = config["rope_parameters"].get("partial_rotary_factor", 1.0)
    config = published(
        config, "BailingMoeV2ForCausalLM", "bailing_moe", names, partial_rotary_factor=part,
        score_function="sigmoid", moe_router_enable_expert_bias=True, use_rmsnorm=True,
        use_bias=False, router_dtype="fp32", num_nextn_predict_layers=0,
        moe_shared_expert_intermediate_size=config["moe_intermediate_size"],
    )
    write(folder, tensors, config)


def of_first_dense(count):
    """Returns a change from the lists of layers to the number of the first, dense ones."""

    def rewrite(folder):
        tensors, config = read(folder)
        lists = ("layer_types", "mlp_layer_types")
        config = {name: value for name, value in config.items() if name not in lists}
        write(folder, tensors, config | dict(first_k_dense_replace=count))

    return rewrite


def as_sarvam(folder):
    """Gives a Sarvam with latent attention the fields of its authors' config."""
    tensors, config = read(folder)
    scaling = config.pop("rope_parameters")
    names = dict(n_routed_experts="num_experts", n_shared_experts="num_shared_experts")
    theta = scaling.pop("rope_theta")
    scaling["type"] = "deepseek_" + scaling.pop("rope_type")
    config = published(config, "SarvamMLAForCausalLM", "sarvam_mla", names)
    rank = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    config |= dict(rope_scaling=scaling, rope_theta=theta, head_dim=rank)
    write(folder, tensors, config)


def rounded(folder):
    """Rounds the weights of a MiniMax to bfloat16, but not the tables of its decays."""
    tensors, config = read(folder)
    for name, tensor in tensors.items():
        if name.endswith("weight"):
            tensors[name] = tensor.to(torch.bfloat16).float()
    write(folder, tensors, config)


def as_minimax(architecture, model_type, part=1.0):
    """Gives a MiniMax the fields of its authors' config.

    If a part of a head rotates, the class has turning pairs in both halves of a head. Authors have
    them in the first elements, and a base for that width.
    """

    def rewrite(folder):
        tensors, config = read(folder)
        heads, width = config["num_attention_heads"], config["head_dim"]
        # Their code computes the tables of decays.
        weights = [name for name in tensors if name.endswith("weight")]
        tensors = {name: tensors[name].to(torch.bfloat16) for name in weights}
        turning = int(part * width) // 2
        half = list(range(width // 2))
        order = [half[:turning], [width // 2 + i for i in half[:turning]]]
        order += [half[turning:], [width // 2 + i for i in half[turning:]]]
        order = sum(order, [])
        for name, tensor in tensors.items():
            if re.search(r"self_attn\.[qk]_proj\.weight", name):
                tensors[name] = tensor.unflatten(0, (-1, width))[:, order].flatten(0, 1)
        names = {"num_experts": "num_local_experts"}
        for kind, theirs in dict(
            full_attn="full_attention", linear_attn="linear_attention", mlp="mlp",
        ).items():
            for factor in ("alpha", "beta"):
                names[f"{kind}_{factor}_factor"] = f"layernorm_{theirs}_{factor}"
        types = config["layer_types"]
        theta = config["rope_parameters"]["rope_theta"]
        config = published(
            config, architecture, model_type, names, ["block_size", "router_aux_loss_coef"],
            attn_type_list=[int(kind == "full_attention") for kind in types],
            postnorm=True, rotary_dim=2 * turning, shared_intermediate_size=0,
            shared_moe_mode="sigmoid",
        )
        assert len(types) == config["num_hidden_layers"] and heads & (heads - 1) == 0
        # The published config has no scaling.
        config.pop("rope_scaling")
        write(folder, tensors, config | dict(rope_theta=theta**part))

    return rewrite


def blocks(*layers):
    """Returns a Llama's changes before and after its answers are recorded, which make a Nemotron of
    it. `layers` has the key heads and the inner width of each layer, or None for a part that it
    lacks. A part without an effect has zeros at its end, and equal key heads are one."""

    def before(folder):
        tensors, config = read(folder)
        heads = config["num_attention_heads"]
        for layer, (groups, width) in enumerate(layers):
            module = f"model.layers.{layer}"
            if groups is None:
                tensors[f"{module}.self_attn.o_proj.weight"].zero_()
            else:
                for part in "kv":
                    name = f"{module}.self_attn.{part}_proj.weight"
                    each = tensors[name].unflatten(0, (heads, -1))[:: heads // groups]
                    tensors[name] = each.repeat_interleave(heads // groups, 0).flatten(0, 1)
            tensors[f"{module}.mlp.down_proj.weight"][:, width or 0 :].zero_()
        write(folder, tensors, config)

    def rewrite(folder):
        tensors, config = read(folder)
        heads = config["num_attention_heads"]
        block_configs = []
        for layer, (groups, width) in enumerate(layers):
            module = f"model.layers.{layer}."
            if groups is None:
                lost = (module + "self_attn", module + "input_layernorm")
                tensors = {k: v for k, v in tensors.items() if not k.startswith(lost)}
            else:
                for part in "kv":
                    name = f"{module}self_attn.{part}_proj.weight"
                    each = tensors[name].unflatten(0, (heads, -1))
                    tensors[name] = each[:: heads // groups].flatten(0, 1)
            if width is None:
                lost = (module + "mlp", module + "post_attention_layernorm")
                tensors = {k: v for k, v in tensors.items() if not k.startswith(lost)}
            else:
                for part in ("gate", "up"):
                    name = f"{module}mlp.{part}_proj.weight"
                    tensors[name] = tensors[name][:width]
                name = f"{module}mlp.down_proj.weight"
                tensors[name] = tensors[name][:, :width]
            attention = dict(
                no_op=groups is None, n_heads_in_group=groups and heads // groups,
                replace_with_linear=False, sparsify=None, window_length=None, num_sink_tokens=None,
            )
            ffn = dict(
                no_op=width is None, ffn_mult=None, replace_with_linear=False, sparsify=None,
            )
            if width is not None and width % 256 == 0:
                ffn["ffn_mult"] = 1.5 * (width - 100) / config["hidden_size"]
            elif width is not None:
                ffn["intermediate_size"] = width
            block_configs.append(dict(attention=attention, ffn=ffn))
        config = published(
            config, "DeciLMForCausalLM", "nemotron-nas", block_configs=block_configs,
            intermediate_size=None, num_key_value_heads=None,
        )
        write(folder, tensors, config)

    return dict(before=before, rewrite=rewrite)


def models(tiniest, rope):
    """Returns the models by their folders. `tiniest` makes one of a config, with smallest sizes."""
    softmax = dict(before=without_choice_biases)
    of_experts = dict(moe_num_experts=5, moe_k=2, moe_intermediate_size=8, use_bias=False)
    return {
        "chatglm": tiniest(
            GlmConfig, num_attention_heads=4, num_key_value_heads=2, attention_bias=True,
            tie_word_embeddings=False, **rope("default", 500_000.0, partial_rotary_factor=0.5),
        )
        | dict(rewrite=as_chatglm("ChatGLMModel")),
        "chatglm-all-heads": tiniest(
            GlmConfig, num_key_value_heads=3, num_hidden_layers=3, head_dim=10,
            attention_bias=False, tie_word_embeddings=False, rms_norm_eps=1e-3,
            **rope("default", 10_000.0, partial_rotary_factor=0.5),
        )
        | dict(rewrite=as_chatglm("ChatGLMForConditionalGeneration")),
        "mimo": tiniest(Qwen2Config, "head_dim", **rope("default", 640_000.0))
        | dict(rewrite=as_mimo),
        "mimo-tied": tiniest(
            Qwen2Config, "head_dim", num_hidden_layers=3, num_key_value_heads=3,
            tie_word_embeddings=True, rms_norm_eps=1e-3,
        )
        | dict(rewrite=as_mimo),
        "orion": tiniest(
            StableLmConfig, "head_dim", **rope("default", 10_000.0, partial_rotary_factor=1.0),
        )
        | dict(rewrite=as_orion),
        "orion-tied": tiniest(
            StableLmConfig, "head_dim", num_hidden_layers=3, num_key_value_heads=3,
            tie_word_embeddings=True, layer_norm_eps=1e-3, hidden_act="gelu",
            **rope("default", 500.0, partial_rotary_factor=1.0),
        )
        | dict(rewrite=as_orion),
        "pangu_embedded": tiniest(LlamaConfig, "head_dim", attention_bias=True)
        | dict(rewrite=as_pangu),
        "pangu_embedded-no-biases": tiniest(
            LlamaConfig, "head_dim", num_hidden_layers=3, num_key_value_heads=3,
            tie_word_embeddings=True, rms_norm_eps=1e-3, **rope("default", 16_000_000.0),
        )
        | dict(rewrite=as_pangu),
        "deepseek": tiniest(
            Ernie4_5_MoeConfig, "head_dim", num_hidden_layers=3, moe_num_shared_experts=2,
            moe_layer_start_index=1, moe_norm_min=1.0, tie_word_embeddings=False,
            **of_experts, **rope("default", 10_000.0),
        )
        | softmax | dict(rewrite=as_deepseek),
        "deepseek-normalized": tiniest(
            Ernie4_5_MoeConfig, "head_dim", num_key_value_heads=3, moe_num_shared_experts=1,
            moe_layer_start_index=0, tie_word_embeddings=True, rms_norm_eps=1e-3,
            **of_experts | dict(moe_k=3), **rope("default", 500.0),
        )
        | softmax | dict(rewrite=as_deepseek),
        "bailing_moe": tiniest(
            Ernie4_5_MoeConfig, "head_dim", moe_num_shared_experts=2, moe_layer_start_index=0,
            tie_word_embeddings=False, **of_experts, **rope("default", 600_000.0),
        )
        | softmax | dict(rewrite=as_ling),
        "bailing_moe-dense": tiniest(
            Ernie4_5_MoeConfig, "head_dim", num_hidden_layers=3, num_key_value_heads=3,
            moe_num_shared_experts=1, moe_layer_start_index=2, moe_norm_min=1.0,
            tie_word_embeddings=True, rms_norm_eps=1e-3, **of_experts, **rope("default", 500.0),
        )
        | softmax | dict(rewrite=as_ling),
        "bailing_moe-norm-head": tiniest(
            Ernie4_5_MoeConfig, "head_dim", moe_num_shared_experts=1, moe_layer_start_index=0,
            tie_word_embeddings=False, **of_experts, **rope("default", 10_000.0),
        )
        | dict(before=with_unit_columns, rewrite=as_ling_of_norms),
        "bailing_moe_v2": tiniest(
            SarvamMoEConfig, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=8,
            n_group=4, topk_group=2, tie_word_embeddings=False, partial_rotary_factor=0.5,
            **rope("default", 600_000.0, partial_rotary_factor=0.5),
        )
        | dict(rewrite=as_ling_2),
        "bailing_moe_v2-plain": tiniest(
            SarvamMoEConfig, num_hidden_layers=3, num_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=8, n_shared_experts=2, first_k_dense_replace=2, use_qk_norm=False,
            attention_bias=True, norm_topk_prob=False, routed_scaling_factor=1.5, head_dim=10,
            tie_word_embeddings=True, **rope("default", 500.0),
        )
        | dict(rewrite=as_ling_2),
        "minimax_text01": tiniest(
            MiniMaxConfig, num_hidden_layers=3, num_attention_heads=4, num_local_experts=4,
            num_experts_per_tok=2, block_size=8, full_attn_alpha_factor=1.5,
            full_attn_beta_factor=0.7, linear_attn_alpha_factor=0.8, linear_attn_beta_factor=1.2,
            mlp_alpha_factor=1.3, mlp_beta_factor=0.9,
            layer_types=["linear_attention"] * 2 + ["full_attention"],
            tie_word_embeddings=False,
            **rope("proportional", 1_000_000.0, partial_rotary_factor=0.5),
        )
        | dict(
            dtype="float32", before=rounded,
            rewrite=as_minimax("MiniMaxText01ForCausalLM", "minimax_text_01", 0.5),
        ),
        "minimax_text01-m1": tiniest(
            MiniMaxConfig, num_hidden_layers=3, num_attention_heads=2, num_local_experts=5,
            num_experts_per_tok=3, block_size=16, head_dim=12, num_key_value_heads=2,
            layer_types=["full_attention", "linear_attention", "full_attention"],
            mlp_alpha_factor=1.2, rms_norm_eps=1e-3, tie_word_embeddings=True,
            **rope("default", 500.0),
        )
        | dict(
            dtype="float32", before=rounded,
            rewrite=as_minimax("MiniMaxM1ForCausalLM", "minimax_m1"),
        ),
        "deci_lm": tiniest(
            LlamaConfig, "head_dim", num_attention_heads=4, num_key_value_heads=4,
            num_hidden_layers=4, intermediate_size=24,
        )
        | blocks((2, 24), (None, 16), (2, None), (2, 8)),
        "deci_lm-heads": tiniest(
            LlamaConfig, "head_dim", num_attention_heads=4, num_key_value_heads=4,
            num_hidden_layers=3, intermediate_size=256, tie_word_embeddings=True,
            **rope("llama3", 500_000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32),
        )
        | blocks((4, 256), (1, 12), (2, 20)),
    }
