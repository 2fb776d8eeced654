"""Qwen3 in plain PyTorch (transformers' `Qwen3ForCausalLM`, the same tensor names)."""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    """The fields of `config.json` that set a model's size."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096

    def as_dict(self):
        return asdict(self)


def rotary(shape, positions):
    """Returns cos and sin of the rotary embedding, [.., 1, time, head_dim], for positions [.., time]."""
    steps = torch.arange(0, shape.head_dim, 2, device=positions.device, dtype=torch.float32)
    angles = positions[..., None].float() * shape.rope_theta ** (-steps / shape.head_dim)
    angles = torch.cat([angles, angles], dim=-1).unsqueeze(-3)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


def attention(q, k, v, mask):
    """Attention, causal without a mask. On a CPU in f32: in bf16 the gradient takes thrice as long."""
    if q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    with torch.autocast("cpu", enabled=False):
        q, k, v = q.float(), k.float(), v.float()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        q_size = shape.num_attention_heads * shape.head_dim
        kv_size = shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, q_size, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, shape.hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)

    def forward(self, x, cos, sin, mask, past):
        batch, time, _ = x.shape
        heads = (batch, time, -1, self.shape.head_dim)
        q = self.q_norm(self.q_proj(x).view(heads).float()).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(heads).float()).transpose(1, 2)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if past is not None:
            k, v = past.extend(self, k, v)
        groups = self.shape.num_attention_heads // self.shape.num_key_value_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        x = attention(q, k, v, mask)
        return self.o_proj(x.transpose(1, 2).reshape(batch, time, -1))


class MLP(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)

    def forward(self, x, cos, sin, mask, past):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask, past)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)


class Model(nn.Module):
    """The model. Its embedding is the output layer, too."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        deep = (2 * shape.num_hidden_layers) ** -0.5
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(
                    weight,
                    std=0.02
                    if "embed" in name
                    else weight.shape[1] ** -0.5 * (deep if residual else 1),
                )

    def hidden(self, tokens, positions=None, mask=None, past=None):
        """Returns the last hidden states, [batch, time, hidden_size], of tokens [batch, time]."""
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        cos, sin = rotary(self.shape, positions)
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, cos, sin, mask, past)
        return self.model.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.model.embed_tokens.weight)

    def size(self):
        """Returns the number of parameters."""
        return sum(weight.numel() for weight in self.parameters())


class Past:
    """Keys and values of all earlier tokens, one pair a layer, which grow step by step."""

    def __init__(self):
        self.kept = {}

    def extend(self, layer, k, v):
        if layer in self.kept:
            old_k, old_v = self.kept[layer]
            k, v = torch.cat([old_k, k], 2), torch.cat([old_v, v], 2)
        self.kept[layer] = (k, v)
        return k, v
