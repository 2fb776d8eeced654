"""Makes heads that guess tokens, and records their logits as plain torch computes them.

    python3 make_heads.py            all heads
    python3 make_heads.py NAME ...   some of them

Each head in `heads/NAME` has seeded random weights and belongs to a model of `models/`. The oracle
is built from the modules of transformers, in float32, over the whole text in every pass: it has no
cache. `golden.json` has for each prompt the token that the model draws after it, the tokens that
the head guesses next, and every fourth logit of each guess. Needs torch and transformers.
"""

import json
import math
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen3Config
from transformers import DeepseekV3Config, Llama4TextConfig
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3
from transformers.models.llama import modeling_llama as llama
from transformers.models.llama4 import modeling_llama4 as llama4
from transformers.models.longcat_flash import modeling_longcat_flash as longcat
from transformers.models.mistral import modeling_mistral as mistral
from transformers.models.qwen3 import modeling_qwen3 as qwen3

HERE = Path(__file__).parent
GUESSES = 4
LENGTHS = [3, 21, 40]
NEAR_TIE = 1e-3
# Of the logits, every fourth is recorded.
STRIDE = 4


def causal(length):
    """Returns an additive mask, `[1, 1, length, length]`."""
    mask = torch.full((length, length), float("-inf"))
    return torch.triu(mask, diagonal=1)[None, None]


