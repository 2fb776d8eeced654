"""Makes tiny models and converts them with llama.cpp's own converter, for tests/formats/converted.

    python tests/formats/convert_models.py LLAMA_CPP          # all of them
    python tests/formats/convert_models.py LLAMA_CPP gemma3   # some of them

LLAMA_CPP is a checkout of llama.cpp: its `conversion` and `gguf-py` are imported. Each model has
the settings of one in tests/fidelity/make_models.py, changed where the format cannot hold them.
Beside each file are transformers' logits in float32, of the same weights. All weights are exact in
the type that they are stored in.

The encoder-decoders of tests/fidelity/texts are converted as they are, with a tokenizer that
sentencepiece trains. The encoders of tests/fidelity/encoders are converted with their tokenizers.
The expected results are those in their folders.

Needs: torch, transformers >= 5, gguf, numpy, sentencepiece. Nothing is downloaded.
"""

import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
OUT = HERE / "converted"
LLAMA_CPP = Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP), str(HERE.parent / "fidelity")]

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import sentencepiece  # noqa: E402
import torch  # noqa: E402
from corpus import sentences  # noqa: E402
from gguf_models import CASES, CHANGED, CLASSES, HALVES, VOCAB, tiny_model  # noqa: E402
from make_models import MODELS  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, Mxfp4Config  # noqa: E402

from conversion import ModelType, get_model_architecture, get_model_class  # noqa: E402
from conversion.baichuan import BaichuanModel  # noqa: E402
from conversion.stablelm import StableLMModel  # noqa: E402

UNPACK = BaichuanModel.modify_tensors


