"""Makes a model of the benchmarks with random weights, in Hugging Face format: `shapes/qwen3-0.6b`, or another shape.

    python make_model.py OUT [SHAPE] [KEY=VALUE ...]

Speed does not depend on the values of the weights, so nothing is downloaded. SHAPE is a folder with a `config.json`.
KEY=VALUE (JSON) changes the configuration, e.g. `num_hidden_layers=2`; `seed` changes the weights. The tokenizer is a byte-level BPE trained on
Python's own library. Its tokens are shorter than a real tokenizer's, and it takes the same work to run.
A BertModel gets a WordPiece tokenizer, and the files of sentence-transformers with a mean.
"""
import glob
import json
import os
import sys

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

TEXTS = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:200]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=32000, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tok.train(TEXTS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def word_piece(vocab_size):
    pad, unk, cls, sep, mask = specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok = Tokenizer(models.WordPiece(unk_token=unk))
    tok.normalizer, tok.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.train(TEXTS, trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=specials))
    ends = [(token, tok.token_to_id(token)) for token in (cls, sep)]
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    named = dict(pad_token=pad, unk_token=unk, cls_token=cls, sep_token=sep, mask_token=mask, model_max_length=512)
    return PreTrainedTokenizerFast(tokenizer_object=tok, **named)


def pool_by_mean(out, width):
    """Writes the files of sentence-transformers."""
    kinds = ["Transformer", "Pooling", "Normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds))
    ]
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    limits = {"max_seq_length": 512, "do_lower_case": False}
    files = {"modules.json": modules, "1_Pooling/config.json": pooling, "sentence_bert_config.json": limits}
    for path in paths[1:]:
        os.makedirs(os.path.join(out, path), exist_ok=True)
    for path, content in files.items():
        with open(os.path.join(out, path), "w") as file:
            json.dump(content, file, indent=1)


def main():
    out, *rest = sys.argv[1:]
    shape = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes", "qwen3-0.6b")
    if rest and "=" not in rest[0]:
        shape = rest.pop(0)
    changes = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in rest)}
    torch.manual_seed(changes.pop("seed", 0))
    cfg = AutoConfig.from_pretrained(shape, **changes)
    if cfg.architectures == ["BertModel"]:
        model = AutoModel.from_config(cfg, dtype=torch.bfloat16)
        word_piece(cfg.vocab_size).save_pretrained(out)
        pool_by_mean(out, cfg.hidden_size)
        return save(model, out)
    cfg.bos_token_id, cfg.pad_token_id, cfg.eos_token_id = None, 0, 2
    model = AutoModelForCausalLM.from_config(cfg, dtype=torch.bfloat16)
    tokenizer().save_pretrained(out)
    save(model, out)


def save(model, out):
    model.save_pretrained(out)
    print(f"{out}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")


if __name__ == "__main__":
    main()