def randomize(module, generator, std=0.25):
    """Gives every parameter seeded values that bfloat16 can hold. Those of norms are near one."""
    for name, parameter in sorted(module.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = parameter.dim() == 1 and not name.endswith("bias")
        value = 1.0 + 0.2 * noise if is_norm else std * noise
        parameter.data = value.to(torch.bfloat16).float()


def last_norm(target):
    """Returns the model's norm after all layers."""
    return target.model.norm_f if hasattr(target.model, "norm_f") else target.model.norm


def norm_eps(config):
    return getattr(config, "rms_norm_eps", None) or config.layer_norm_epsilon


def llama_config(target, kind=LlamaConfig, num_hidden_layers=1, num_kv_heads=2, **fields):
    hidden = target.config.hidden_size
    config = kind(
        vocab_size=target.config.vocab_size,
        hidden_size=hidden,
        intermediate_size=56,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=4,
        num_key_value_heads=num_kv_heads,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        rope_theta=20_000.0,
        attn_implementation="eager",
        **fields,
    )
    return config


class Head(nn.Module):
    """A head. `rows` are hidden states of the model, or of the head after the first guess."""

    def __init__(self, target):
        super().__init__()
        # Not a submodule: its weights are not the head's.
        self.target = [target]

    def embed(self, tokens):
        return self.target[0].get_input_embeddings()(tokens)

    def rotated(self, hidden):
        positions = torch.arange(hidden.shape[1])[None]
        return self.rotary(hidden, positions)


class Eagle(Head):
    architecture = "LlamaForCausalLMEagle"

    def __init__(self, target):
        super().__init__(target)
        self.config = llama_config(target)
        hidden = self.config.hidden_size
        self.fc = nn.Linear(2 * hidden, hidden)
        self.layers = nn.ModuleList([llama.LlamaDecoderLayer(self.config, 0)])
        self.layers[0].input_layernorm = nn.Identity()
        self.rotary = llama.LlamaRotaryEmbedding(self.config)

    def states(self, tokens, rows, num_guesses):
        x = self.fc(torch.cat([self.embed(tokens), rows], dim=-1))
        mask, rotated = causal(x.shape[1]), self.rotated(x)
        output = self.layers[0](x, attention_mask=mask, position_embeddings=rotated)
        return output[0] if isinstance(output, tuple) else output

    def logits(self, states, num_guesses):
        return self.target[0].lm_head(states)


class EagleWithBiases(Eagle):
    """With biases of queries, keys and values, as the heads for Qwen2 have."""

    def __init__(self, target):
        super().__init__(target)
        attention = self.layers[0].self_attn
        for name in ["q_proj", "k_proj", "v_proj"]:
            linear = getattr(attention, name)
            setattr(attention, name, nn.Linear(linear.in_features, linear.out_features))


class EagleOfMistral(Head):
    """With layers of Mistral, all with their norms, and a norm over the state."""

    architecture = "EagleMistralForCausalLM"
    window = 7

    def fields(self, target):
        return llama_config(target, MistralConfig, 2, head_dim=8, sliding_window=self.window)

    def parts(self):
        config = self.config
        layers = [mistral.MistralDecoderLayer(config, index) for index in range(2)]
        return layers, mistral.MistralRMSNorm, mistral.MistralRotaryEmbedding(config)

    def __init__(self, target):
        super().__init__(target)
        self.config = self.fields(target)
        hidden = self.config.hidden_size
        layers, norm, self.rotary = self.parts()
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers, self.norm = nn.ModuleList(layers), norm(hidden, self.config.rms_norm_eps)

    def mask(self, length, layer):
        places = torch.arange(length)
        is_far = places[:, None] - places[None] >= self.window
        return causal(length).masked_fill(is_far, float("-inf"))

    def states(self, tokens, rows, num_guesses):
        x = self.fc(torch.cat([self.embed(tokens), rows], dim=-1))
        rotated = self.rotated(x)
        for index, layer in enumerate(self.layers):
            mask = self.mask(x.shape[1], index)
            output = layer(x, attention_mask=mask, position_embeddings=rotated)
            x = output[0] if isinstance(output, tuple) else output
        return self.norm(x)

    def logits(self, states, num_guesses):
        return self.target[0].lm_head(states)


class EagleOfLlama4(EagleOfMistral):
    """With layers of Llama 4: one with rotations, within chunks, and one without."""

    architecture = "EagleLlama4ForCausalLM"
    chunk = 8

    def fields(self, target):
        config = llama_config(
            target, Llama4TextConfig, 2, head_dim=8, intermediate_size_mlp=40, moe_layers=[],
            no_rope_layers=[1, 0], attention_chunk_size=self.chunk, floor_scale=8, attn_scale=0.3,
            layer_types=["chunked_attention", "full_attention"],
        )
        return config

    def parts(self):
        config = self.config
        layers = [llama4.Llama4TextDecoderLayer(config, index) for index in range(2)]
        return layers, llama4.Llama4TextRMSNorm, llama4.Llama4TextRotaryEmbedding(config)

    def mask(self, length, layer):
        if layer == 1:
            return causal(length)
        chunks = torch.arange(length) // self.chunk
        return causal(length).masked_fill(chunks[:, None] != chunks[None], float("-inf"))


class Eagle3(Head):
    architecture = "LlamaForCausalLMEagle3"
    layers_read = [0, 1, 2]
    draft_vocab = 100
    norm_before_residual, norm_output = False, False
    decoder_layer, rotary_embedding = llama.LlamaDecoderLayer, llama.LlamaRotaryEmbedding
    projections = ["q_proj", "k_proj", "v_proj"]

    def fields(self, target):
        return llama_config(target)

    def __init__(self, target):
        super().__init__(target)
        self.config = self.fields(target)
        hidden, config = self.config.hidden_size, self.config
        if self.layers_read:
            self.fc = nn.Linear(len(self.layers_read) * hidden, hidden, bias=False)
        self.midlayer = self.decoder_layer(config, 0)
        self.midlayer.hidden_norm = llama.LlamaRMSNorm(hidden, config.rms_norm_eps)
        attention = self.midlayer.self_attn
        for name in self.projections:
            outputs = getattr(attention, name).out_features
            setattr(attention, name, nn.Linear(2 * hidden, outputs, bias=False))
        self.norm = llama.LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, self.draft_vocab, bias=False)
        self.rotary = self.rotary_embedding(config)
        tokens = torch.arange(self.draft_vocab) * 5 + 3
        self.register_buffer("d2t", tokens - torch.arange(self.draft_vocab))

    def fused(self, row):
        return self.fc(row)

    def further(self, x):
        return x

    def states(self, tokens, rows, num_guesses):
        # Rows of the model have several states, and those of the head one.
        width = len(self.layers_read) * self.target[0].config.hidden_size
        x = torch.stack([self.fused(row) if len(row) == width else row for row in rows[0]])[None]
        layer, embedded = self.midlayer, self.midlayer.input_layernorm(self.embed(tokens))
        normed = layer.hidden_norm(x)
        both = torch.cat([embedded, normed], dim=-1)
        attended = layer.self_attn(
            both, position_embeddings=self.rotated(x), attention_mask=causal(x.shape[1])
        )[0]
        x = (normed if self.norm_before_residual else x) + attended
        x = self.further(x + layer.mlp(layer.post_attention_layernorm(x)))
        return self.norm(x) if self.norm_output else x

    def logits(self, states, num_guesses):
        logits = torch.full(states.shape[:-1] + (self.config.vocab_size,), float("-inf"))
        tokens = torch.arange(self.draft_vocab) + self.d2t
        logits[..., tokens] = self.lm_head(states if self.norm_output else self.norm(states))
        return logits


