"""More models of the kind in `authors.py`.

transformers has no class with the maths of some of them. Those are its Llama with changes of the
code here, by the formulas of vLLM: ALiBi, whose biases are those of its BLOOM, and connections that
skip layers. Chunks are in its Gemma 3. Several passes through the layers are by the formulas of llama.cpp.
"""

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers import Gemma3ForCausalLM, Gemma3TextConfig
from transformers import GraniteConfig, HyperCLOVAXConfig, HyperCLOVAXForCausalLM, LlamaConfig, LlamaForCausalLM, SarvamMoEConfig
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from authors import as_ling_2, published, read, respelled, stacked, write


class AlibiConfig(LlamaConfig):
    model_type = "llama_alibi"


class WithoutRotation(torch.nn.Module):
    """The rotary embedding of angles that are zero."""

    def __init__(self, head_dim):
        super().__init__()
        self.head_dim = head_dim

    def forward(self, x, position_ids):
        ones = torch.ones(*position_ids.shape, self.head_dim, dtype=x.dtype)
        return ones, torch.zeros_like(ones)


class AlibiForCausalLM(LlamaForCausalLM):
    """Llama with ALiBi in place of rotary embeddings: vLLM's Baichuan 13B."""

    config_class = AlibiConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.rotary_emb = WithoutRotation(config.head_dim)

    def forward(self, input_ids, **others):
        length, heads = input_ids.shape[1], self.config.num_attention_heads
        ones = torch.ones(1, length, dtype=torch.long)
        biases = build_alibi_tensor(ones, heads, self.dtype).view(1, heads, 1, length)
        later = torch.ones(length, length).triu(1).bool()
        masked = torch.zeros(length, length, dtype=self.dtype).masked_fill(later, float("-inf"))
        return super().forward(input_ids, attention_mask=biases + masked, **others)


class SkippingConfig(LlamaConfig):
    model_type = "llama_skipping"


class SkippingForCausalLM(LlamaForCausalLM):
    """Llama with the backbone skip connections of vLLM's Solar."""

    config_class = SkippingConfig

    def __init__(self, config):
        super().__init__(config)
        kept = {}

        def mixed(index, hidden):
            for number in (1, 2):
                if index in getattr(config, f"bskcn_{number}"):
                    kept[number] = hidden
            for number in (1, 2):
                if index in getattr(config, f"bskcn_{number + 2}"):
                    weight = config.bskcn_tv[1]
                    hidden = kept[number] * weight + hidden * (1 - weight)
            return hidden

        def hook(index):
            return lambda _, inputs: (mixed(index, inputs[0]), *inputs[1:])

        for index, layer in enumerate(self.model.layers):
            layer.register_forward_pre_hook(hook(index))


class ChunkedConfig(Gemma3TextConfig):
    model_type = "gemma3_chunked"


class ChunkedForCausalLM(Gemma3ForCausalLM):
    """Gemma 3 with the chunks of vLLM's Rnj-1 in place of windows."""

    config_class = ChunkedConfig

    def forward(self, input_ids, **others):
        place = torch.arange(input_ids.shape[1])
        chunk = place // (self.config.sliding_window // 2)
        later = place[None] > place[:, None]
        far = chunk[:, None] - chunk[None] > 1
        masked = lambda hidden: torch.zeros(1, 1, *hidden.shape, dtype=self.dtype).masked_fill(
            hidden, float("-inf")
        )
        masks = dict(full_attention=masked(later), sliding_attention=masked(later | far))
        return super().forward(input_ids, attention_mask=masks, **others)


class LoopedConfig(LlamaConfig):
    model_type = "llama_looped"


class LoopedForCausalLM(LlamaForCausalLM):
    """Llama with the passes of llama.cpp's Nanbeige."""

    config_class = LoopedConfig

    def forward(self, input_ids, **others):
        hidden = self.model.embed_tokens(input_ids)
        norm, count = self.model.norm, self.config.num_loops
        for number in range(1, count + 1):
            has_norm = number == count or not self.config.skip_loop_final_norm
            self.model.norm = norm if has_norm else torch.nn.Identity()
            hidden = self.model(inputs_embeds=hidden, use_cache=False).last_hidden_state
        return CausalLMOutput(logits=self.lm_head(hidden))