def set_vocab(self):
    """Writes a vocabulary of tokens that mean nothing, in place of a tokenizer."""
    writer, hparams = self.gguf_writer, self.hparams
    size = hparams.get("vocab_size") or hparams["padded_vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * size)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(2)


# The parts of MiniMax-Text-01 in transformers, and in the config of its authors.
PARTS_OF_MINIMAX = dict(
    full_attn="full_attention", linear_attn="linear_attention", mlp="mlp"
)


def published_form(config):
    """Gives a config of transformers 5 the fields that the converter reads from published ones."""
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    kind = config["model_type"]
    part = rope.get("partial_rotary_factor", 0.25 if "neox" in kind else 1.0)
    config.setdefault("rotary_pct", part)
    if "partial_rotary_factor" in rope:
        config.setdefault("partial_rotary_factor", rope["partial_rotary_factor"])
    if kind == "minimax_m2":
        config["scoring_func"] = "sigmoid"
        config.setdefault("rotary_dim", config["head_dim"])
        config["num_local_experts"] = config.get("num_local_experts", config.get("num_experts"))
    if kind == "minimax":
        config["rotary_dim"] = config["head_dim"]
        for part, name in PARTS_OF_MINIMAX.items():
            for factor in ("alpha", "beta"):
                config[f"layernorm_{name}_{factor}"] = config[f"{part}_{factor}_factor"]
    if kind == "deepseek_v2":
        config["scoring_func"] = "softmax"
    if kind in ("afmoe", "deepseek_v3", "deepseek_v32", "dots1", "exaone_moe", "glm_moe_dsa"):
        config["scoring_func"] = "sigmoid"
    if kind == "glm4_moe_lite":
        config["first_k_dense_replace"] = 1
    if kind == "afmoe":
        config["route_norm"] = True
    if kind == "solar_open":
        config |= dict(first_k_dense_replace=0, intermediate_size=64, partial_rotary_factor=1.0)
    if kind == "granitemoehybrid":
        names = dict(linear_attention="mamba", full_attention="attention")
        config["layer_types"] = [names.get(name, name) for name in config["layer_types"]]
    if kind == "bamba":
        config["attn_rotary_emb"] = config["hidden_size"] // config["num_attention_heads"] // 2
    if kind == "nemotron_h":
        letters = dict(mamba="M", attention="*", full_attention="*", mlp="-", moe="E")
        letters["linear_attention"] = "M"
        kinds = config.pop("layers_block_type", None) or config["layer_types"]
        config["hybrid_override_pattern"] = "".join(letters[kind] for kind in kinds)
        config["num_hidden_layers"] = len(kinds)
        if "E" not in config["hybrid_override_pattern"]:
            for field in ("num_experts_per_tok", "n_routed_experts", "n_group", "topk_group"):
                config.pop(field)
    if kind == "gpt2":
        config["n_ctx"] = config["n_positions"]
    if kind == "bloom":
        config["seq_length"] = 256
    if kind == "glm":
        config["seq_length"] = 256
    if kind == "mpt":
        config["architectures"] = ["MPTForCausalLM"]
    if kind == "falcon" and config["multi_query"] and not config["new_decoder_architecture"]:
        config.pop("num_kv_heads", None)
    if kind == "qwen3_moe":
        config["num_experts"] = config["num_local_experts"]
    if kind == "hunyuan_v1_moe":
        layers = config["num_hidden_layers"]
        config |= dict(moe_intermediate_size=[config["intermediate_size"]] * layers)
        topk = config["moe_topk"]
        config |= dict(moe_topk=topk if isinstance(topk, list) else [topk] * layers)
        config |= dict(num_shared_expert=[1] * layers)
    return config


def convert(folder, name):
    path = folder / "config.json"
    hparams = published_form(json.loads(path.read_text()))
    if name in CLASSES:
        hparams["architectures"] = [CLASSES[name]]
    # The converter of Gemma 3 counts the tokens of this file.
    vocab = {f"t{i}": i for i in range(VOCAB)}
    tokenizer = dict(model=dict(vocab=vocab), added_tokens=[])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    converter = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    converter.set_vocab = set_vocab
    # That of MiniMax-Text-01 reads a tokenizer.
    converter._get_suppress_tokens = lambda self: None
    # These models have no layers that predict several tokens.
    converter.no_mtp = True
    kinds = gguf.LlamaFileType
    kind = kinds.MOSTLY_F16 if name in HALVES else kinds.MOSTLY_Q8_0
    with torch.inference_mode():
        out = OUT / f"{name}.gguf"
        converter(folder, kind, out, eager=True, model_name=name, hparams=hparams).write()


# Encoder-decoders of tests/fidelity/texts, and the folder of their files.
TEXTS = ["t5", "mt5"]
OUT_OF_TEXTS = HERE / "converted_texts"
RULES = {"ﬁ": "fi", "Ａ": "A", "½": "1/2", "\t": " ", "\u3000": " ", "e\u0301": "é", "\u200b": ""}


def convert_text(name):
    """Converts a model, with the converter's own vocabulary of a sentencepiece model."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder) / name
        shutil.copytree(HERE.parent / "fidelity" / "texts" / name, folder)
        hexes = lambda text: " ".join(f"{ord(c):X}" for c in text)  # noqa: E731
        rules = "".join(f"{hexes(old)}\t{hexes(new)}\n" for old, new in RULES.items())
        (folder / "rules.tsv").write_text(rules)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences(0, 500),
            model_prefix=str(folder / "spiece"),
            model_type="unigram",
            vocab_size=240,
            character_coverage=1.0,
            normalization_rule_tsv=str(folder / "rules.tsv"),
            # As in the folder's config.json.
            bos_id=0,
            pad_id=1,
            eos_id=2,
            unk_id=3,
            num_threads=1,
            minloglevel=2,
        )
        hparams = json.loads((folder / "config.json").read_text())
        converter = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
        out = OUT_OF_TEXTS / f"{name}.gguf"
        with torch.inference_mode():
            kind = gguf.LlamaFileType.ALL_F32
            converter(folder, kind, out, eager=True, model_name=name, hparams=hparams).write()
        processor = sentencepiece.SentencePieceProcessor(str(folder / "spiece.model"))
        rows = [dict(text=text, ids=[*processor.encode(text), 2]) for text in TOKENIZED]
    if name == "t5":
        tokens = json.dumps(rows, separators=(",", ":")) + "\n"
        (OUT_OF_TEXTS / f"{name}.tokens.json").write_text(tokens)
    print(f"{name}: {out.stat().st_size / 1000:.0f} kB")


# Encoders of tests/fidelity/encoders, and the folder of their files.
ENCODERS = [
    "bert-mean", "roberta-mean", "xlmr-cls", "distilbert-mean", "t5-mean", "nomic-authors",
    "modernbert-mean", "eurobert-mean", "nemotron-embed", "jina-bert-mean", "gemma3-published",
    "roberta-score", "xlmr-score", "distilbert-class", "modernbert-class", "lfm2-cls",
]
# Those whose tokenizer the converter reads, each with its names of the rules of texts.
OF_CONVERTER = {
    "bert-mean": "default", "distilbert-mean": "default", "nomic-authors": "default",
    "distilbert-class": "default", "roberta-score": "roberta-bpe",
}
# A reranker of tests/fidelity/poolers, and its tokens of the answers no and yes.
RERANKER, NO_AND_YES = "qwen3-reranker", ["Ġthe", "Ġin"]
# A language model of that folder that makes vectors.
POOLER = "qwen2-last"
OUT_OF_ENCODERS = HERE / "converted_encoders"


def convert_encoder(name):
    """Converts a model. The vocabulary is the converter's own, where it reads the tokenizer."""
    folder = HERE.parent / "fidelity" / "encoders" / name
    hparams = json.loads((folder / "config.json").read_text())
    if name == "nomic-authors":
        # The converter takes those of the published models alone.
        hparams |= dict(
            n_positions=8192, max_trained_positions=2048, rotary_emb_scale_base=None
        )
    if name == "eurobert-mean":
        # It is that of a classifier.
        hparams.pop("classifier_pooling")
    if name == "distilbert-class":
        # Without names of classes, the converter gives both layers the same name.
        hparams["id2label"] = {0: "bad", 1: "good"}
    elif "id2label" in hparams:
        hparams["id2label"] = {int(id): label for id, label in hparams["id2label"].items()}
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    # A class of its own, so that another model of the class has its own vocabulary.
    converter = type(kind.__name__, (kind,), dict(model_arch=kind.model_arch))
    if name not in OF_CONVERTER:
        converter.set_vocab = set_vocab
    pre = OF_CONVERTER.get(name, "default")
    converter.get_vocab_base_pre = lambda self, tokenizer: pre
    out = OUT_OF_ENCODERS / f"{name}.gguf"
    with torch.inference_mode():
        kinds = gguf.LlamaFileType
        kind = kinds.MOSTLY_BF16 if name == "gemma3-published" else kinds.ALL_F32
        options = dict(eager=True, model_name=name, hparams=hparams)
        # The option changes the models that have such modules alone.
        options["sentence_transformers_dense_modules"] = True
        converter(folder, kind, out, **options).write()
    print(f"{name}: {out.stat().st_size / 1000:.0f} kB")


def convert_pooler(name):
    """Converts a model that sentence-transformers pools. Its results are those in its folder."""
    folder = HERE.parent / "fidelity" / "poolers" / name
    hparams = json.loads((folder / "config.json").read_text())
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    converter = type(kind.__name__, (kind,), dict(model_arch=kind.model_arch))
    converter.set_vocab = set_vocab
    out = OUT_OF_ENCODERS / f"{name}.gguf"
    with torch.inference_mode():
        kind = gguf.LlamaFileType.MOSTLY_BF16
        converter(folder, kind, out, eager=True, model_name=name, hparams=hparams).write()
    print(f"{name}: {out.stat().st_size / 1000:.0f} kB")


def convert_reranker(name):
    """Converts a model as llama.cpp does Qwen3-Reranker, and records scores of its prompt."""
    folder = HERE.parent / "fidelity" / "poolers" / name
    tokenizer = AutoTokenizer.from_pretrained(folder)
    no, yes = tokenizer.convert_tokens_to_ids(NO_AND_YES)
    hparams = json.loads((folder / "config.json").read_text())
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    prompts = []

    class Converter(kind):
        model_arch = kind.model_arch
        set_vocab = set_vocab

        def _find_rerank_config(self):
            self.is_rerank, self.is_tied_embeddings = True, True
            self.token_false_id, self.token_true_id = no, yes
            add = self.gguf_writer.add_chat_template
            keep = lambda templates: (prompts.extend(templates), add(templates))  # noqa: E731
            self.gguf_writer.add_chat_template = keep

    out = OUT_OF_ENCODERS / f"{name}.gguf"
    with torch.inference_mode():
        kind = gguf.LlamaFileType.MOSTLY_BF16
        Converter(folder, kind, out, eager=True, model_name=name, hparams=hparams).write()
    [prompt] = [one["template"] for one in prompts]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    pairs = json.loads((folder / "golden.json").read_text())["pairs"]
    for pair in pairs:
        text = prompt.replace("{query}", pair["text_1"]).replace("{document}", pair["text_2"])
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0, -1, [yes, no]]
        pair["score"] = logits.softmax(-1)[0].item()
    path = OUT_OF_ENCODERS / f"{name}.golden.json"
    path.write_text(json.dumps(dict(task="classify", texts=[], pairs=pairs)) + "\n")
    print(f"{name}: {out.stat().st_size / 1000:.0f} kB")