class Eagle3OfLast(Eagle3):
    """Over the states after the model's last norm."""

    layers_read = []


class Eagle3WithNorms(Eagle3):
    """With all norms that vLLM reads, two layers, and a config of the library speculators."""

    architecture = "Eagle3Speculator"
    layers_read = [1, 2]
    norm_before_residual, norm_output = True, True

    def __init__(self, target):
        super().__init__(target)
        config, count = self.config, len(self.layers_read)
        hidden = config.hidden_size
        norm = lambda size: llama.LlamaRMSNorm(size, config.rms_norm_eps)
        self.input_norm = norm(count * hidden)
        self.fc_norm = nn.ModuleList(norm(hidden) for _ in range(count))
        config.num_hidden_layers = 2
        self.layers = nn.ModuleDict({"1": llama.LlamaDecoderLayer(config, 1)})

    def fused(self, row):
        parts = self.input_norm(row).chunk(len(self.fc_norm), dim=-1)
        return self.fc(torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts)], dim=-1))

    def further(self, x):
        mask, rotated = causal(x.shape[1]), self.rotated(x)
        output = self.layers["1"](x, attention_mask=mask, position_embeddings=rotated)
        return output[0] if isinstance(output, tuple) else output


class Eagle3AfterLast(Eagle3):
    """Over the states before the last layer and after it."""

    layers_read = [1, 2]


class Eagle3Narrow(Eagle3):
    """Narrower than its model, with an embedding of its own."""

    width = 24

    def fields(self, target):
        config = llama_config(target)
        config.hidden_size, config.head_dim = self.width, 8
        return config

    def __init__(self, target):
        super().__init__(target)
        states = len(self.layers_read) * target.config.hidden_size
        self.fc = nn.Linear(states, self.width, bias=False)
        self.embed_tokens = nn.Embedding(target.config.vocab_size, self.width)

    def embed(self, tokens):
        return self.embed_tokens(tokens)

    def fused(self, row):
        return self.fc(row)


class Eagle3OfQwen3(Eagle3):
    """With a layer of Qwen3, whose query and key heads have norms, in the form of speculators."""

    architecture = "Eagle3Speculator"
    norm_before_residual = True
    decoder_layer, rotary_embedding = qwen3.Qwen3DecoderLayer, qwen3.Qwen3RotaryEmbedding

    def fields(self, target):
        return llama_config(target, Qwen3Config, head_dim=24)


class Eagle3OfDeepseek(Eagle3):
    """With the latent attention of DeepSeek V3."""

    architecture = "Eagle3DeepseekV3ForCausalLM"
    decoder_layer = deepseek_v3.DeepseekV3DecoderLayer
    rotary_embedding = deepseek_v3.DeepseekV3RotaryEmbedding
    projections = ["q_a_proj", "kv_a_proj_with_mqa"]

    def fields(self, target):
        return llama_config(
            target, DeepseekV3Config, num_kv_heads=4, q_lora_rank=16, kv_lora_rank=12, qk_nope_head_dim=8,
            qk_rope_head_dim=4, v_head_dim=6, first_k_dense_replace=1,
        )


