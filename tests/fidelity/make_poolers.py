"""Builds the models of the tests of poolers and records the answers of Hugging Face transformers and
of sentence-transformers.

    python tests/fidelity/make_poolers.py             # all of them, into tests/fidelity/poolers
    python tests/fidelity/make_poolers.py llama-mean  # some of them

Each model is a folder with seeded random weights, plus `golden.json`: the task, settings of the
engine, texts with the rows of their results, and pairs of texts with their scores. All answers are
in float32. sentence-transformers writes its own files and computes the vectors of its models.

Needs: torch, transformers >= 5, sentence-transformers >= 6, tokenizers, safetensors. Nothing is
downloaded.
"""

import copy
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    CohereConfig,
    ColQwen2Config,
    ColQwen2ForRetrieval,
    Gemma2Config,
    Gemma3Config,
    GemmaConfig,
    GPT2Config,
    JambaConfig,
    JambaForSequenceClassification,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)
from transformers.modeling_layers import GenericForSequenceClassification
from transformers.models.cohere.modeling_cohere import CoherePreTrainedModel

from corpus import sentences, train_tokenizer

OUT = Path(__file__).parent / "poolers"
TEXTS = list(sentences(7, 5)) + ["a", " ".join(sentences(8, 6))]
PAIRS = [("Where is the kettle?", text) for text in list(sentences(9, 3))]
# Other attentions leave out Gemma 2's caps of scores.
EAGER = dict(attn_implementation="eager")
FLOAT32_NOISE = 2e-5  # largest gap between float32 and float64 results