class LoopedSandwichConfig(HyperCLOVAXConfig):
    model_type = "hyperclovax_looped"


class LoopedSandwichForCausalLM(HyperCLOVAXForCausalLM):
    """HyperCLOVA X with the passes of vLLM's Ouro."""

    config_class = LoopedSandwichConfig

    def forward(self, input_ids, **others):
        hidden = self.model.embed_tokens(input_ids)
        for _ in range(self.config.total_ut_steps):
            hidden = self.model(inputs_embeds=hidden, use_cache=False).last_hidden_state
        return CausalLMOutput(logits=self.lm_head(hidden))


for config, model in (
    (AlibiConfig, AlibiForCausalLM),
    (SkippingConfig, SkippingForCausalLM),
    (LoopedConfig, LoopedForCausalLM),
    (ChunkedConfig, ChunkedForCausalLM),
    (LoopedSandwichConfig, LoopedSandwichForCausalLM),
):
    AutoConfig.register(config.model_type, config)
    AutoModelForCausalLM.register(config, model)


def as_baichuan(architecture):
    """Rewrites a Llama as a Baichuan."""

    def rewrite(folder):
        tensors, config = read(folder)
        dropped = ["attention_bias", "mlp_bias", "pretraining_tp", "head_dim", "num_key_value_heads"]
        config = published(
            config, architecture, "baichuan", dict(max_position_embeddings="model_max_length"), dropped,
        )
        # The class has no field for the base.
        config.pop("rope_theta")
        config.pop("rope_scaling")
        write(folder, stacked(tensors, "self_attn.W_pack"), config)

    return rewrite


def as_solar(folder):
    """Gives a Llama with skip connections the fields of Solar."""
    tensors, config = read(folder)
    config = published(config, "SolarForCausalLM", "solar", dropped=["pretraining_tp"], sliding_window=2047)
    write(folder, tensors, config)


def as_ouro(folder):
    """Gives a HyperCLOVA X with passes the names and fields of Ouro, and a gate without use."""
    tensors, config = read(folder)
    tensors = respelled(
        tensors,
        [("post_norm1", "input_layernorm_2"), ("post_norm2", "post_attention_layernorm_2")],
    )
    for part, shape in (("weight", (1, config["hidden_size"])), ("bias", (1,))):
        tensors[f"model.early_exit_gate.{part}"] = torch.zeros(shape)
    dropped = ["embedding_multiplier", "logits_scaling", "attention_multiplier", "residual_multiplier"]
    dropped += ["use_post_norm", "attention_bias", "mlp_bias", "pretraining_tp"]
    config = published(
        config, "OuroForCausalLM", "ouro", dropped=dropped, early_exit_threshold=1.0,
        use_sliding_window=False, max_window_layers=28, sliding_window=None,
    )
    write(folder, tensors, config)


def as_rnj1(has_one_base):
    """Gives a Gemma 3 with chunks the fields of Rnj-1, with one base for all layers or two."""

    def rewrite(folder):
        tensors, config = read(folder)
        chunked = dict(sliding_attention="chunked_attention")
        config["layer_types"] = [chunked.get(kind, kind) for kind in config["layer_types"]]
        rope = {chunked.get(kind, kind): one for kind, one in config.pop("rope_parameters").items()}
        if has_one_base:
            config |= dict(rope_theta=rope["full_attention"]["rope_theta"], rope_scaling=None)
        else:
            config["rope_parameters"] = rope
        write(folder, tensors, config | dict(architectures=["Rnj1ForCausalLM"], model_type="rnj1"))

    return rewrite


def as_nanbeige(folder):
    """Gives a Llama with passes the fields of Nanbeige."""
    tensors, config = read(folder)
    config = published(
        config, "NanbeigeForCausalLM", "nanbeige", dropped=["pretraining_tp"], loop_share_kv=False,
        loop_middle_layers=[], emb_neighbor_num=None, qk_layernorm=False,
    )
    write(folder, tensors, config)


def with_biases_at_ends(folder):
    """Takes the biases from all projections but those that end attention and MLP."""
    tensors, config = read(folder)
    for name, tensor in tensors.items():
        if name.endswith("bias") and not name.endswith(("o_proj.bias", "down_proj.bias")):
            tensor.zero_()
    write(folder, tensors, config)