class Mtp(Head):
    """The layer after the last. It is made as the last layer of a longer model."""

    has_own_tables = False
    last_norm = "shared_head.norm"

    def __init__(self, target):
        super().__init__(target)
        self.config = target.config
        self.index = self.config.num_hidden_layers
        longer = AutoConfig.from_pretrained(target.name_or_path)
        longer.num_hidden_layers = self.index + 1
        if hasattr(longer, "mlp_layer_types"):
            longer.mlp_layer_types = longer.mlp_layer_types + longer.mlp_layer_types[-1:]
        longer._attn_implementation = "eager"
        self.longer = AutoModelForCausalLM.from_config(longer).float().eval()
        hidden, eps = self.config.hidden_size, self.config.rms_norm_eps
        norm = type(target.model.norm)
        self.enorm, self.hnorm, self.norm = (norm(hidden, eps) for _ in range(3))
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        if self.has_own_tables:
            self.embed_tokens = nn.Embedding(self.config.vocab_size, hidden)
            self.head = nn.Linear(hidden, self.config.vocab_size, bias=False)

    def states(self, tokens, rows, num_guesses):
        embedded = self.embed_tokens(tokens) if self.has_own_tables else self.embed(tokens)
        embedded = embedded.clone()
        embedded[:, 0] = 0
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(rows)], dim=-1))
        model, mask = self.longer.model, causal(x.shape[1])
        positions = torch.arange(x.shape[1])[None]
        rotated = model.rotary_emb(x, positions)
        output = model.layers[self.index](
            x, attention_mask=mask, position_ids=positions, position_embeddings=rotated
        )
        return output[0] if isinstance(output, tuple) else output

    def logits(self, states, num_guesses):
        head = self.head if self.has_own_tables else self.target[0].lm_head
        return head(self.norm(states))

    def tensors(self, scratch):
        """Returns the tensors by their names in a checkpoint of the whole model."""
        self.longer.to(torch.bfloat16).save_pretrained(scratch)
        self.longer.float()
        from safetensors.torch import load_file

        prefix = f"model.layers.{self.index}."
        layer = load_file(scratch / "model.safetensors")
        tensors = {name: tensor for name, tensor in layer.items() if name.startswith(prefix)}
        own = {
            "enorm": self.enorm,
            "hnorm": self.hnorm,
            "eh_proj": self.eh_proj,
            self.last_norm: self.norm,
        }
        if self.has_own_tables:
            own |= {"embed_tokens": self.embed_tokens, "shared_head.head": self.head}
        for name, module in own.items():
            tensors[f"{prefix}{name}.weight"] = module.weight.data
        return tensors


class OwnMtp(Mtp):
    has_own_tables = True


class QwenMtp(Head):
    """The module `mtp` of Qwen3-Next and Qwen3.5. Its layer is made as that of a model of one."""

    fields = {}

    def __init__(self, target):
        super().__init__(target)
        self.config = target.config
        one = AutoConfig.from_pretrained(target.name_or_path)
        self.one_layer(one)
        one._attn_implementation = "eager"
        self.one = AutoModelForCausalLM.from_config(one).float().eval()
        hidden, eps = self.config.hidden_size, norm_eps(self.config)
        norm = type(last_norm(target))
        names = ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"]
        for name in names:
            setattr(self, name, norm(hidden, eps))
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)

    def one_layer(self, one):
        """Makes the config `one` that of a model whose layer is the head's."""
        one.num_hidden_layers, one.layer_types = 1, ["full_attention"]

    def mask(self, length):
        return causal(length)

    def states(self, tokens, rows, num_guesses):
        embedded = self.pre_fc_norm_embedding(self.embed(tokens))
        return self.of_layer(self.fc(torch.cat([embedded, self.pre_fc_norm_hidden(rows)], dim=-1)))

    def of_layer(self, x):
        model, mask = self.one.model, self.mask(x.shape[1])
        positions = torch.arange(x.shape[1])[None]
        rotated = model.rotary_emb(x, positions)
        output = model.layers[0](
            x, attention_mask=mask, position_ids=positions, position_embeddings=rotated
        )
        return self.norm(output[0] if isinstance(output, tuple) else output)

    def logits(self, states, num_guesses):
        return self.target[0].lm_head(states)

    def tensors(self, scratch):
        """Returns the tensors by their names in a checkpoint of the whole model."""
        self.one.to(torch.bfloat16).save_pretrained(scratch)
        self.one.float()
        from safetensors.torch import load_file

        layer = load_file(scratch / "model.safetensors")
        prefix, own = "model.layers.", self.state_dict()
        tensors = {
            f"mtp.layers.{name.removeprefix(prefix)}": tensor
            for name, tensor in layer.items()
            if name.startswith(prefix)
        }
        names = [name for name in own if not name.startswith("one.")]
        return tensors | {f"mtp.{name}": own[name] for name in names}