TINY = dict(
    vocab_size=512,
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
GEMMA2 = dict(TINY, head_dim=16, query_pre_attn_scalar=16, sliding_window=24)
GEMMA = dict(TINY, head_dim=16)
# Fewer experts than the default, and an attention behind a state.
JAMBA = dict(
    TINY,
    num_experts=2,
    num_experts_per_tok=1,
    expert_layer_period=2,
    expert_layer_offset=1,
    attn_layer_period=2,
    attn_layer_offset=1,
    mamba_d_state=8,
    mamba_expand=1,
    mamba_dt_rank=4,
    use_mamba_kernels=False,
)
GPT2 = dict(
    vocab_size=512, n_embd=64, n_inner=96, n_layer=2, n_head=4, n_positions=256, pad_token_id=0
)
# A multimodal class whose text alone is classified.
GEMMA3 = dict(
    text_config=dict(GEMMA2, sliding_window=24, layer_types=["sliding_attention", "full_attention"]),
    vision_config=dict(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        image_size=28, patch_size=14,
    ),
    mm_tokens_per_image=4,
)


RANKING = (
    "<|im_start|>system\n"
    "You are a search relevance expert who can determine a ranking of the passages based on how "
    "relevant they are to the query. If the query is a question, how relevant a passage is depends "
    "on how well it answers the question. If not, try to analyze the intent of the query and assess "
    "how well each passage satisfies the intent. If an instruction is provided, you should follow "
    "the instruction when determining the ranking.<|im_end|>\n<|im_start|>user\n"
    "I will provide you with {count} passages, each indicated by a numerical identifier. Rank the "
    "passages based on their relevance to query: {query}\n{passages}<query>\n{query}{token}\n"
    "</query><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


class CohereForSequenceClassification(GenericForSequenceClassification, CoherePreTrainedModel):
    """The class that vLLM makes of a family for which HF has none."""


class JambaWithBias(JambaForSequenceClassification):
    """The bias that vLLM reads beside the score of a checkpoint."""

    def __init__(self, config):
        super().__init__(config)
        self.score = torch.nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


def randomize(model, seed):
    """Gives norms, biases and weights values that differ from their defaults, and that bfloat16 has.

    Buffers stay as they are: rotary frequencies are never rounded.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor.dim() == 1:
                base = 0.0 if name.endswith("bias") or "Gemma" in type(model).__name__ else 1.0
                noise = base + 0.3 * noise
            else:
                noise = 0.15 * noise
            tensor.copy_(noise.to(torch.bfloat16))
    return model


def rows_of(values):
    return [[round(float(x), 7) for x in row] for row in values]


def checked(compute, model):
    """Returns the results of `compute` in float32, which agree with those in float64."""
    exact = compute(model.double().eval())
    rough = compute(model.float().eval())
    for one, other in zip(exact, rough):
        if one.numel() == 0:
            continue
        gap = (one - other).abs().max().item()
        assert gap < FLOAT32_NOISE * max(1.0, one.abs().max().item()), gap
    return rough


def internlm2_names(state, config):
    """Returns a Llama's tensors in the names and the order of rows of InternLM2."""
    names = {
        "model.embed_tokens": "model.tok_embeddings",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
        "score.0": "v_head",
    }
    renamed = {}
    for name, tensor in state.items():
        if "self_attn.q_proj" in name:
            parts = [state[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            groups = [part.reshape(config.num_key_value_heads, -1, part.shape[1]) for part in parts]
            tensor = torch.cat(groups, dim=1).reshape(-1, tensor.shape[1]).contiguous()
            renamed[name.replace("self_attn.q_proj", "attention.wqkv")] = tensor
        elif "self_attn.k_proj" not in name and "self_attn.v_proj" not in name:
            for ours, theirs in names.items():
                name = name.replace(ours, theirs)
            renamed[name] = tensor
    return renamed


class Maker:
    def __init__(self):
        self.tokenizer = train_tokenizer(512)

    def ids(self, text, pair=None):
        return torch.tensor([self.tokenizer(text, pair)["input_ids"]])

    def save(self, name, model, golden):
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        model.to(torch.bfloat16).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.write(folder, golden)

    def write(self, folder, golden):
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")

    def sentence_transformer(self, name, config, seed, pooling, dense=None, normalize=True):
        """A folder that sentence-transformers writes, with its vectors."""
        torch.manual_seed(seed)
        backbone = randomize(AutoModel.from_config(config, attn_implementation="eager"), seed)
        with tempfile.TemporaryDirectory() as base:
            backbone.save_pretrained(base)
            self.tokenizer.save_pretrained(base)
            modules = [models.Transformer(base, max_seq_length=512, model_kwargs=EAGER)]
        modules.append(models.Pooling(config.hidden_size, pooling_mode=pooling))
        for outputs, activation in dense or []:
            inputs = modules[-1].get_embedding_dimension() if len(modules) == 2 else modules[-1].out_features
            modules.append(models.Dense(inputs, outputs, activation_function=activation))
        if normalize:
            modules.append(models.Normalize())
        prompts = {"query": "query: ", "document": ""}
        st = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        st.to(torch.bfloat16).save(str(folder))
        (folder / "README.md").unlink(missing_ok=True)
        st = SentenceTransformer(str(folder), device="cpu", model_kwargs=EAGER).float()
        rows = [st.encode([text], normalize_embeddings=False) for text in TEXTS]
        queries = [st.encode([text], prompt_name="query") for text in TEXTS[:2]]
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        texts += [
            dict(text=text, prompt_name="query", rows=rows_of(row))
            for text, row in zip(TEXTS, queries)
        ]
        vectors = lambda text: torch.tensor(st.encode([text]))
        pairs = [
            dict(text_1=a, text_2=b, score=torch.cosine_similarity(vectors(a), vectors(b)).item())
            for a, b in PAIRS
        ]
        self.write(folder, dict(task="embed", texts=texts, pairs=pairs))

    def backbone(self, name, config, seed, task="embed"):
        """A backbone alone: the last hidden state, or one of each token, of length 1."""
        model = randomize(AutoModel.from_config(config, attn_implementation="eager"), seed)

        def compute(model):
            states = [model(self.ids(text)).last_hidden_state[0] for text in TEXTS]
            states = states if task == "token_embed" else [state[-1:] for state in states]
            return [torch.nn.functional.normalize(state, dim=-1) for state in states]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        self.save(name, model, dict(task=task, texts=texts))

    def classifier(self, name, config, seed, own=None, **fields):
        """HF's classifier over the last token, with the probabilities of its problem_type."""
        for field, value in fields.items():
            setattr(config, field, value)
        config._attn_implementation = "eager"
        made = AutoModelForSequenceClassification.from_config if own is None else own
        model = randomize(made(config), seed)
        one = config.num_labels == 1

        def probabilities(logits):
            if config.problem_type == "regression":
                return logits
            multi = config.problem_type == "multi_label_classification"
            return logits.sigmoid() if one or multi else logits.softmax(-1)

        def compute(model):
            inputs = [self.ids(text) for text in TEXTS]
            inputs += [self.ids(*pair) for pair in PAIRS] if one else []
            return [probabilities(model(ids).logits) for ids in inputs]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        pairs = [
            dict(text_1=a, text_2=b, score=row.item())
            for (a, b), row in zip(PAIRS, rows[len(TEXTS) :])
        ]
        self.save(name, model, dict(task="classify", texts=texts, pairs=pairs))
        path = OUT / name / "config.json"
        if own is JambaWithBias:
            fields = json.loads(path.read_text())
            fields["architectures"] = ["JambaForSequenceClassification"]
            path.write_text(json.dumps(fields, indent=2) + "\n")

    def token_classifier(self, name, config, seed, labels):
        """HF's classifier of each token, with a bias."""
        config.num_labels = labels
        made = AutoModelForTokenClassification.from_config(config, attn_implementation="eager")
        model = randomize(made, seed).eval()

        def compute(model):
            return [model(self.ids(text)).logits[0].softmax(-1) for text in TEXTS]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        self.save(name, model, dict(task="token_classify", texts=texts))

    def reranker(self, name, config, seed, tokens, method):
        """A language model whose next token answers a question about two texts in one."""
        model = randomize(AutoModelForCausalLM.from_config(config, attn_implementation="eager"), seed)
        ids = [self.tokenizer.convert_tokens_to_ids(token) for token in tokens]

        def compute(model):
            logits = [model(self.ids(a + b)).logits[0, -1, ids] for a, b in PAIRS]
            if method == "from_2_way_softmax":
                return [logit.softmax(-1)[1:] for logit in logits]
            return [logit.sigmoid() for logit in logits]

        with torch.no_grad():
            scores = checked(compute, model)
        pairs = [
            dict(text_1=a, text_2=b, score=score.item()) for (a, b), score in zip(PAIRS, scores)
        ]
        overrides = dict(
            architectures=[type(model).__name__.replace("ForCausalLM", "ForSequenceClassification")],
            classifier_from_token=tokens,
        )
        if name.startswith("qwen3"):
            overrides["is_original_qwen3_reranker"] = True
        else:
            overrides["method"] = method
        settings = dict(hf_overrides=overrides)
        self.save(name, model, dict(task="classify", settings=settings, texts=[], pairs=pairs))

    def reward(self, name, config, seed, architecture, labels, settings, step=None):
        """A reward of each token: two layers (Qwen), or one without a bias (InternLM)."""
        backbone = randomize(AutoModel.from_config(config, attn_implementation="eager"), seed)
        size = config.hidden_size
        is_internlm = architecture.startswith("InternLM")
        layers = [torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, labels)]
        if is_internlm:
            layers = [torch.nn.Linear(size, labels, bias=False)]
        head = randomize(torch.nn.Sequential(*layers), seed + 1)

        class Reward(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model, self.score = backbone, head

            def forward(self, ids):
                logits = self.score(self.model(ids).last_hidden_state[0])
                return logits.sigmoid() if labels == 1 else logits.softmax(-1)

        model = Reward()

        def compute(model):
            rows = []
            for text in TEXTS:
                ids = self.ids(text)
                row = model(ids)
                rows.append(row if step is None else row[ids[0] == step])
            return rows

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        from safetensors.torch import save_file

        state = {key: value.to(torch.bfloat16).contiguous() for key, value in model.state_dict().items()}
        if is_internlm:
            state = internlm2_names(state, config)
        save_file(state, folder / "model.safetensors", metadata=dict(format="pt"))
        config.architectures, config.dtype = [architecture], "bfloat16"
        config.save_pretrained(folder)
        if is_internlm:
            path = folder / "config.json"
            fields = json.loads(path.read_text()) | dict(model_type="internlm2", bias=False)
            path.write_text(json.dumps(fields, indent=2) + "\n")
        self.tokenizer.save_pretrained(folder)
        self.write(folder, dict(task="token_classify", settings=settings, texts=texts))


    def with_task(self, name, config, seed, rank, alpha):
        """A base with the adapter of a task, which vLLM's `JinaEmbeddingsV5Model` merges:
        `W + (B · A) · alpha / rank`."""
        from safetensors.torch import save_file

        base = randomize(AutoModel.from_config(config, attn_implementation="eager"), seed)
        folder, generator = OUT / name, torch.Generator().manual_seed(seed + 1)
        shutil.rmtree(folder, ignore_errors=True)
        # Of a copy, because this also rounds the frequencies.
        copy.deepcopy(base).to(torch.bfloat16).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        model, tensors = base.float(), {}
        for path, module in model.named_modules():
            if path.endswith(("q_proj", "v_proj", "o_proj", "down_proj")):
                rows, columns = module.weight.shape
                a = (0.2 * torch.randn(rank, columns, generator=generator)).to(torch.bfloat16)
                b = (0.2 * torch.randn(rows, rank, generator=generator)).to(torch.bfloat16)
                tensors[f"base_model.model.{path}.lora_A.weight"] = a
                tensors[f"base_model.model.{path}.lora_B.weight"] = b
                module.weight.data += b.float() @ a.float() * (alpha / rank)
        adapter = folder / "adapters" / "retrieval"
        adapter.mkdir(parents=True)
        save_file(tensors, adapter / "adapter_model.safetensors")
        fields = dict(
            peft_type="LORA", r=rank, lora_alpha=alpha, bias="none", use_rslora=False, rank_pattern={}
        )
        (adapter / "adapter_config.json").write_text(json.dumps(fields))
        path = folder / "config.json"
        own = dict(architectures=["JinaEmbeddingsV5Model"], model_type="jina_embeddings_v5")
        own["auto_map"] = {"AutoModel": "modeling_jina_embeddings_v5.JinaEmbeddingsV5Model"}
        path.write_text(json.dumps(json.loads(path.read_text()) | own, indent=2) + "\n")

        def compute(model):
            states = [model(self.ids(text)).last_hidden_state[0, -1:] for text in TEXTS]
            return [torch.nn.functional.normalize(state, dim=-1) for state in states]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        self.write(folder, dict(task="embed", texts=texts))

    def ranking(self, name, config, seed):
        """Jina Reranker 3: a query and all documents in one prompt of Qwen3, and two layers behind
        the tokens that stand behind them. The prompt is that of vLLM and of the authors."""
        from safetensors.torch import save_file

        tokens = ["<|embed_token|>", "<|rerank_token|>"]
        tokenizer = copy.deepcopy(self.tokenizer)
        tokenizer.add_tokens(tokens, special_tokens=True)
        document, query = tokenizer.convert_tokens_to_ids(tokens)
        config.vocab_size = len(tokenizer)
        backbone = randomize(AutoModel.from_config(config, attn_implementation="eager"), seed)
        size = config.hidden_size
        layers = [(size, size // 2), (size // 2, 24)]
        first, second = [torch.nn.Linear(*layer, bias=False) for layer in layers]
        head = randomize(torch.nn.Sequential(first, torch.nn.ReLU(), second), seed + 1)

        class Ranking(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model, self.projector = backbone, head

        def prompt(question, documents):
            passages = "".join(
                f'<passage id="{i}">\n{text}{tokens[0]}\n</passage>\n'
                for i, text in enumerate(documents)
            )
            return RANKING.format(
                count=len(documents), query=question, passages=passages, token=tokens[1]
            )

        model = Ranking()
        documents = [text for _, text in PAIRS]
        lists = [(PAIRS[0][0], documents), *((question, [text]) for question, text in PAIRS)]

        def compute(model):
            results = []
            for question, texts in lists:
                ids = torch.tensor([tokenizer(prompt(question, texts))["input_ids"]])
                states = model.model(ids).last_hidden_state[0]
                order = torch.cat([states[ids[0] == document], states[ids[0] == query]])
                vectors = model.projector(order)
                results += [vectors, torch.cosine_similarity(vectors[-1:], vectors[:-1])]
            return results

        with torch.no_grad():
            results = checked(compute, model)
        rows, scores = results[::2], results[1::2]
        texts = [dict(text=prompt(*lists[0]), rows=rows_of(rows[0]))]
        pairs = [
            dict(text_1=a, text_2=b, score=score.item()) for (a, b), score in zip(PAIRS, scores[1:])
        ]
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        state = {key: value.to(torch.bfloat16).contiguous() for key, value in model.state_dict().items()}
        save_file(state, folder / "model.safetensors", metadata=dict(format="pt"))
        config.architectures, config.dtype = ["JinaForRanking"], "bfloat16"
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        whole = dict(query=PAIRS[0][0], documents=documents, scores=scores[0].tolist())
        self.write(folder, dict(task="token_embed", texts=texts, pairs=pairs, list=whole))

    def late_interaction(self, name, seed):
        """A projection of each token over the text model of Qwen2-VL, compared by MaxSim."""
        text = dict(TINY, rope_parameters=dict(
            rope_type="default", rope_theta=3_000.0, mrope_section=[2, 2, 4],
        ))  # fmt: skip
        vision = dict(depth=1, embed_dim=32, hidden_size=64, num_heads=4, mlp_ratio=2)
        vlm = dict(model_type="qwen2_vl", text_config=text, vision_config=vision)
        model = randomize(ColQwen2ForRetrieval(ColQwen2Config(vlm_config=vlm, embedding_dim=24)), seed)
        inputs = TEXTS + [text for pair in PAIRS for text in pair]

        def compute(model):
            return [model(self.ids(text)).embeddings[0] for text in inputs]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        behind = rows[len(TEXTS) :]
        pairs = [
            dict(text_1=a, text_2=b, score=(query @ document.T).max(-1).values.sum().item())
            for (a, b), query, document in zip(PAIRS, behind[::2], behind[1::2])
        ]
        self.save(name, model, dict(task="token_embed", texts=texts, pairs=pairs))


def makers(maker):
    identity, tanh = torch.nn.Identity(), torch.nn.Tanh()
    dot = maker.tokenizer.convert_tokens_to_ids(".")
    st, backbone = maker.sentence_transformer, maker.backbone
    return {
        "llama-mean": lambda n: st(n, LlamaConfig(**TINY), 1, "mean", normalize=False),
        "llama-last": lambda n: backbone(n, LlamaConfig(**TINY), 2),
        "gemma2-cls": lambda n: st(n, Gemma2Config(**GEMMA2), 3, "cls"),
        "gemma2-mean-dense": lambda n: st(
            n, Gemma2Config(**GEMMA2), 4, "mean", [(96, identity), (32, identity)]
        ),
        "mistral-mean-dense": lambda n: st(
            n, MistralConfig(**TINY, sliding_window=24), 5, "mean", [(32, tanh)]
        ),
        "mistral-tokens": lambda n: backbone(
            n, MistralConfig(**TINY, sliding_window=None), 6, "token_embed"
        ),
        "qwen2-last": lambda n: st(n, Qwen2Config(**TINY), 7, "lasttoken"),
        "qwen2-last-dense": lambda n: st(
            n, Qwen2Config(**TINY, tie_word_embeddings=True), 8, "lasttoken", [(48, tanh)], False
        ),
        "gemma-class": lambda n: maker.classifier(n, GemmaConfig(**GEMMA), 9, num_labels=3),
        "gemma-score": lambda n: maker.classifier(n, GemmaConfig(**GEMMA), 10, num_labels=1),
        "qwen2-class": lambda n: maker.classifier(
            n, Qwen2Config(**TINY), 11, num_labels=4, problem_type="multi_label_classification"
        ),
        "qwen3-regression": lambda n: maker.classifier(
            n, Qwen3Config(**TINY), 12, num_labels=1, problem_type="regression"
        ),
        "gpt2-class": lambda n: maker.classifier(n, GPT2Config(**GPT2), 21, num_labels=3),
        "jamba-score": lambda n: maker.classifier(
            n, JambaConfig(**JAMBA), 22, JambaWithBias, num_labels=1
        ),
        "cohere-class": lambda n: maker.classifier(
            n, CohereConfig(**TINY), 23, CohereForSequenceClassification, num_labels=3
        ),
        "gemma3-class": lambda n: maker.classifier(n, Gemma3Config(**GEMMA3), 24, num_labels=2),
        "phi3-token-class": lambda n: maker.token_classifier(n, Phi3Config(**TINY), 25, 3),
        "qwen3-reranker": lambda n: maker.reranker(
            n, Qwen3Config(**TINY, tie_word_embeddings=True), 13, ["Ġthe", "Ġin"], "from_2_way_softmax"
        ),
        "qwen2-reranker": lambda n: maker.reranker(
            n, Qwen2Config(**TINY, tie_word_embeddings=False), 14, ["0", "1"], "from_2_way_softmax"
        ),
        "gemma-reranker": lambda n: maker.reranker(
            n, GemmaConfig(**GEMMA), 15, ["Ġin"], "no_post_processing"
        ),
        "qwen2-reward": lambda n: maker.reward(
            n, Qwen2Config(**TINY), 16, "Qwen2ForRewardModel", 1, {}
        ),
        "internlm2-reward": lambda n: maker.reward(
            n, LlamaConfig(**TINY), 18, "InternLM2ForRewardModel", 1, {}
        ),
        "jina-5-last": lambda n: maker.with_task(n, Qwen3Config(**TINY, head_dim=16), 20, 4, 6),
        "colqwen2-tokens": lambda n: maker.late_interaction(n, 19),
        "jina-ranking": lambda n: maker.ranking(
            n, Qwen3Config(**dict(TINY, max_position_embeddings=2_048), head_dim=16), 26
        ),
        "qwen2-process": lambda n: maker.reward(
            n,
            Qwen2Config(**TINY),
            17,
            "Qwen2ForProcessRewardModel",
            2,
            dict(pooler_config=dict(step_tag_id=dot)),
            dot,
        ),
    }


def main():
    torch.set_num_threads(1)
    known = makers(Maker())
    wanted = sys.argv[1:] or list(known)
    for name in wanted:
        known[name](name)
        print(name)


if __name__ == "__main__":
    main()
