"""The model as a Hugging Face folder, compared with transformers; and back."""

import json
import os

import torch
from safetensors.torch import load_file

from .model import Model, Shape
from .text import TEMPLATE, render
from .tokenizer import END_OF_TEXT, END_OF_TURN, SPECIAL

os.environ["HF_HUB_OFFLINE"] = "1"
TOLERANCE = 2e-4
"""Tolerance of logits in float32, which differ only by the order of sums."""


def load(folder):
    """Returns the model of a Hugging Face folder, in float32."""
    config = json.loads((folder / "config.json").read_text())
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    model = Model(Shape(**{name: config[name] for name in Shape.__dataclass_fields__}))
    stored = load_file(folder / "model.safetensors")
    model.load_state_dict({name: weight.float() for name, weight in stored.items()})
    return model


def save(model, tokenizer, folder):
    """Writes config, weights in bfloat16, tokenizer and chat template, and checks them."""
    from transformers import GenerationConfig, PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL[END_OF_TURN],
        pad_token=SPECIAL[END_OF_TEXT],
        clean_up_tokenization_spaces=False,
        model_max_length=model.shape.max_position_embeddings,
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    theirs = as_transformers(model).to(torch.bfloat16)
    theirs.generation_config = GenerationConfig(
        do_sample=True,
        temperature=0.7,
        top_p=0.8,
        top_k=20,
        eos_token_id=[END_OF_TURN, END_OF_TEXT],
        pad_token_id=END_OF_TEXT,
    )
    theirs.save_pretrained(folder)
    verify(folder)


def as_transformers(model):
    """Returns the same model as transformers' class."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = model.shape.as_dict()
    config = Qwen3Config(
        **{name: value for name, value in shape.items() if name != "rope_theta"},
        rope_parameters=dict(rope_type="default", rope_theta=shape["rope_theta"]),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END_OF_TURN,
        pad_token_id=END_OF_TEXT,
    )
    theirs = Qwen3ForCausalLM(config)
    missing, unexpected = theirs.load_state_dict(model.state_dict(), strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    theirs.tie_weights()
    return theirs


@torch.no_grad()
def verify(folder):
    """Loads `folder` in transformers, whose logits, tokens and prompts must equal those of this code."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    messages = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": 'Spell "harbour", then add 12 and 7.'},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "12 + 7 = 19."},
    ]
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert text == render(messages), (text, render(messages))
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    assert tokenizer.decode(ids[0]) == text
    ours = load(folder).eval()
    worst = (theirs(ids).logits - ours.logits(ours.hidden(ids))).abs().max().item()
    assert worst < TOLERANCE, f"logits differ by {worst}"
    print(f"{folder}: {ours.size():,} parameters; logits as transformers' within {worst:.1e}")