class MimoMtp(QwenMtp):
    """The first of the modules `model.mtp_layers` of MiMo, for a Qwen2 of the same maths."""

    fields = {
        "architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1,
    }
    names = {
        "pre_fc_norm_embedding": "token_layernorm", "pre_fc_norm_hidden": "hidden_layernorm",
        "norm": "final_layernorm", "fc": "input_proj",
    }

    def states(self, tokens, rows, num_guesses):
        embedded = self.embed(tokens).clone()
        embedded[:, 0] = 0
        both = [self.pre_fc_norm_hidden(rows), self.pre_fc_norm_embedding(embedded)]
        return self.of_layer(self.fc(torch.cat(both, dim=-1)))

    def tensors(self, scratch):
        renamed = {}
        for name, tensor in super().tensors(scratch).items():
            module, part = name.removeprefix("mtp.").rsplit(".", 1)
            module = self.names.get(module, module.removeprefix("layers.0."))
            renamed[f"model.mtp_layers.0.{module}.{part}"] = tensor
        return renamed


class Qwen35Mtp(QwenMtp):
    fields = {"mtp_num_hidden_layers": 1}


class ExaoneMtp(QwenMtp):
    """The module `mtp` of K-EXAONE. Its layer has no experts, and the first layer's window."""

    fields = {"num_nextn_predict_layers": 1}

    def one_layer(self, one):
        one.num_hidden_layers, one.layer_types = 1, one.layer_types[:1]
        one.mlp_layer_types = ["dense"]
        if one.layer_types == ["full_attention"]:
            # The class rotates in all layers of a model without windows.
            object.__setattr__(one, "sliding_window", None)

    def mask(self, length):
        window = self.one.config.sliding_window
        places = torch.arange(length)
        is_far = places[:, None] - places[None] >= (window or length)
        return causal(length).masked_fill(is_far, float("-inf"))


class ErnieMtp(QwenMtp):
    """The modules `model.mtp_*` of ERNIE 4.5 with experts, from the formulas of the authors' own
    FastDeploy. The rotations are those of the other layers, and the norm is the model's last."""

    fields = {"num_nextn_predict_layers": 1}
    names = {
        "pre_fc_norm_embedding": "mtp_emb_norm.0", "pre_fc_norm_hidden": "mtp_hidden_norm.0",
        "fc": "mtp_linear_proj.0",
    }

    def one_layer(self, one):
        one.num_hidden_layers, one.moe_layer_start_index = 1, 1

    def tensors(self, scratch):
        renamed = {}
        for name, tensor in super().tensors(scratch).items():
            module, part = name.removeprefix("mtp.").rsplit(".", 1)
            if module.startswith("layers."):
                module = module.replace("layers.", "mtp_block.", 1)
            renamed[f"model.{self.names.get(module, module)}.{part}"] = tensor
        return renamed


class NemotronMtp(QwenMtp):
    """The module `mtp` of Nemotron 3, whose parts are layers of transformers, from the formulas of
    vLLM's `NemotronHMTP`."""

    fields = {"num_nextn_predict_layers": 1}
    parts = ["full_attention", "moe"]
    names = {
        "pre_fc_norm_embedding": "0.enorm", "pre_fc_norm_hidden": "0.hnorm", "fc": "0.eh_proj",
        "norm": "1.final_layernorm",
    }

    def one_layer(self, one):
        one.layers_block_type = self.parts

    def of_layer(self, x):
        for layer in self.one.model.layers:
            output = layer(x, attention_mask=causal(x.shape[1]))
            x = output[0] if isinstance(output, tuple) else output
        return self.norm(x)

    def tensors(self, scratch):
        self.one.to(torch.bfloat16).save_pretrained(scratch)
        self.one.float()
        from safetensors.torch import load_file

        layers = {
            name.split("layers.", 1)[1]: tensor
            for name, tensor in load_file(scratch / "model.safetensors").items()
            if ".layers." in name
        }
        for name, module in self.names.items():
            layers[f"{module}.weight"] = getattr(self, name).weight.data
        return {f"mtp.layers.{name}": tensor for name, tensor in layers.items()}