TOKENIZED = [
    "",
    " ",
    "Hello, world!",
    "  leading and   trailing ",
    "a\tb\u3000c\nd",
    "ﬁne cafe\u0301 naïve Ａ ½",
    "zero\u200bwidth",
    "東京の駅 привет",
    "🎭🎻 x 👨‍👩‍👧",
    "▁under ▁ score",
    "Übergrößenträger",
    "12345 6 78 1.5e10",
]


def stack_head_norms(self, data_torch, name, bid):
    """Does what `StableLMModel.modify_tensors` is meant to: it drops the norms of heads."""
    for norm, heads in [("q", "num_attention_heads"), ("k", "num_key_value_heads")]:
        if f"{norm}_layernorm.norms" not in name:
            continue
        parts = vars(self).setdefault(f"{norm}_parts_{bid}", {})
        parts[name] = data_torch
        if len(parts) == self.hparams[heads]:
            ordered = [parts[key] for key in sorted(parts)]
            yield f"blk.{bid}.attn_{norm}_norm.weight", torch.stack(ordered)
        return
    yield from super(StableLMModel, self).modify_tensors(data_torch, name, bid)


def unpack(self, data_torch, name, bid):
    """Does what `BaichuanModel.modify_tensors` is meant to: it calls itself for other tensors."""
    packed = "W_pack" in name
    others = super(BaichuanModel, self).modify_tensors
    yield from UNPACK(self, data_torch, name, bid) if packed else others(data_torch, name, bid)


