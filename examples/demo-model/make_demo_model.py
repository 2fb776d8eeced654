"""Builds the demo model: a small Qwen3 with random weights, and the tokenizer it goes with.

    python examples/demo-model/make_demo_model.py

Needs torch, transformers >= 5, tokenizers. Nothing is downloaded; the same seed gives the same
files.
"""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "fidelity"))

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from corpus import train_tokenizer

VOCAB_SIZE = 2_048
END_OF_TEXT, END_OF_TURN = 0, 2  # <|endoftext|> and <|im_end|>


def build_model():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=4_096,
        initializer_range=0.12,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END_OF_TURN,
        pad_token_id=END_OF_TEXT,
        rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
    )
    return Qwen3ForCausalLM(config).to(torch.bfloat16)


def build_tokenizer():
    tokenizer = train_tokenizer(VOCAB_SIZE, count=20_000)
    tokenizer.model_max_length = 4_096
    tokenizer.chat_template = (HERE / "chat_template.jinja").read_text()
    return tokenizer


if __name__ == "__main__":
    model = build_model()
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=0.7,
        top_p=0.8,
        top_k=20,
        eos_token_id=[END_OF_TURN, END_OF_TEXT],
        pad_token_id=END_OF_TEXT,
    )
    build_tokenizer().save_pretrained(HERE)
    model.save_pretrained(HERE)