def as_telechat(architecture):
    """Rewrites a Llama as a TeleChat2, with keys and values in one matrix head by head."""

    def rewrite(folder):
        tensors, config = read(folder)
        heads = config["num_key_value_heads"]
        together = {}
        for name, tensor in tensors.items():
            if "bias" in name and not name.endswith(("o_proj.bias", "down_proj.bias")):
                continue
            if "v_proj" in name:
                continue
            if "k_proj" in name:
                pair = [tensor, tensors[name.replace("k_proj", "v_proj")]]
                pair = torch.stack([each.unflatten(0, (heads, -1)) for each in pair], dim=1)
                name, tensor = name.replace("k_proj", "key_value"), pair.flatten(0, 2)
            together[name] = tensor
        tensors = respelled(
            together,
            [
                ("self_attn.q_proj", "self_attention.query"),
                ("self_attn.key_value", "self_attention.key_value"),
                ("self_attn.o_proj", "self_attention.dense"),
                ("model.embed_tokens", "transformer.word_embeddings"),
                ("model.layers", "transformer.h"),
                ("model.norm", "transformer.ln_f"),
            ],
        )
        names = dict(
            num_hidden_layers="n_layer", num_attention_heads="n_head",
            intermediate_size="ffn_hidden_size", rms_norm_eps="layer_norm_epsilon",
            max_position_embeddings="seq_length",
        )
        dropped = ["attention_bias", "mlp_bias", "pretraining_tp", "hidden_act", "head_dim"]
        config = published(
            config, architecture, "telechat", names, dropped, embed_layernorm=False, logn=False,
            apply_residual_connection_post_layernorm=False, training_seqlen=8192,
        )
        write(folder, tensors, config)

    return rewrite


def as_teleflm(folder):
    """Gives a Granite the fields of Tele-FLM."""
    tensors, config = read(folder)
    factors = {
        name: config.pop(name)
        for name in ("embedding_multiplier", "logits_scaling", "attention_multiplier", "residual_multiplier")
    }
    config = published(config, "TeleFLMForCausalLM", "TeleFLM", dropped=["mlp_bias"])
    if factors["embedding_multiplier"] != 1.0:
        config |= dict(
            use_mup=True, input_mult=factors["embedding_multiplier"], output_mult=0.5,
            mup_scale_factor=0.5 * factors["logits_scaling"],
        )
    else:
        config |= dict(use_mup=False)
    write(folder, tensors, config)


def as_param2(folder):
    """Gives a Sarvam, whose tensors have Ling's names already, the fields of Param2."""
    as_ling_2(folder)
    tensors, config = read(folder)
    whole = config["moe_intermediate_size"] * config["num_shared_experts"]
    config |= dict(
        architectures=["Param2MoEForCausalLM"], model_type="param2moe",
        moe_shared_expert_intermediate_size=whole,
    )
    # A number that all biases have in common changes no choice.
    for name in [name for name in tensors if name.endswith("expert_bias")]:
        tensors[name] = tensors[name].float() + 0.25
    write(folder, tensors, config)