class LongcatMtp(Head):
    """The module `model.mtp` of LongCat-Flash, of modules of transformers, from the formulas of
    vLLM's `LongCatFlashMTP`."""

    fields = {"num_nextn_predict_layers": 1}

    def __init__(self, target):
        super().__init__(target)
        self.config = config = target.config
        hidden = config.hidden_size
        norm = lambda: longcat.LongcatFlashRMSNorm(hidden, config.rms_norm_eps)
        layer = nn.ModuleDict({"eh_proj": nn.Linear(2 * hidden, hidden, bias=False)})
        for name in ["enorm", "hnorm"]:
            layer[name] = nn.ModuleDict({"m": norm()})
        layer["input_layernorm"], layer["post_attention_layernorm"] = norm(), norm()
        layer["self_attn"] = longcat.LongcatFlashMLA(config, 0)
        layer["transformer_layer"] = nn.ModuleDict({"mlp": longcat.LongcatFlashMLP(config)})
        self.layers, self.norm = nn.ModuleList([layer]), norm()
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.rotary = longcat.LongcatFlashRotaryEmbedding(config)

    def states(self, tokens, rows, num_guesses):
        layer = self.layers[0]
        both = [layer["enorm"]["m"](self.embed_tokens(tokens)), layer["hnorm"]["m"](rows)]
        x = layer["eh_proj"](torch.cat(both, dim=-1))
        attended = layer["self_attn"](
            layer["input_layernorm"](x), position_embeddings=self.rotated(x),
            attention_mask=causal(x.shape[1]),
        )[0]
        x = x + attended
        x = x + layer["transformer_layer"]["mlp"](layer["post_attention_layernorm"](x))
        return self.norm(x)

    def logits(self, states, num_guesses):
        return self.target[0].lm_head(states)

    def tensors(self, scratch):
        own = {name: tensor for name, tensor in self.state_dict().items() if "rotary" not in name}
        return {f"model.mtp.{name}": tensor for name, tensor in own.items()}


class HyMtp(Mtp):
    """The layer after the last of Hunyuan 3, from the formulas of vLLM's `HYV3MTP`. Its state is
    that after the norm, and the output layer is the model's."""

    last_norm = "final_layernorm"

    def states(self, tokens, rows, num_guesses):
        return self.norm(super().states(tokens, rows, num_guesses))

    def logits(self, states, num_guesses):
        return self.target[0].lm_head(states)


