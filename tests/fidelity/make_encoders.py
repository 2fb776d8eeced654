"""Builds the encoders of the tests and records the answers of Hugging Face transformers and of
sentence-transformers.

    python tests/fidelity/make_encoders.py            # all of them, into tests/fidelity/encoders
    python tests/fidelity/make_encoders.py bert-mean  # some of them

Each model is a folder with seeded random weights, plus `golden.json` in the form of
`make_poolers.py`. All answers are in float32. Every kind of tokenizer is trained on the corpus, with
the template of its family.

Needs: torch, transformers >= 5.20, sentence-transformers >= 6, tokenizers, safetensors. Nothing is
downloaded.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, models
from sentence_transformers.base.modules.router import Router
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers import models as kinds
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

from corpus import sentences

OUT = Path(__file__).parent / "encoders"
ROUTES = Path(__file__).parent / "routes"
TEXTS = list(sentences(7, 4)) + ["a", " ".join(sentences(8, 5))]
PAIRS = [("Where is the kettle?", text) for text in list(sentences(9, 3))]
FLOAT32_NOISE = 5e-5  # largest gap between float32 and float64 results
VOCAB = 320

TINY = dict(
    vocab_size=VOCAB,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=512,
)
BERT = dict(TINY, type_vocab_size=2, pad_token_id=0)
ROBERTA = dict(TINY, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
DISTIL = dict(vocab_size=VOCAB, dim=48, hidden_dim=80, n_layers=3, n_heads=4, pad_token_id=0)
ELECTRA = dict(BERT, embedding_size=32)
MPNET = dict(TINY, pad_token_id=1, bos_token_id=0, eos_token_id=2)
DEBERTA = dict(
    TINY,
    type_vocab_size=0,
    pad_token_id=0,
    relative_attention=True,
    position_buckets=16,
    max_relative_positions=-1,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type=["p2c", "c2p"],
    position_biased_input=False,
)
MODERN = dict(
    TINY,
    local_attention=16,
    pad_token_id=0,
    cls_token_id=2,
    sep_token_id=3,
    bos_token_id=2,
    eos_token_id=3,
)
EURO = dict(
    TINY,
    num_key_value_heads=2,
    rms_norm_eps=1e-3,
    rope_parameters=dict(rope_type="default", rope_theta=250_000.0),
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=3,
)
ULTRA = dict(
    TINY,
    sliding_window=9,
    rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=900.0),
        full_attention=dict(rope_type="default", rope_theta=70_000.0),
    ),
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=3,
)
PRIVACY = dict(
    TINY,
    num_key_value_heads=2,
    head_dim=16,
    sliding_window=6,
    num_local_experts=4,
    num_experts_per_tok=2,
    rope_parameters=dict(rope_type="default", rope_theta=3_000.0),
    pad_token_id=0,
    eos_token_id=3,
)
DECODER = dict(
    TINY,
    num_key_value_heads=2,
    rms_norm_eps=1e-3,
    rope_parameters=dict(rope_type="default", rope_theta=3_000.0),
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=3,
)
T5 = dict(
    vocab_size=VOCAB, d_model=48, d_kv=16, d_ff=80, num_layers=3, num_heads=4, pad_token_id=0,
    decoder_start_token_id=0,
)
GEMMA3 = dict(
    TINY,
    num_hidden_layers=4,
    num_key_value_heads=2,
    head_dim=16,
    query_pre_attn_scalar=16,
    sliding_window=24,
    layer_types=["sliding_attention", "full_attention"] * 2,
    use_bidirectional_attention=True,
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=3,
)


def trained(model, trainer, template, specials, pre, normalizer=None, decoder=None):
    """Returns a tokenizer of `VOCAB` tokens with the template of its family."""
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.train_from_iterator(sentences(0, 3_000), trainer)
    single, pair = template
    ids = [(token, tokenizer.token_to_id(token)) for token in specials]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=ids
    )
    return tokenizer


def fast(tokenizer, **named):
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **named)


def word_piece():
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pad, unk, cls, sep, mask = specials
    tokenizer = trained(
        kinds.WordPiece(unk_token=unk),
        trainers.WordPieceTrainer(vocab_size=VOCAB, special_tokens=specials, show_progress=False),
        ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
        [cls, sep],
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(lowercase=True),
        decoders.WordPiece(),
    )
    named = dict(unk_token=unk, cls_token=cls, sep_token=sep, pad_token=pad, mask_token=mask)
    # As BERT's own tokenizer has them.
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return fast(tokenizer, **named, model_input_names=inputs)


def bpe(specials, template):
    pad, cls, sep = specials["pad_token"], specials["cls_token"], specials["sep_token"]
    order = specials.pop("order")
    tokenizer = trained(
        kinds.BPE(),
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=order,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
        template,
        [cls, sep],
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoder=decoders.ByteLevel(),
    )
    return fast(tokenizer, **specials)


def roberta_bpe():
    specials = dict(
        bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>", cls_token="<s>",
        sep_token="</s>", mask_token="<mask>", order=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    )
    return bpe(specials, ("<s> $A </s>", "<s> $A </s> </s> $B </s>"))


def modern_bpe():
    specials = dict(
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", order=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    )
    return bpe(specials, ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"))


def unigram(order, template, ends, **named):
    tokenizer = trained(
        kinds.Unigram(),
        trainers.UnigramTrainer(
            vocab_size=VOCAB, special_tokens=order, unk_token=named["unk_token"], show_progress=False
        ),
        template,
        ends,
        pre_tokenizers.Metaspace(),
        normalizers.NFKC(),
        decoders.Metaspace(),
    )
    assert tokenizer.get_vocab_size() <= VOCAB
    return fast(tokenizer, **named)


def xlmr_unigram():
    return unigram(
        ["<s>", "<pad>", "</s>", "<unk>"],
        ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        ["<s>", "</s>"],
        bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>", cls_token="<s>",
        sep_token="</s>",
    )


def t5_unigram():
    return unigram(
        ["<pad>", "</s>", "<unk>"],
        ("$A </s>", "$A </s> $B </s>"),
        ["</s>"],
        pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
    )


def randomize(model, seed):
    """Gives norms, biases and weights values that differ from their defaults, and that bfloat16 has.

    Buffers stay as they are: rotary frequencies are never rounded.
    """
    generator = torch.Generator().manual_seed(seed)
    gemma = "Gemma" in type(model).__name__
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor.dim() == 1:
                base = 0.0 if name.endswith("bias") or gemma else 1.0
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
        gap = (one - other).abs().max().item()
        assert gap < FLOAT32_NOISE * max(1.0, one.abs().max().item()), gap
    return rough


def centered(self, hidden_states, cache=None, attention_mask=None, **others):
    """`Lfm2ShortConv.forward` with as many tokens on both sides: vLLM's `_bidirectional_conv1d`."""
    b, c, x = self.in_proj(hidden_states).transpose(-1, -2).chunk(3, dim=-2)
    weight, around = self.conv.weight, self.conv_kernel_size // 2
    channels, length = x.shape[1:]
    y = torch.nn.functional.conv1d(b * x, weight, self.conv.bias, padding=around, groups=channels)
    return self.out_proj((c * y[..., :length]).transpose(-1, -2))