def models(tiniest, rope):
    """Returns the models by their folders. `tiniest` makes one of a config, with smallest sizes."""
    biases = dict(attention_bias=True, mlp_bias=True)
    granite = dict(attention_multiplier=8**-0.5, residual_multiplier=1.0)
    sandwich = dict(use_post_norm=True, attention_multiplier=8**-0.5, residual_multiplier=1.0)
    sandwich |= dict(embedding_multiplier=1.0, logits_scaling=1.0)
    # Some are served by an engine, with the recorded tokenizer's vocabulary.
    served, long = dict(vocab_size=512), [(None, [1, 7, 40, 70])]
    return {
        "baichuan": tiniest(
            LlamaConfig, "head_dim num_key_value_heads", num_key_value_heads=3,
        )
        | dict(rewrite=as_baichuan("BaiChuanForCausalLM")),
        "baichuan-alibi": tiniest(
            AlibiConfig, "head_dim", num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=6, rms_norm_eps=1e-3,
        )
        | dict(rewrite=as_baichuan("BaichuanForCausalLM")),
        "solar": tiniest(
            SkippingConfig, "head_dim", num_hidden_layers=6, bskcn_1=[1], bskcn_2=[1, 3],
            bskcn_3=[2, 4], bskcn_4=[4, 5], bskcn_tv=[0.9, 0.3], initializer_range=0.3,
        )
        | dict(rewrite=as_solar),
        "solar-biases": tiniest(
            SkippingConfig, "head_dim", num_hidden_layers=4, num_key_value_heads=3,
            bskcn_1=[0, 1], bskcn_2=[], bskcn_3=[2, 3], bskcn_4=[], bskcn_tv=[0.5, 0.7],
            tie_word_embeddings=True, rms_norm_eps=1e-3, **biases, **rope("default", 500.0),
        )
        | dict(rewrite=as_solar),
        "ouro": tiniest(
            LoopedSandwichConfig, "head_dim", total_ut_steps=4, num_key_value_heads=3,
            tie_word_embeddings=False, **sandwich,
        )
        | dict(rewrite=as_ouro),
        "ouro-two": tiniest(
            LoopedSandwichConfig, "head_dim", total_ut_steps=2, num_hidden_layers=3,
            tie_word_embeddings=True, rms_norm_eps=1e-3, **sandwich, **rope("default", 500.0),
        )
        | dict(rewrite=as_ouro),
        "rnj1": tiniest(
            ChunkedConfig, **served, num_hidden_layers=3, sliding_window=24, query_pre_attn_scalar=10,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            final_logit_softcapping=9.0, initializer_range=0.35,
        )
        | dict(rewrite=as_rnj1(False), runs=long),
        "rnj1-one-base": tiniest(
            ChunkedConfig, num_attention_heads=4, num_key_value_heads=2, sliding_window=7,
            layer_types=["sliding_attention"] * 2, attention_bias=True,
            tie_word_embeddings=False, rope_parameters=dict(
                sliding_attention=rope("default", 900.0)["rope_parameters"],
                full_attention=rope("default", 900.0)["rope_parameters"],
            ),
        )
        | dict(rewrite=as_rnj1(True)),
        "nanbeige": tiniest(
            LoopedConfig, **served, num_loops=2, skip_loop_final_norm=False, head_dim=10,
            tie_word_embeddings=False, **rope("default", 70_000_000.0),
        )
        | dict(rewrite=as_nanbeige, runs=long),
        "nanbeige-three": tiniest(
            LoopedConfig, num_loops=3, skip_loop_final_norm=True, num_key_value_heads=3,
            tie_word_embeddings=True, rms_norm_eps=1e-3, **biases, **rope("default", 500.0),
        )
        | dict(rewrite=as_nanbeige),
        "telechat2": tiniest(LlamaConfig, "head_dim", num_attention_heads=4, num_key_value_heads=2, **biases)
        | dict(before=with_biases_at_ends, rewrite=as_telechat("TeleChat2ForCausalLM")),
        "telechat2-all-heads": tiniest(
            LlamaConfig, "head_dim", num_hidden_layers=3, num_key_value_heads=3,
            tie_word_embeddings=True, rms_norm_eps=1e-3, **biases, **rope("default", 500.0),
        )
        | dict(before=with_biases_at_ends, rewrite=as_telechat("TeleChatForCausalLM")),
        "teleflm": tiniest(
            GraniteConfig, "head_dim", embedding_multiplier=2.0, logits_scaling=1.5,
            num_key_value_heads=3, tie_word_embeddings=False, **granite,
        )
        | dict(rewrite=as_teleflm),
        "teleflm-plain": tiniest(
            GraniteConfig, "head_dim", num_hidden_layers=3, attention_bias=True,
            tie_word_embeddings=True, rms_norm_eps=1e-3, **granite, **rope("default", 500.0),
        )
        | dict(rewrite=as_teleflm),
        "param2moe": tiniest(
            SarvamMoEConfig, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=8,
            num_hidden_layers=3, n_shared_experts=2, n_group=4, topk_group=2,
            tie_word_embeddings=False, **rope("default", 600_000.0),
        )
        | dict(rewrite=as_param2),
        "param2moe-plain": tiniest(
            SarvamMoEConfig, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
            use_qk_norm=False, attention_bias=True, norm_topk_prob=False,
            routed_scaling_factor=1.5, head_dim=10, tie_word_embeddings=True,
            **rope("default", 500.0),
        )
        | dict(rewrite=as_param2),
    }