class MlpSpeculator(Head):
    """IBM's `MLPSpeculatorPreTrainedModel`."""

    inner, is_tied, scales_input = 40, False, False

    def __init__(self, target):
        super().__init__(target)
        vocab, hidden, inner = target.config.vocab_size, target.config.hidden_size, self.inner
        count = 1 if self.is_tied else GUESSES
        widths = [hidden] + [inner] * ((2 if self.is_tied else GUESSES) - 1)
        self.emb = nn.ModuleList(nn.Embedding(vocab, inner) for _ in range(count))
        self.proj = nn.ModuleList(nn.Linear(width, inner, bias=False) for width in widths)
        self.ln = nn.ModuleList(nn.LayerNorm(inner) for _ in range(count))
        self.head = nn.ModuleList(nn.Linear(inner, vocab, bias=False) for _ in range(count))

    def rms(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def states(self, tokens, rows, num_guesses):
        of = lambda parts: parts[min(num_guesses, len(parts) - 1)]
        rows, tokens = rows[:, -1:], tokens[:, -1:]
        if self.scales_input and num_guesses == 0:
            rows = self.rms(rows) / math.sqrt(2)
        state_weight = 0.5 ** (0.5 / GUESSES)
        token_weight = math.sqrt((1 - state_weight**2) * (self.inner / 2))
        mixed = of(self.proj)(rows) + of(self.emb)(tokens) * (token_weight / state_weight)
        normed = self.rms(mixed) * of(self.ln).weight + of(self.ln).bias
        return nn.functional.gelu(normed)

    def logits(self, states, num_guesses):
        return self.head[min(num_guesses, len(self.head) - 1)](states)

    def tensors(self, _scratch):
        return {f"speculator.{name}": value for name, value in self.state_dict().items()}


class TiedMlpSpeculator(MlpSpeculator):
    is_tied, scales_input = True, True


def hidden_states(target, head, tokens):
    """Returns the rows that the model gives to a head."""
    last = []
    hook = last_norm(target).register_forward_pre_hook(lambda _, inputs: last.append(inputs[0]))
    outputs = target.model(tokens, output_hidden_states=True)
    hook.remove()
    if isinstance(head, Eagle3) and head.layers_read:
        # The last one of transformers is that after the norm.
        states = [*outputs.hidden_states[:-1], last[0]]
        return torch.cat([states[i] for i in head.layers_read], dim=-1)
    return outputs.last_hidden_state


def guesses(target, head, prompt):
    """Returns the token after a prompt, the guesses after it, and the logits of each guess."""
    tokens = torch.tensor([prompt])
    rows = hidden_states(target, head, tokens)
    drawn = target.lm_head(target.model(tokens).last_hidden_state[:, -1]).argmax(-1)
    next_tokens = torch.cat([tokens[:, 1:], drawn[:, None]], dim=1)
    guessed, all_logits = [], []
    rows = list(rows[0])
    for index in range(GUESSES):
        widths = {row.shape[0] for row in rows}
        given = torch.stack(rows)[None] if len(widths) == 1 else [rows]
        states = head.states(next_tokens, given, index)
        logits = head.logits(states[:, -1], index)[0]
        first, second = logits.topk(2).values.tolist()
        if first - second < NEAR_TIE:
            raise SystemExit(f"guess {index} is nearly a tie: another seed is needed")
        token = int(logits.argmax())
        guessed.append(token)
        some = logits[::STRIDE].tolist()
        all_logits.append([round(x, 5) if x > float("-inf") else None for x in some])
        rows.append(states[0, -1])
        if isinstance(head, MlpSpeculator):
            rows = rows[-1:]
        next_tokens = torch.cat([next_tokens, torch.tensor([[token]])], dim=1)
    return int(drawn), guessed, all_logits


def config_of(head):
    if isinstance(head, MlpSpeculator):
        target = head.target[0].config
        return {
            "architectures": ["MLPSpeculatorPreTrainedModel"],
            "model_type": "mlp_speculator",
            "emb_dim": target.hidden_size,
            "inner_dim": head.inner,
            "n_predict": GUESSES,
            "vocab_size": target.vocab_size,
            "tie_weights": head.is_tied,
            "scale_input": head.scales_input,
        }
    if isinstance(head, (QwenMtp, LongcatMtp)):
        path = Path(head.target[0].name_or_path) / "config.json"
        return json.loads(path.read_text()) | head.fields
    if isinstance(head, Mtp):
        path = Path(head.target[0].name_or_path) / "config.json"
        return json.loads(path.read_text()) | {"num_nextn_predict_layers": 1}
    config = json.loads(head.config.to_json_string(use_diff=False))
    config = {name: value for name, value in config.items() if value is not None}
    if isinstance(head, Eagle3WithNorms):
        # The default of `norm_before_residual` is true. The order of the layers has no effect.
        return {
            "architectures": [head.architecture],
            "speculators_model_type": "eagle3",
            "draft_vocab_size": head.draft_vocab,
            "eagle_aux_hidden_state_layer_ids": head.layers_read[::-1],
            "norm_before_fc": True,
            "fc_norm": True,
            "norm_output": True,
            "target_hidden_size": None,
            "dtype": "bfloat16",
            "transformer_layer_config": config,
        }
    if isinstance(head, Eagle3OfQwen3):
        proposal = {"proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1}
        return {
            "architectures": [head.architecture],
            "speculators_model_type": "eagle3",
            "speculators_config": {"algorithm": "eagle3", "proposal_methods": [proposal]},
            "draft_vocab_size": head.draft_vocab,
            "eagle_aux_hidden_state_layer_ids": head.layers_read,
            "dtype": "bfloat16",
            "transformer_layer_config": config,
        }
    config |= {"architectures": [head.architecture], "dtype": "bfloat16"}
    if isinstance(head, EagleWithBiases):
        config["qkv_bias"] = True
    if isinstance(head, Eagle3Narrow):
        config["target_hidden_size"] = head.target[0].config.hidden_size
    if isinstance(head, Eagle3):
        config["draft_vocab_size"] = head.draft_vocab
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": head.layers_read}
        if not head.layers_read:
            config["eagle_config"] = {"use_aux_hidden_state": False}
    return config


def tensors_of(head, scratch):
    if hasattr(head, "tensors"):
        tensors = head.tensors(scratch)
    else:
        tensors = head.state_dict()
    is_integer = lambda tensor: not tensor.is_floating_point()
    return {
        name: (tensor if is_integer(tensor) else tensor.to(torch.bfloat16)).contiguous()
        for name, tensor in tensors.items()
        if not name.startswith("rotary")
    }


HEADS = {
    "eagle": (Eagle, "llama-llama3"),
    "eagle-biases": (EagleWithBiases, "llama-llama3"),
    "eagle-mistral": (EagleOfMistral, "llama-llama3"),
    "eagle-llama4": (EagleOfLlama4, "llama4"),
    "eagle3": (Eagle3, "glm4_moe"),
    "eagle3-narrow": (Eagle3Narrow, "glm4_moe"),
    "eagle3-last": (Eagle3OfLast, "llama-llama3"),
    "eagle3-after": (Eagle3AfterLast, "llama-llama3"),
    "eagle3-norms": (Eagle3WithNorms, "glm4_moe"),
    "eagle3-qwen3": (Eagle3OfQwen3, "glm4_moe"),
    "eagle3-deepseek_v3": (Eagle3OfDeepseek, "glm4_moe"),
    "mtp-deepseek_v3": (OwnMtp, "deepseek_v3"),
    "mtp-glm4_moe": (Mtp, "glm4_moe"),
    "mtp-qwen3_next": (QwenMtp, "qwen3_next"),
    "mtp-qwen3_5": (Qwen35Mtp, "qwen3_5"),
    "mtp-mimo": (MimoMtp, "qwen2-tied"),
    "mtp-qwen3_5_moe": (Qwen35Mtp, "qwen3_5_moe"),
    "mtp-exaone_moe": (ExaoneMtp, "exaone_moe"),
    "mtp-exaone_moe-full": (ExaoneMtp, "exaone_moe-listed"),
    "mtp-ernie4_5_moe": (ErnieMtp, "ernie4_5_moe"),
    "mtp-hy_v3": (HyMtp, "hy_v3"),
    "mtp-nemotron_h": (NemotronMtp, "nemotron_h-experts"),
    "mtp-longcat_flash": (LongcatMtp, "longcat_flash"),
    "mlp_speculator": (MlpSpeculator, "llama-tied"),
    "mlp_speculator-tied": (TiedMlpSpeculator, "llama-gqa-f16"),
}


def make(name):
    kind, target_name = HEADS[name]
    folder, scratch = HERE / "heads" / name, Path("/tmp") / f"heads-{name}"
    target = AutoModelForCausalLM.from_pretrained(
        HERE / "models" / target_name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    with torch.no_grad():
        head = kind(target).eval()
        randomize(head, generator)
        prompts = []
        for length in LENGTHS:
            most = min(500, target.config.vocab_size)
            prompt = torch.randint(3, most, (length,), generator=generator).tolist()
            drawn, guessed, logits = guesses(target, head, prompt)
            entry = {"prompt_token_ids": prompt, "drawn": drawn}
            prompts.append(entry | {"guesses": guessed, "logits": logits})
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors_of(head, scratch), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(head), indent=2) + "\n")
    golden = {"model": target_name, "method": name.split("-")[0], "prompts": prompts}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    print(name, [prompt["guesses"] for prompt in prompts])


if __name__ == "__main__":
    for wanted in sys.argv[1:] or HEADS:
        make(wanted)