class Maker:
    def __init__(self):
        self.tokenizers = dict(
            words=word_piece(),
            mpnet=word_piece_of_mpnet(),
            roberta=roberta_bpe(),
            modern=modern_bpe(),
            xlmr=xlmr_unigram(),
            t5=t5_unigram(),
        )

    def inputs(self, tokenizer, model, text, pair=None):
        encoded = self.tokenizers[tokenizer](text, pair, return_tensors="pt")
        has_types = getattr(model.config, "type_vocab_size", 0) > 1
        names = ["input_ids", "attention_mask"] + ["token_type_ids"] * has_types
        return {name: encoded[name] for name in names if name in encoded}

    def save(self, name, tokenizer, model, golden):
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        model.to(torch.bfloat16).save_pretrained(folder)
        self.tokenizers[tokenizer].save_pretrained(folder)
        self.write(folder, golden)

    def write(self, folder, golden):
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")

    def vectors(
        self, name, tokenizer, config, seed, pooling, normalize=True, dense=None, kind=None, whole=None,
        layers=None,
    ):
        """A folder that sentence-transformers writes, with its vectors. `whole` is a class with
        further parts, which the folder then has. `layers` are the first layer of a mean over
        layers, and their weights."""
        torch.manual_seed(seed)
        kind = whole or kind
        build = (kind or hf.AutoModel)
        make = build._from_config if kind else build.from_config
        backbone = randomize(make(config), seed)
        with tempfile.TemporaryDirectory() as base:
            backbone.save_pretrained(base)
            self.tokenizers[tokenizer].save_pretrained(base)
            more = dict(config_kwargs=dict(output_hidden_states=True)) if layers else {}
            modules = [models.Transformer(base, max_seq_length=500, **more)]
        if layers:
            start, weights = layers
            weights = torch.nn.Parameter(torch.tensor(weights))
            modules.append(models.WeightedLayerPooling(48, config.num_hidden_layers, start, weights))
        modules.append(models.Pooling(48, pooling_mode=pooling))
        for inputs, outputs, activation, *bias in dense or []:
            modules.append(models.Dense(inputs, outputs, *bias, activation_function=activation))
        if normalize:
            modules.append(models.Normalize())
        st = SentenceTransformer(modules=modules, device="cpu")
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        st.to(torch.bfloat16).save(str(folder))
        (folder / "README.md").unlink(missing_ok=True)
        if whole is not None:
            backbone.to(torch.bfloat16).save_pretrained(folder)
        float32 = dict(dtype=torch.float32)
        st = SentenceTransformer(str(folder), device="cpu", model_kwargs=float32).float()
        rows = [st.encode([text], normalize_embeddings=False) for text in TEXTS]
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        vectors = lambda text: torch.tensor(st.encode([text]))
        pairs = [
            dict(text_1=a, text_2=b, score=torch.cosine_similarity(vectors(a), vectors(b)).item())
            for a, b in PAIRS
        ]
        self.write(folder, dict(task="embed", texts=texts, pairs=pairs))

    def router(self, name, tokenizer, config, seed):
        """A folder with a model for queries and one for documents, each with its vectors."""

        def transformer(seed):
            with tempfile.TemporaryDirectory() as base:
                randomize(hf.AutoModel.from_config(config), seed).save_pretrained(base)
                self.tokenizers[tokenizer].save_pretrained(base)
                return models.Transformer(base, max_seq_length=500)

        torch.manual_seed(seed)
        dense = models.Dense(48, 24)
        routes = {
            "query": [transformer(seed), models.Pooling(48, pooling_mode="mean")],
            "document": [transformer(seed + 1), models.Pooling(48, pooling_mode="cls")],
        }
        prompts = {"query": "find: ", "document": ""}
        st = SentenceTransformer(
            modules=[Router(routes), dense, models.Normalize()], device="cpu", prompts=prompts
        )
        folder = ROUTES / name
        shutil.rmtree(folder, ignore_errors=True)
        st.to(torch.bfloat16).save(str(folder))
        (folder / "README.md").unlink(missing_ok=True)
        float32 = dict(dtype=torch.float32)
        st = SentenceTransformer(str(folder), device="cpu", model_kwargs=float32).float()
        for task in routes:
            rows = [st.encode([text], task=task, prompt="") for text in TEXTS]
            texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
            golden = json.dumps(dict(task="embed", texts=texts)) + "\n"
            (folder / f"{task}.json").write_text(golden)

    def threefold(self, name, tokenizer, config, seed):
        """BGE-M3: a vector of the text, and by `FlagEmbedding`'s formulas a vector and a weight of
        each token. Their layers are files of torch.save, as in the published folder."""
        self.vectors(name, tokenizer, config, seed, "cls")
        folder = OUT / name
        model = hf.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        colbert = randomize(torch.nn.Linear(48, 24), seed + 1)
        sparse = randomize(torch.nn.Linear(48, 1), seed + 2)
        # Some weights are below 0.
        sparse.bias.data -= 0.75
        torch.save(colbert.half().state_dict(), folder / "colbert_linear.pt")
        torch.save(sparse.state_dict(), folder / "sparse_linear.pt")

        class Both(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model, self.colbert, self.sparse = model, colbert.float(), sparse.float()

        def compute(both):
            results = []
            for text in TEXTS:
                states = both.model(**self.inputs(tokenizer, both.model, text)).last_hidden_state[0]
                vectors = torch.nn.functional.normalize(both.colbert(states[1:]), dim=-1)
                results += [vectors, torch.relu(both.sparse(states[1:-1]))]
            return results

        with torch.no_grad():
            rows = checked(compute, Both())
        for task, part in [("token_embed", rows[::2]), ("token_classify", rows[1::2])]:
            texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, part)]
            (folder / f"{task}.json").write_text(json.dumps(dict(task=task, texts=texts)) + "\n")

    def voyage(self, name, seed, pooling=None):
        """vLLM's `VoyageQwen3BidirectionalEmbedModel`: a layer behind the hidden states of a Qwen3
        with attention to both sides. `pooling` is that of the files of sentence-transformers."""
        config = hf.Qwen3Config(**DECODER, head_dim=16, is_causal=False)
        self.vectors(name, "modern", config, seed, pooling or "lasttoken")
        folder = OUT / name
        model = hf.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        linear = randomize(torch.nn.Linear(48, 32, bias=False), seed + 1)
        both = torch.nn.ModuleDict(dict(model=model, linear=linear))
        inputs = TEXTS + [text for pair in PAIRS for text in pair]

        def compute(both):
            states = [
                both.model(**self.inputs("modern", both.model, text)).last_hidden_state
                for text in inputs
            ]
            pooled = [x.mean(1) if pooling == "mean" else x[:, -1] for x in states]
            return [torch.nn.functional.normalize(both.linear(x), dim=-1) for x in pooled]

        with torch.no_grad():
            rows = checked(compute, both)
        state = {f"model.{key}": value for key, value in load_file(folder / "model.safetensors").items()}
        state["linear.weight"] = linear.weight.detach().to(torch.bfloat16)
        save_file(state, folder / "model.safetensors", metadata=dict(format="pt"))
        path = folder / "config.json"
        own = dict(architectures=["VoyageQwen3BidirectionalEmbedModel"], num_labels=32)
        path.write_text(json.dumps(json.loads(path.read_text()) | own, indent=2) + "\n")
        if pooling is None:
            for part in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
                (folder / part).unlink(missing_ok=True)
            for part in ("1_Pooling", "2_Normalize"):
                shutil.rmtree(folder / part, ignore_errors=True)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        behind = rows[len(TEXTS) :]
        pairs = [
            dict(text_1=a, text_2=b, score=(x @ y.T).item())
            for (a, b), x, y in zip(PAIRS, behind[::2], behind[1::2])
        ]
        self.write(folder, dict(task="embed", texts=texts, pairs=pairs))

    def lfm2(self, name, seed, pooling=None, **more):
        """vLLM's `Lfm2BidirectionalModel`: an LFM2 with attention to both sides, and convolutions
        over the tokens around each one. `pooling` is that of the files of sentence-transformers."""
        config = hf.Lfm2Config(**dict(DECODER, norm_eps=1e-3, **more), is_causal=False)
        causal = Lfm2ShortConv.forward
        Lfm2ShortConv.forward = centered
        try:
            self.vectors(name, "modern", config, seed, pooling or "cls")
        finally:
            Lfm2ShortConv.forward = causal
        folder = OUT / name
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config.pop("is_causal")
        file = "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"
        config |= dict(architectures=["Lfm2BidirectionalModel"], auto_map={"AutoModel": file})
        path.write_text(json.dumps(config, indent=2) + "\n")
        if pooling is None:
            for part in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
                (folder / part).unlink(missing_ok=True)
            for part in ("1_Pooling", "2_Normalize"):
                shutil.rmtree(folder / part, ignore_errors=True)

    def giga(self, name, seed, pooling=None, **more):
        """vLLM's `DeepseekV3BidirectionalModel`: a DeepSeek V3 with attention to both sides.
        `pooling` is that of the files of sentence-transformers."""
        config = hf.DeepseekV3Config(
            **dict(
                DECODER, num_key_value_heads=4, kv_lora_rank=20, qk_nope_head_dim=12,
                qk_rope_head_dim=8, v_head_dim=10, n_routed_experts=8, num_experts_per_tok=3,
                moe_intermediate_size=24, n_group=2, topk_group=1, first_k_dense_replace=1,
            ) | more,
            is_causal=False,
        )  # fmt: skip
        init = hf.DeepseekV3Model.__init__

        def with_biases(model, *rest):
            init(model, *rest)
            generator = torch.Generator().manual_seed(seed + 1)
            for key, bias in model.named_buffers():
                if key.endswith("e_score_correction_bias"):
                    noise = 0.3 * torch.randn(bias.shape, generator=generator)
                    bias.copy_(noise.to(torch.bfloat16))

        hf.DeepseekV3Model.__init__ = with_biases
        try:
            self.vectors(name, "modern", config, seed, pooling or "lasttoken")
        finally:
            hf.DeepseekV3Model.__init__ = init
        folder = OUT / name
        path = folder / "config.json"
        config = json.loads(path.read_text())
        file = "modeling_deepseek_v3_bidirectional.DeepseekV3BidirectionalModel"
        config |= dict(
            architectures=["DeepseekV3BidirectionalModel"], model_type="deepseek_v3_bidirec",
            auto_map={"AutoModel": file},
        )  # fmt: skip
        path.write_text(json.dumps(config, indent=2) + "\n")
        if pooling is None:
            for part in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
                (folder / part).unlink(missing_ok=True)
            for part in ("1_Pooling", "2_Normalize"):
                shutil.rmtree(folder / part, ignore_errors=True)

    def static(self, name, seed, of_model2vec):
        """A table of tokens in the form of the published folders of sentence-transformers, or of
        Model2Vec with rows that tokens share, and with factors."""
        generator = torch.Generator().manual_seed(seed)
        drawn = lambda *shape: (0.15 * torch.randn(shape, generator=generator)).to(torch.bfloat16).float()
        tokenizer = self.tokenizers["words"].backend_tokenizer
        folder, path = OUT / name, "." if of_model2vec else "0_StaticEmbedding"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / path).mkdir(parents=True)
        tokenizer.save(str(folder / path / "tokenizer.json"))
        modules = [dict(idx=0, name="0", path=path, type="sentence_transformers.models.StaticEmbedding")]
        if of_model2vec:
            tensors = dict(
                embeddings=drawn(40, 32),
                mapping=torch.randint(0, 40, (VOCAB,), generator=generator),
                weights=drawn(VOCAB).abs() + 0.5,
            )
            config = dict(
                model_type="model2vec", architectures=["StaticModel"], tokenizer_name="words",
                apply_pca=32, apply_zipf=True, hidden_dim=32, seq_length=1000000, normalize=True,
            )
            (folder / "config.json").write_text(json.dumps(config))
            modules.append(
                dict(idx=1, name="1", path="1_Normalize", type="sentence_transformers.models.Normalize")
            )
        else:
            tensors = {"embedding.weight": drawn(VOCAB, 32)}
        save_file(tensors, folder / path / "model.safetensors")
        (folder / "modules.json").write_text(json.dumps(modules))
        st = SentenceTransformer(str(folder), device="cpu")
        texts = [dict(text=text, rows=rows_of(st.encode([text]))) for text in TEXTS]
        vectors = lambda text: torch.tensor(st.encode([text]))
        pairs = [
            dict(text_1=a, text_2=b, score=torch.cosine_similarity(vectors(a), vectors(b)).item())
            for a, b in PAIRS
        ]
        self.write(folder, dict(task="embed", texts=texts, pairs=pairs))

    def classes(self, name, tokenizer, kind, config, seed, labels):
        """HF's `…ForSequenceClassification`, with the scores of pairs if there is one class."""
        config.num_labels = labels
        model = randomize(kind(config), seed)

        def compute(model):
            inputs = [self.inputs(tokenizer, model, text) for text in TEXTS]
            inputs += [self.inputs(tokenizer, model, *pair) for pair in PAIRS] * (labels == 1)
            logits = [model(**one).logits for one in inputs]
            return [one.sigmoid() if labels == 1 else one.softmax(-1) for one in logits]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        pairs = [
            dict(text_1=a, text_2=b, score=row.item())
            for (a, b), row in zip(PAIRS, rows[len(TEXTS) :])
        ]
        self.save(name, tokenizer, model, dict(task="classify", texts=texts, pairs=pairs))

    def by_token(self, name, tokenizer, kind, config, seed, labels=5):
        """HF's `…ForTokenClassification`."""
        config.num_labels = labels
        model = randomize(kind(config), seed)

        def compute(model):
            inputs = [self.inputs(tokenizer, model, text) for text in TEXTS]
            return [model(**one).logits[0].softmax(-1) for one in inputs]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        self.save(name, tokenizer, model, dict(task="token_classify", texts=texts))

    def sparse(self, name, tokenizer, kind, config, seed):
        """HF's `…ForMaskedLM` with SPLADE's pooling."""
        model = randomize(kind(config), seed)
        model.tie_weights()

        def compute(model):
            inputs = [self.inputs(tokenizer, model, text) for text in TEXTS]
            logits = [model(**one).logits[0] for one in inputs]
            return [one.relu().log1p().max(0, keepdim=True).values for one in logits]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        self.save(name, tokenizer, model, dict(task="embed", texts=texts))

    def colbert(self, name, tokenizer, config, seed):
        """The class of ColBERT's authors: a projection of each token, of length 1."""

        class HF_ColBERT(hf.BertPreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.bert = hf.BertModel(config, add_pooling_layer=False)
                self.linear = torch.nn.Linear(config.hidden_size, 16, bias=False)
                self.post_init()

            def forward(self, **inputs):
                return self.linear(self.bert(**inputs).last_hidden_state)

        model = randomize(HF_ColBERT(config), seed)

        def compute(model):
            inputs = [self.inputs(tokenizer, model, text) for text in TEXTS]
            return [torch.nn.functional.normalize(model(**one)[0], dim=-1) for one in inputs]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        self.save(name, tokenizer, model, dict(task="token_embed", texts=texts))

    def of_nemotron(self, name, seed, pooling, labels=0, temperature=None, **more):
        """NVIDIA's classes: Llama with attention to both sides, and a pooling by their formulas."""
        config = hf.LlamaConfig(**dict(DECODER, **more), is_causal=False, num_labels=labels)
        model = randomize((hf.LlamaForSequenceClassification if labels else hf.LlamaModel)(config), seed)
        pooled = dict(
            avg=lambda x: x.sum(1) / x.shape[1], cls=lambda x: x[:, 0], last=lambda x: x[:, -1]
        )[pooling or "avg"]

        def compute(model):
            inputs = TEXTS + [text for pair in PAIRS for text in pair] if not labels else TEXTS
            inputs = [self.inputs("modern", model, text) for text in inputs]
            if labels == 1:
                inputs += [self.inputs("modern", model, *pair) for pair in PAIRS]
            hidden = [pooled(model.base_model(**one).last_hidden_state) for one in inputs]
            if not labels:
                return [torch.nn.functional.normalize(x, dim=-1) for x in hidden]
            logits = [model.score(x) / (temperature or 1.0) for x in hidden]
            return [one.sigmoid() if labels == 1 else one.softmax(-1) for one in logits]

        with torch.no_grad():
            rows = checked(compute, model)
        texts = [dict(text=text, rows=rows_of(row)) for text, row in zip(TEXTS, rows)]
        behind = rows[len(TEXTS) :]
        scores = [x.item() for x in behind] if labels else [
            (a @ b.T).item() for a, b in zip(behind[::2], behind[1::2])
        ]
        pairs = [dict(text_1=a, text_2=b, score=score) for (a, b), score in zip(PAIRS, scores)]
        task = "classify" if labels else "embed"
        self.save(name, "modern", model, dict(task=task, texts=texts, pairs=pairs))
        path = OUT / name / "config.json"
        config = json.loads(path.read_text())
        config.pop("is_causal")
        kind = "ForSequenceClassification" if labels else "Model"
        config |= dict(architectures=[f"LlamaBidirectional{kind}"], model_type="llama_bidirec")
        file = "llama_bidirectional_model.LlamaBidirectional"
        config["auto_map"] = {"AutoConfig": f"{file}Config", "AutoModel": f"{file}Model"}
        config |= dict(pooling=pooling, temperature=temperature)
        config = {field: value for field, value in config.items() if value is not None}
        path.write_text(json.dumps(config, indent=1) + "\n")

    def of_jina(self, name, seed, labels, **fields):
        """XLM-RoBERTa with the names of Jina's authors, as Jina Reranker 2 has them."""
        kind, config = hf.XLMRobertaForSequenceClassification, hf.XLMRobertaConfig
        self.classes(name, "xlmr", kind, config(**dict(ROBERTA, **fields)), seed, labels)
        folder = OUT / name
        tensors = of_jina(load_file(folder / "model.safetensors"))
        save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
        config = json.loads((folder / "config.json").read_text())
        config.pop("model_type")
        config |= dict(emb_pooler=None, position_embedding_type="absolute", use_flash_attn=True)
        file = "modeling_xlm_roberta.XLMRoberta"
        config["auto_map"] = {
            "AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig",
            "AutoModelForSequenceClassification": f"{file}ForSequenceClassification",
        }
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")

    def renamed(self, name, original, architecture, model_type, rename, fields):
        """The same model with the names and fields of its authors' folder."""
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(OUT / original, folder)
        tensors = load_file(folder / "model.safetensors")
        save_file(rename(tensors), folder / "model.safetensors", metadata=dict(format="pt"))
        config = json.loads((folder / "config.json").read_text())
        config.update(architectures=[architecture], model_type=model_type)
        for theirs, ours in fields.items():
            config[theirs] = config.pop(ours) if isinstance(ours, str) and ours in config else ours
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def word_piece_of_mpnet():
    """MPNet's tokens: `<s>` 0, `<pad>` 1, `</s>` 2, and no types."""
    tokenizer = trained(
        kinds.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(
            vocab_size=VOCAB,
            special_tokens=["<s>", "<pad>", "</s>", "[UNK]", "<mask>"],
            show_progress=False,
        ),
        ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        ["<s>", "</s>"],
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(lowercase=True),
        decoders.WordPiece(),
    )
    return fast(
        tokenizer, unk_token="[UNK]", cls_token="<s>", sep_token="</s>", pad_token="<pad>",
        bos_token="<s>", eos_token="</s>", mask_token="<mask>",
    )


def of_nomic(tensors):
    """The names in the folders of Nomic Embed's authors."""
    if any("Wqkv" in name for name in tensors):
        return tensors
    out, layers = {}, {}
    for name, tensor in tensors.items():
        name = name.removeprefix("nomic_bert.")
        name = name.replace("embeddings.LayerNorm", "emb_ln")
        if not name.startswith("layers."):
            out[name] = tensor
            continue
        _, index, rest = name.split(".", 2)
        for ours, theirs in [
            ("self_attn.o_proj", "attn.out_proj"),
            ("post_attention_layernorm", "norm1"),
            ("post_mlp_layernorm", "norm2"),
            ("mlp.up_proj", "mlp.fc11"),
            ("mlp.gate_proj", "mlp.fc12"),
            ("mlp.down_proj", "mlp.fc2"),
        ]:
            rest = rest.replace(ours, theirs)
        if rest.startswith("self_attn."):
            layers.setdefault(index, {})[rest] = tensor
        else:
            out[f"encoder.layers.{index}.{rest}"] = tensor
    for index, parts in layers.items():
        stacked = [parts[f"self_attn.{kind}_proj.weight"] for kind in "qkv"]
        out[f"encoder.layers.{index}.attn.Wqkv.weight"] = torch.cat(stacked)
    return out


def of_ultra(tensors):
    """The names in the first checkpoints of UltraBERT."""
    return {
        f"ultrabert.{name.removeprefix('model.')}" if name.startswith("model.") else name: tensor
        for name, tensor in tensors.items()
    }


def of_jina(tensors):
    """The names in the folders of Jina's authors."""
    out, layers = {}, {}
    for name, tensor in tensors.items():
        name = name.replace("embeddings.LayerNorm", "emb_ln")
        if "encoder.layer." not in name:
            out[name] = tensor
            continue
        name = name.replace("encoder.layer.", "encoder.layers.")
        for ours, theirs in [
            ("attention.output.dense", "mixer.out_proj"),
            ("attention.output.LayerNorm", "norm1"),
            ("intermediate.dense", "mlp.fc1"),
            ("output.dense", "mlp.fc2"),
            ("output.LayerNorm", "norm2"),
        ]:
            name = name.replace(ours, theirs)
        if "attention.self" in name:
            layer, rest = name.split(".attention.self.")
            layers.setdefault(layer, {})[rest] = tensor
        else:
            out[name] = tensor
    for layer, parts in layers.items():
        for part in ["weight", "bias"]:
            stacked = [parts[f"{kind}.{part}"] for kind in ["query", "key", "value"]]
            out[f"{layer}.mixer.Wqkv.{part}"] = torch.cat(stacked)
    return out


def of_new(tensors):
    """The names in the folders of GTE's authors."""
    out, layers = {}, {}
    for name, tensor in tensors.items():
        name = name.removeprefix("gte.").removeprefix("new.")
        if "layer." in name and "qkv_proj" in " ".join(tensors):
            out[f"new.{name}"] = tensor
            continue
        if not name.startswith("layers."):
            out[f"new.{name}"] = tensor
            continue
        _, index, rest = name.split(".", 2)
        for ours, theirs in [
            ("self_attn.o_proj", "attention.o_proj"),
            ("post_attention_layernorm", "attn_ln"),
            ("post_mlp_layernorm", "mlp_ln"),
        ]:
            rest = rest.replace(ours, theirs)
        if rest.startswith("self_attn.") or rest.startswith(("mlp.up_proj", "mlp.gate_proj")):
            layers.setdefault(index, {})[rest] = tensor
        else:
            out[f"new.encoder.layer.{index}.{rest}"] = tensor
    for index, parts in layers.items():
        at = f"new.encoder.layer.{index}"
        for part in ["weight", "bias"]:
            stacked = [parts[f"self_attn.{kind}_proj.{part}"] for kind in "qkv"]
            out[f"{at}.attention.qkv_proj.{part}"] = torch.cat(stacked)
        both = [parts[f"mlp.{kind}_proj.weight"] for kind in ["up", "gate"]]
        out[f"{at}.mlp.up_gate_proj.weight"] = torch.cat(both)
    return out


def makers(maker):
    vectors, classes, by_token, sparse = maker.vectors, maker.classes, maker.by_token, maker.sparse
    tanh = torch.nn.Tanh()
    jina = dict(TINY, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    nomic = dict(TINY, type_vocab_size=2, pad_token_id=0)
    gte = dict(TINY, type_vocab_size=1, pad_token_id=0)
    return {
        "bert-mean": lambda n: vectors(n, "words", hf.BertConfig(**BERT), 1, "mean"),
        "bert-cls-dense": lambda n: vectors(
            n, "words", hf.BertConfig(**BERT, hidden_act="gelu_new"), 2, "cls", False, [(48, 24, tanh)]
        ),
        "bert-score": lambda n: classes(
            n, "words", hf.BertForSequenceClassification, hf.BertConfig(**BERT), 3, 1
        ),
        "bert-tokens": lambda n: by_token(
            n, "words", hf.BertForTokenClassification, hf.BertConfig(**BERT), 4
        ),
        "bert-splade": lambda n: sparse(n, "words", hf.BertForMaskedLM, hf.BertConfig(**BERT), 5),
        "colbert": lambda n: maker.colbert(n, "words", hf.BertConfig(**BERT), 6),
        "roberta-mean": lambda n: vectors(n, "roberta", hf.RobertaConfig(**ROBERTA), 7, "mean"),
        "roberta-class": lambda n: classes(
            n, "roberta", hf.RobertaForSequenceClassification, hf.RobertaConfig(**ROBERTA), 8, 3
        ),
        "roberta-score": lambda n: classes(
            n, "roberta", hf.RobertaForSequenceClassification, hf.RobertaConfig(**ROBERTA), 88, 1
        ),
        "xlmr-cls": lambda n: vectors(n, "xlmr", hf.XLMRobertaConfig(**ROBERTA), 9, "cls"),
        "bert-router": lambda n: maker.router(n, "words", hf.BertConfig(**BERT), 94),
        "bge-m3": lambda n: maker.threefold(n, "xlmr", hf.XLMRobertaConfig(**ROBERTA), 89),
        "xlmr-score": lambda n: classes(
            n, "xlmr", hf.XLMRobertaForSequenceClassification, hf.XLMRobertaConfig(**ROBERTA), 10, 1
        ),
        "camembert-tokens": lambda n: by_token(
            n, "xlmr", hf.CamembertForTokenClassification, hf.CamembertConfig(**ROBERTA), 11
        ),
        "distilbert-mean": lambda n: vectors(n, "words", hf.DistilBertConfig(**DISTIL), 12, "mean"),
        "distilbert-class": lambda n: classes(
            n, "words", hf.DistilBertForSequenceClassification, hf.DistilBertConfig(**DISTIL), 13, 2
        ),
        "distilbert-splade": lambda n: sparse(
            n, "words", hf.DistilBertForMaskedLM, hf.DistilBertConfig(**DISTIL), 14
        ),
        "mpnet-mean": lambda n: vectors(n, "mpnet", hf.MPNetConfig(**MPNET), 15, "mean"),
        "mpnet-score": lambda n: classes(
            n, "mpnet", hf.MPNetForSequenceClassification, hf.MPNetConfig(**MPNET), 16, 1
        ),
        "deberta-mean": lambda n: vectors(n, "words", hf.DebertaV2Config(**DEBERTA), 90, "mean"),
        "deberta-score": lambda n: classes(
            n, "words", hf.DebertaV2ForSequenceClassification, hf.DebertaV2Config(**DEBERTA), 91, 1
        ),
        # The tables of positions have projections of their own, and a row for each distance.
        "deberta-class": lambda n: classes(
            n,
            "words",
            hf.DebertaV2ForSequenceClassification,
            hf.DebertaV2Config(
                **dict(
                    DEBERTA,
                    type_vocab_size=2,
                    position_buckets=-1,
                    max_relative_positions=20,
                    norm_rel_ebd="none",
                    share_att_key=False,
                    pos_att_type="c2p",
                    position_biased_input=True,
                    pooler_hidden_act="tanh",
                )
            ),
            92,
            3,
        ),
        "deberta-tokens": lambda n: by_token(
            n,
            "words",
            hf.DebertaV2ForTokenClassification,
            hf.DebertaV2Config(**dict(DEBERTA, share_att_key=False, pos_att_type=["p2c"])),
            93,
        ),
        "deberta-first": lambda n: classes(
            n,
            "words",
            hf.DebertaForSequenceClassification,
            hf.DebertaConfig(
                **TINY,
                type_vocab_size=0,
                pad_token_id=0,
                relative_attention=True,
                max_relative_positions=24,
                pos_att_type="c2p|p2c",
                position_biased_input=False,
            ),
            96,
            1,
        ),
        "modernbert-mean": lambda n: vectors(n, "modern", hf.ModernBertConfig(**MODERN), 17, "mean"),
        "modernbert-class": lambda n: classes(
            n,
            "modern",
            hf.ModernBertForSequenceClassification,
            hf.ModernBertConfig(**MODERN, classifier_pooling="mean", norm_bias=True, mlp_bias=True),
            18,
            3,
        ),
        "modernbert-tokens": lambda n: by_token(
            n,
            "modern",
            hf.ModernBertForTokenClassification,
            hf.ModernBertConfig(**MODERN, attention_bias=True, classifier_bias=True),
            19,
        ),
        "electra-mean": lambda n: vectors(n, "words", hf.ElectraConfig(**ELECTRA), 70, "mean"),
        "electra-class": lambda n: classes(
            n,
            "words",
            hf.ElectraForSequenceClassification,
            hf.ElectraConfig(**dict(ELECTRA, embedding_size=64), hidden_act="gelu_new"),
            71,
            3,
        ),
        "electra-tokens": lambda n: by_token(
            n,
            "words",
            hf.ElectraForTokenClassification,
            hf.ElectraConfig(**dict(ELECTRA, embedding_size=48)),
            72,
        ),
        "electra-whole": lambda n: vectors(
            n, "words", hf.ElectraConfig(**ELECTRA), 73, "cls", whole=hf.ElectraForPreTraining
        ),
        "ernie-mean": lambda n: vectors(
            n, "words", hf.ErnieConfig(**BERT, use_task_id=True), 74, "mean"
        ),
        "ernie-score": lambda n: classes(
            n, "words", hf.ErnieForSequenceClassification, hf.ErnieConfig(**BERT), 75, 1
        ),
        "xlmr-xl-cls": lambda n: vectors(n, "xlmr", hf.XLMRobertaXLConfig(**ROBERTA), 76, "cls"),
        "xlmr-xl-class": lambda n: classes(
            n,
            "xlmr",
            hf.XLMRobertaXLForSequenceClassification,
            hf.XLMRobertaXLConfig(**dict(ROBERTA, type_vocab_size=2), layer_norm_eps=1e-3),
            77,
            3,
        ),
        "mt5-mean": lambda n: vectors(
            n, "t5", hf.MT5Config(**T5), 78, "mean", kind=hf.MT5EncoderModel
        ),
        "static-table": lambda n: maker.static(n, 82, False),
        "static-model2vec": lambda n: maker.static(n, 83, True),
        "bert-layers": lambda n: vectors(
            n, "words", hf.BertConfig(**BERT), 84, "mean", layers=(0, [0.5, 0.25, 1.0, 2.0])
        ),
        "modernbert-layers": lambda n: vectors(
            n, "modern", hf.ModernBertConfig(**MODERN), 85, "cls", False, layers=(2, [-0.5, 1.25])
        ),
        # Folders whose class has another head than the pooling.
        "t5-whole": lambda n: vectors(
            n, "t5", hf.T5Config(**T5), 79, "mean", whole=hf.T5ForConditionalGeneration
        ),
        "bert-whole": lambda n: vectors(
            n, "words", hf.BertConfig(**BERT), 80, "mean", whole=hf.BertForPreTraining
        ),
        "gte-whole": lambda n: vectors(
            n,
            "words",
            hf.GteConfig(**gte, num_labels=1),
            81,
            "cls",
            whole=hf.GteForTokenClassification,
        ),
        "eurobert-mean": lambda n: vectors(n, "modern", hf.EuroBertConfig(**EURO), 33, "mean"),
        "eurobert-late": lambda n: classes(
            n,
            "modern",
            hf.EuroBertForSequenceClassification,
            hf.EuroBertConfig(**EURO, attention_bias=True),
            34,
            3,
        ),
        "eurobert-score": lambda n: classes(
            n,
            "modern",
            hf.EuroBertForSequenceClassification,
            hf.EuroBertConfig(**EURO, classifier_pooling="bos", head_dim=16),
            35,
            1,
        ),
        "eurobert-class": lambda n: classes(
            n,
            "modern",
            hf.EuroBertForSequenceClassification,
            hf.EuroBertConfig(**EURO, classifier_pooling="mean", mlp_bias=True),
            36,
            2,
        ),
        "eurobert-tokens": lambda n: by_token(
            n, "modern", hf.EuroBertForTokenClassification, hf.EuroBertConfig(**EURO), 37
        ),
        "eurobert-splade": lambda n: sparse(
            n, "modern", hf.EuroBertForMaskedLM, hf.EuroBertConfig(**EURO, mlp_bias=True), 38
        ),
        "eurobert-splade-tied": lambda n: sparse(
            n,
            "modern",
            hf.EuroBertForMaskedLM,
            hf.EuroBertConfig(**EURO, tie_word_embeddings=True),
            39,
        ),
        "ultrabert-cls": lambda n: vectors(
            n, "modern", hf.UltrabertConfig(**ULTRA, num_key_value_heads=2), 95, "cls"
        ),
        "ultrabert-mean": lambda n: vectors(
            n,
            "modern",
            hf.UltrabertConfig(
                **dict(ULTRA, rms_norm_eps=1e-3, hidden_act="gelu", attention_bias=True),
                layer_types=["full_attention", "sliding_attention", "full_attention"],
                head_dim=16,
            ),
            96,
            "mean",
        ),
        "ultrabert-score": lambda n: classes(
            n,
            "modern",
            hf.UltrabertForSequenceClassification,
            hf.UltrabertConfig(**ULTRA, mlp_bias=True),
            97,
            1,
        ),
        "ultrabert-class": lambda n: classes(
            n,
            "modern",
            hf.UltrabertForSequenceClassification,
            hf.UltrabertConfig(**ULTRA, classifier_pooling="mean"),
            98,
            3,
        ),
        "ultrabert-tokens": lambda n: by_token(
            n, "modern", hf.UltrabertForTokenClassification, hf.UltrabertConfig(**ULTRA), 99
        ),
        # The names and the fields of the first checkpoints.
        "ultrabert-older": lambda n: maker.renamed(
            n,
            "ultrabert-score",
            "UltrabertForSequenceClassification",
            "ultrabert",
            of_ultra,
            dict(
                attention_windows=[9, 9, 0], rope_theta=[900.0, 900.0, 70_000.0],
                sliding_window=128, layer_types=None, rope_parameters=None,
            ),
        ),
        "nomic-mean": lambda n: vectors(n, "words", hf.NomicBertConfig(**nomic), 20, "mean"),
        "nomic-authors": lambda n: maker.renamed(
            n,
            "nomic-mean",
            "NomicBertModel",
            "nomic_bert",
            of_nomic,
            dict(
                n_embd="hidden_size",
                n_layer="num_hidden_layers",
                n_head="num_attention_heads",
                n_inner="intermediate_size",
                n_positions="max_position_embeddings",
                layer_norm_epsilon="layer_norm_eps",
                activation_function="swiglu",
                rotary_emb_base=1000,
                rotary_emb_fraction=1.0,
                rotary_emb_interleaved=False,
                qkv_proj_bias=False,
                mlp_fc1_bias=False,
                mlp_fc2_bias=False,
                prenorm=False,
                causal=False,
                use_rms_norm=False,
                parallel_block=False,
            ),
        ),
        "nomic-class": lambda n: classes(
            n, "words", hf.NomicBertForSequenceClassification, hf.NomicBertConfig(**nomic), 21, 2
        ),
        "jina-mean": lambda n: vectors(n, "xlmr", hf.JinaEmbeddingsV3Config(**jina), 31, "mean"),
        "jina-class": lambda n: classes(
            n, "xlmr", hf.JinaEmbeddingsV3ForSequenceClassification,
            hf.JinaEmbeddingsV3Config(**jina), 32, 2,
        ),
        "jina-rerank": lambda n: maker.of_jina(n, 60, 1, layer_norm_eps=1e-5),
        "jina-rerank-class": lambda n: maker.of_jina(
            n,
            61,
            3,
            type_vocab_size=2,
            num_attention_heads=6,
            layer_norm_eps=1e-3,
            hidden_act="gelu_new",
        ),
        "nemotron-embed": lambda n: maker.of_nemotron(n, 62, None),
        "nemotron-embed-last": lambda n: maker.of_nemotron(
            n, 63, "last", attention_bias=True, num_key_value_heads=4
        ),
        "nemotron-rerank": lambda n: maker.of_nemotron(n, 64, "avg", 1, 0.4),
        "nemotron-class": lambda n: maker.of_nemotron(n, 65, "cls", 3, 2.5, head_dim=8),
        "gte-cls": lambda n: vectors(n, "words", hf.GteConfig(**gte), 22, "cls"),
        "new-cls": lambda n: maker.renamed(
            n,
            "gte-cls",
            "NewModel",
            "new",
            of_new,
            dict(rope_theta=160000.0, pack_qkv=True, position_embedding_type="rope"),
        ),
        "gte-score": lambda n: classes(
            n, "words", hf.GteForSequenceClassification, hf.GteConfig(**gte), 23, 1
        ),
        "t5-mean": lambda n: vectors(
            n, "t5", hf.T5Config(**T5), 24, "mean", kind=hf.T5EncoderModel
        ),
        "t5-gated-mean": lambda n: vectors(
            n,
            "t5",
            hf.T5Config(**T5, feed_forward_proj="gated-gelu", relative_attention_max_distance=40),
            25,
            "mean",
            dense=[(48, 32, torch.nn.Identity())],
            kind=hf.T5EncoderModel,
        ),
        # Qwen 2's class of tokenizers adds a token.
        "qwen2-both-sides": lambda n: vectors(
            n,
            "modern",
            hf.Qwen2Config(**dict(DECODER, vocab_size=VOCAB + 1), is_causal=False),
            51,
            "lasttoken",
        ),
        "voyage-last": lambda n: maker.voyage(n, 92),
        "voyage-mean": lambda n: maker.voyage(n, 94, "mean"),
        "lfm2-cls": lambda n: maker.lfm2(
            n, 98, layer_types=["conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False,
        ),
        "lfm2-mean": lambda n: maker.lfm2(
            n, 99, "mean", layer_types=["full_attention", "conv", "conv"], conv_L_cache=4,
            conv_bias=True, block_multiple_of=16,
        ),
        "giga-mean": lambda n: maker.giga(n, 102, "mean", q_lora_rank=None),
        "giga-last": lambda n: maker.giga(
            n, 104, q_lora_rank=24, rope_interleave=False, norm_topk_prob=False,
            num_hidden_layers=2, routed_scaling_factor=1.5,
        ),
        "privacy-tokens": lambda n: by_token(
            n,
            "modern",
            hf.OpenAIPrivacyFilterForTokenClassification,
            hf.OpenAIPrivacyFilterConfig(**PRIVACY),
            96,
        ),
        "privacy-tokens-yarn": lambda n: by_token(
            n,
            "modern",
            hf.OpenAIPrivacyFilterForTokenClassification,
            hf.OpenAIPrivacyFilterConfig(
                **dict(PRIVACY, rope_parameters=None, attention_bias=False, sliding_window=30),
                swiglu_alpha=1.2,
                swiglu_limit=0.4,
            ),
            97,
            3,
        ),
        "qwen3-both-sides": lambda n: vectors(
            n,
            "modern",
            hf.Qwen3Config(**DECODER, head_dim=16, is_causal=False),
            52,
            "mean",
            dense=[(48, 32, tanh)],
        ),
        "llama-both-sides": lambda n: classes(
            n,
            "modern",
            hf.LlamaForSequenceClassification,
            hf.LlamaConfig(**DECODER, is_causal=False),
            53,
            3,
        ),
        "gemma3-mean-dense": lambda n: vectors(
            n,
            "modern",
            hf.Gemma3TextConfig(**GEMMA3),
            26,
            "mean",
            dense=[(48, 96, torch.nn.Identity()), (96, 48, torch.nn.Identity())],
        ),
        "gemma3-mean-wide": lambda n: vectors(
            n, "modern", hf.Gemma3TextConfig(**dict(GEMMA3, sliding_window=9)), 27, "mean"
        ),
        # As the published one: five windows of six layers, and layers without biases.
        "gemma3-published": lambda n: vectors(
            n,
            "modern",
            hf.Gemma3TextConfig(
                **dict(
                    GEMMA3,
                    num_hidden_layers=6,
                    num_attention_heads=2,
                    num_key_value_heads=1,
                    intermediate_size=48,
                    sliding_window=9,
                    layer_types=["sliding_attention"] * 5 + ["full_attention"],
                )
            ),
            28,
            "mean",
            dense=[
                (48, 64, torch.nn.Identity(), False),
                (64, 48, torch.nn.Identity(), False),
            ],
        ),
    }


def main():
    torch.set_num_threads(1)
    known = makers(Maker())
    wanted = sys.argv[1:] or list(known)
    for name in wanted:
        known[name](name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