def golden(model, path):
    """Records prompts, and transformers' logits after their last tokens."""
    rng = np.random.default_rng(7)
    prompts = []
    for length in (1, 9, 40):
        ids = rng.integers(3, VOCAB, length).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        prompts.append(dict(ids=ids, logits=[round(x, 4) for x in logits.tolist()]))
    path.write_text(json.dumps(prompts, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    StableLMModel.modify_tensors = stack_head_norms
    BaichuanModel.modify_tensors = unpack
    OUT.mkdir(exist_ok=True)
    OUT_OF_TEXTS.mkdir(exist_ok=True)
    OUT_OF_ENCODERS.mkdir(exist_ok=True)
    for name in sys.argv[2:] or [*CASES, *TEXTS, *ENCODERS, RERANKER, POOLER]:
        if name == POOLER:
            convert_pooler(name)
            continue
        if name == RERANKER:
            convert_reranker(name)
            continue
        if name in ENCODERS:
            convert_encoder(name)
            continue
        if name in TEXTS:
            convert_text(name)
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder) / name
            model = tiny_model(name, CASES[name])
            model.save_pretrained(folder)
            if name in CHANGED:
                MODELS[name]["before"](folder)
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            MODELS[name].get("rewrite", lambda _: None)(folder)
            if name.endswith("mxfp4"):
                MODELS[name]["prepare"](folder)
                whole = Mxfp4Config(dequantize=True)
                model = AutoModelForCausalLM.from_pretrained(
                    folder, dtype=torch.float32, quantization_config=whole
                )
            golden(model, OUT / f"{name}.golden.json")
            try:
                convert(folder, name)
            except Exception as error:
                print(f"{name}: FAILED {type(error).__name__} {error}")
                continue
        print(f"{name}: {(OUT / f'{name}.gguf').stat().st_size / 1000:.0f} kB")
    shutil.rmtree(OUT / "__pycache__", ignore_errors=True)
