"""Encoders whose code is in the folders of their authors, and cannot be installed.

Each forward pass is written from the formulas of the authors' published code. Tensors have the
names of the checkpoints. `make_authors_encoders.py` records the answers.
"""

import math

import torch
from torch.nn.functional import embedding, gelu, layer_norm, linear, relu

from make_encoders import VOCAB

HIDDEN, INNER, LAYERS, HEADS = 48, 80, 4, 4


class Weights:
    """Seeded tensors by name, each made when it is declared. bfloat16 has all their values."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.stored = {}

    def add(self, name, *shape, base=0.0, scale=0.15):
        noise = torch.randn(*shape, generator=self.generator)
        self.stored[name] = (base + scale * noise).to(torch.bfloat16)

    def linear(self, module, outputs, inputs, bias=True):
        self.add(f"{module}.weight", outputs, inputs)
        if bias:
            self.add(f"{module}.bias", outputs, scale=0.3)

    def norm(self, module, size=HIDDEN):
        self.add(f"{module}.weight", size, base=1.0, scale=0.3)
        self.add(f"{module}.bias", size, scale=0.3)


class Model:
    """Tensors in one dtype, and the fields of `config.json`."""

    def __init__(self, weights, config, forward):
        self.weights, self.config, self.of_tokens = weights, config, forward
        self.tensors, self.adapters = {}, None

    def to(self, dtype):
        self.tensors = {name: tensor.to(dtype) for name, tensor in self.weights.stored.items()}
        for name in [name for name in self.tensors if name.endswith(".original")]:
            module = name.removesuffix(".parametrizations.weight.original")
            self.tensors[f"{module}.weight"] = self.adapted(module, self.tensors.pop(name))
        return self

    def with_tasks(self, tasks, rank, alpha, chosen=None):
        """Adds adapters of tasks to all matrices, as `XLMRobertaLoRA` has them."""
        matrices = {name: t for name, t in self.weights.stored.items() if t.dim() == 2}
        for name, tensor in matrices.items():
            at = f"{name.removesuffix('.weight')}.parametrizations.weight"
            self.weights.stored[f"{at}.original"] = self.weights.stored.pop(name)
            rows, columns = tensor.shape
            shapes = [(rank, columns), (rows, rank)]
            if "embeddings" in name:
                shapes = [(rows, rank), (rank, columns)]
            for part, shape in zip("AB", shapes):
                self.weights.add(f"{at}.0.lora_{part}", len(tasks), *shape, scale=0.3)
        self.config |= dict(lora_adaptations=tasks, lora_rank=rank, lora_alpha=alpha)
        self.config |= dict(lora_dropout_p=0.0, load_trained_adapters=True)
        if chosen is not None:
            self.config["default_task"] = chosen
            self.adapters = (tasks.index(chosen), alpha / rank)
        return self

    def adapted(self, module, matrix):
        if self.adapters is None:
            return matrix
        index, scale = self.adapters
        a, b = (
            self.tensors[f"{module}.parametrizations.weight.0.lora_{part}"][index] for part in "AB"
        )
        return matrix + scale * (a @ b if "embeddings" in module else b @ a)

    def double(self):
        return self.to(torch.float64)

    def float(self):
        return self.to(torch.float32)

    def eval(self):
        return self

    def linear(self, x, module):
        return linear(x, self.tensors[f"{module}.weight"], self.tensors.get(f"{module}.bias"))

    def norm(self, x, module):
        weight, bias = self.tensors[f"{module}.weight"], self.tensors[f"{module}.bias"]
        return layer_norm(x, weight.shape, weight, bias, self.config["eps"])

    def table(self, ids, module):
        return embedding(ids, self.tensors[f"{module}.weight"])


def attention(q, k, v, heads, biases=None):
    """Softmax attention of all tokens to all, `[tokens, heads * width]`."""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if biases is not None:
        scores = scores + biases
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


def rotated(x, heads, base):
    """Rotates pairs of an element of each half of a head, by the position of the token."""
    x = x.unflatten(-1, (heads, -1))
    half = x.shape[-1] // 2
    steps = torch.arange(0, 2 * half, 2, dtype=torch.float32) / (2 * half)
    angles = torch.outer(torch.arange(len(x), dtype=torch.float32), 1.0 / base**steps)
    cos, sin = angles.cos().to(x.dtype)[:, None], angles.sin().to(x.dtype)[:, None]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).flatten(1)


def nomic_moe(seed, every, top_k, biases=True, experts=4, types=1):
    """`NomicBertModel` with experts: `modeling_hf_nomic_bert.py` of nomic-embed-text-v2-moe."""
    base, eps = 5_000.0, 1e-3
    weights = Weights(seed)
    weights.add("embeddings.word_embeddings.weight", VOCAB, HIDDEN)
    weights.add("embeddings.token_type_embeddings.weight", types, HIDDEN)
    weights.norm("emb_ln")
    for index in range(LAYERS):
        at = f"encoder.layers.{index}"
        weights.linear(f"{at}.attn.Wqkv", 3 * HIDDEN, HIDDEN, biases)
        weights.linear(f"{at}.attn.out_proj", HIDDEN, HIDDEN, biases)
        weights.norm(f"{at}.norm1")
        weights.norm(f"{at}.norm2")
        if index % every == 1:
            weights.add(f"{at}.mlp.router.layer.weight", experts, HIDDEN, scale=0.5)
            weights.add(f"{at}.mlp.experts.mlp.w1", experts * INNER, HIDDEN)
            weights.add(f"{at}.mlp.experts.mlp.w2", experts * INNER, HIDDEN)
            weights.add(f"{at}.mlp.experts.bias", HIDDEN, scale=0.3)
        else:
            weights.linear(f"{at}.mlp.fc1", INNER, HIDDEN, biases)
            weights.linear(f"{at}.mlp.fc2", HIDDEN, INNER, biases)

    def mixture(model, x, at):
        scores = linear(x, model.tensors[f"{at}.router.layer.weight"]).softmax(-1)
        chosen, which = scores.topk(top_k, -1)
        w1, w2 = (
            model.tensors[f"{at}.experts.mlp.{name}"].view(experts, INNER, HIDDEN)
            for name in ("w1", "w2")
        )
        out = torch.zeros_like(x)
        for token in range(len(x)):
            for weight, expert in zip(chosen[token], which[token]):
                out[token] += weight * (gelu(w1[expert] @ x[token]) @ w2[expert])
        return out + model.tensors[f"{at}.experts.bias"]

    def forward(model, ids, kinds):
        x = model.table(ids, "embeddings.word_embeddings")
        x = model.norm(x + model.table(kinds, "embeddings.token_type_embeddings"), "emb_ln")
        for index in range(LAYERS):
            at = f"encoder.layers.{index}"
            q, k, v = model.linear(x, f"{at}.attn.Wqkv").chunk(3, -1)
            q, k = rotated(q, HEADS, base), rotated(k, HEADS, base)
            x = model.norm(x + model.linear(attention(q, k, v, HEADS), f"{at}.attn.out_proj"), f"{at}.norm1")
            if index % every == 1:
                inner = mixture(model, x, f"{at}.mlp")
            else:
                inner = model.linear(gelu(model.linear(x, f"{at}.mlp.fc1")), f"{at}.mlp.fc2")
            x = model.norm(x + inner, f"{at}.norm2")
        return x

    config = dict(
        architectures=["NomicBertModel"],
        auto_map={"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
        model_type="nomic_bert",
        vocab_size=VOCAB,
        n_embd=HIDDEN,
        n_inner=INNER,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=512,
        type_vocab_size=types,
        layer_norm_epsilon=eps,
        activation_function="gelu",
        rotary_emb_base=base,
        rotary_emb_fraction=1.0,
        rotary_emb_interleaved=False,
        rotary_emb_scale_base=None,
        rotary_scaling_factor=None,
        max_trained_positions=512,
        qkv_proj_bias=biases,
        mlp_fc1_bias=biases,
        mlp_fc2_bias=biases,
        num_experts=experts,
        moe_top_k=top_k,
        moe_every_n_layers=every,
        moe_normalize_expert_weights=False,
        expert_choice_router=False,
        num_shared_experts=0,
        ffn_div=1.0,
        prenorm=False,
        causal=False,
        use_rms_norm=False,
        parallel_block=False,
        pad_token_id=1,
    )
    return Model(weights, config | dict(eps=eps), forward)


def slopes_of(heads):
    """The slopes of ALiBi, as `JinaBertEncoder.rebuild_alibi_tensor` has them."""

    def of_power(count):
        start = 2 ** (-(2 ** -(math.log2(count) - 3)))
        return [start * start**at for at in range(count)]

    if math.log2(heads).is_integer():
        return of_power(heads)
    whole = 2 ** math.floor(math.log2(heads))
    return of_power(whole) + slopes_of(2 * whole)[0::2][: heads - whole]


def jina_bert(seed, form="geglu", heads=HEADS, code=False, prefix="", head=None):
    """`JinaBertModel` of jina-bert-implementation, or for code of jina-bert-v2-qk-post-norm."""
    eps = 1e-3
    act = dict(geglu=gelu, reglu=relu)[form]
    weights = Weights(seed)
    for kind, rows in (("word", VOCAB), ("token_type", 2)):
        weights.add(f"{prefix}embeddings.{kind}_embeddings.weight", rows, HIDDEN)
    weights.norm(f"{prefix}embeddings.LayerNorm")
    inner, down = ("up_gated_layer", "down_layer") if code else ("gated_layers", "wo")
    for index in range(LAYERS):
        at = f"{prefix}encoder.layer.{index}"
        for name in ("query", "key", "value"):
            weights.linear(f"{at}.attention.self.{name}", HIDDEN, HIDDEN)
        weights.linear(f"{at}.attention.output.dense", HIDDEN, HIDDEN)
        weights.norm(f"{at}.attention.output.LayerNorm")
        weights.linear(f"{at}.mlp.{inner}", 2 * INNER, HIDDEN, bias=False)
        weights.linear(f"{at}.mlp.{down}", HIDDEN, INNER)
        norms = ["mlp.layernorm"]
        if code:
            norms = ["attention.self.layer_norm_q", "attention.self.layer_norm_k"]
            norms += ["layer_norm_1", "layer_norm_2"]
        for norm in norms:
            weights.norm(f"{at}.{norm}")
    if head is not None:
        head(weights)

    def layer(model, x, at, biases):
        q, k, v = (model.linear(x, f"{at}.attention.self.{name}") for name in ("query", "key", "value"))
        if code:
            q = model.norm(q, f"{at}.attention.self.layer_norm_q")
            k = model.norm(k, f"{at}.attention.self.layer_norm_k")
        attended = model.linear(attention(q, k, v, heads, biases), f"{at}.attention.output.dense")
        y = model.norm(attended + x, f"{at}.attention.output.LayerNorm")
        if code:
            y = model.norm(x + y, f"{at}.layer_norm_1")
        first, second = model.linear(y, f"{at}.mlp.{inner}").chunk(2, -1)
        gated = first * act(second) if code else act(first) * second
        norm = "layer_norm_2" if code else "mlp.layernorm"
        return model.norm(y + model.linear(gated, f"{at}.mlp.{down}"), f"{at}.{norm}")

    def forward(model, ids, kinds):
        x = model.table(ids, f"{prefix}embeddings.word_embeddings")
        x = x + model.table(kinds, f"{prefix}embeddings.token_type_embeddings")
        x = model.norm(x, f"{prefix}embeddings.LayerNorm")
        places = torch.arange(len(ids))
        distances = (places[None] - places[:, None]).abs().to(x.dtype)
        biases = -torch.tensor(slopes_of(heads)).to(x.dtype)[:, None, None] * distances
        for index in range(LAYERS):
            x = layer(model, x, f"{prefix}encoder.layer.{index}", biases)
        return x

    folder = "jinaai/jina-bert-v2-qk-post-norm" if code else "jinaai/jina-bert-implementation"
    config = dict(
        architectures=["JinaBertModel"],
        auto_map={"AutoModel": f"{folder}--modeling_bert.JinaBertModel"},
        model_type="bert",
        attn_implementation="torch",
        emb_pooler="mean",
        feed_forward_type=form,
        hidden_act="gelu",
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        layer_norm_eps=eps,
        max_position_embeddings=512,
        num_attention_heads=heads,
        num_hidden_layers=LAYERS,
        pad_token_id=0,
        position_embedding_type="alibi",
        type_vocab_size=2,
        vocab_size=VOCAB,
    )
    return Model(weights, config | dict(eps=eps), forward)


def xlm_roberta_flash(seed, act="gelu", base=3_000.0, head=None):
    """`XLMRobertaModel` of xlm-roberta-flash-implementation, with rotary positions."""
    eps = 1e-3
    approximate = "none" if act == "gelu" else "tanh"
    weights = Weights(seed)
    for kind, rows in (("word", VOCAB), ("token_type", 1)):
        weights.add(f"roberta.embeddings.{kind}_embeddings.weight", rows, HIDDEN)
    weights.norm("roberta.emb_ln")
    for index in range(LAYERS):
        at = f"roberta.encoder.layers.{index}"
        weights.linear(f"{at}.mixer.Wqkv", 3 * HIDDEN, HIDDEN)
        weights.linear(f"{at}.mixer.out_proj", HIDDEN, HIDDEN)
        weights.linear(f"{at}.mlp.fc1", INNER, HIDDEN)
        weights.linear(f"{at}.mlp.fc2", HIDDEN, INNER)
        weights.norm(f"{at}.norm1")
        weights.norm(f"{at}.norm2")
    if head is not None:
        head(weights)

    def forward(model, ids, kinds):
        x = model.table(ids, "roberta.embeddings.word_embeddings")
        x = model.norm(x + model.table(kinds, "roberta.embeddings.token_type_embeddings"), "roberta.emb_ln")
        for index in range(LAYERS):
            at = f"roberta.encoder.layers.{index}"
            q, k, v = model.linear(x, f"{at}.mixer.Wqkv").chunk(3, -1)
            q, k = rotated(q, HEADS, base), rotated(k, HEADS, base)
            attended = model.linear(attention(q, k, v, HEADS), f"{at}.mixer.out_proj")
            x = model.norm(x + attended, f"{at}.norm1")
            inner = gelu(model.linear(x, f"{at}.mlp.fc1"), approximate=approximate)
            x = model.norm(x + model.linear(inner, f"{at}.mlp.fc2"), f"{at}.norm2")
        return x

    folder = "jinaai/xlm-roberta-flash-implementation"
    config = dict(
        architectures=["XLMRobertaModel"],
        auto_map={"AutoModel": f"{folder}--modeling_xlm_roberta.XLMRobertaModel"},
        model_type="xlm-roberta",
        emb_pooler="mean",
        hidden_act=act,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        layer_norm_eps=eps,
        max_position_embeddings=512,
        num_attention_heads=HEADS,
        num_hidden_layers=LAYERS,
        position_embedding_type="rotary",
        rotary_emb_base=base,
        type_vocab_size=1,
        use_flash_attn=True,
        vocab_size=VOCAB,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
    )
    return Model(weights, config | dict(eps=eps), forward)
