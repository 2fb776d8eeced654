"""Makes a model of the benchmarks with random weights, in Hugging Face format: `shapes/qwen3-0.6b`, or another shape.

    python make_model.py OUT [SHAPE] [KEY=VALUE ...]

Speed does not depend on the values of the weights, so nothing is downloaded. SHAPE is a folder with a `config.json`.
KEY=VALUE (JSON) changes the configuration, e.g. `num_hidden_layers=2`; `seed` changes the weights. The tokenizer is a byte-level BPE trained on
Python's own library. Its tokens are shorter than a real tokenizer's, and it takes the same work to run.
"""
import glob
import json
import os
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

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
    tok.train(sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:200], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def main():
    out, *rest = sys.argv[1:]
    shape = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes", "qwen3-0.6b")
    if rest and "=" not in rest[0]:
        shape = rest.pop(0)
    changes = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in rest)}
    torch.manual_seed(changes.pop("seed", 0))
    cfg = AutoConfig.from_pretrained(shape, **changes)
    cfg.bos_token_id, cfg.pad_token_id, cfg.eos_token_id = None, 0, 2
    model = AutoModelForCausalLM.from_config(cfg, dtype=torch.bfloat16)
    tokenizer().save_pretrained(out)
    model.save_pretrained(out)
    print(f"{out}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")


if __name__ == "__main__":
    main()
