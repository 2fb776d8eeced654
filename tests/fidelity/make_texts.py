"""Builds the encoder-decoder models for text of the tests, and records what transformers answers.

    python tests/fidelity/make_texts.py          # all of them, into tests/fidelity/texts
    python tests/fidelity/make_texts.py t5       # one of them

Each model is a folder with seeded random weights, a byte-level tokenizer with special tokens around
a text, and `golden.json`. All answers are in float32. The greedy tokens equal those of `generate`.

Needs: torch, transformers >= 5, tokenizers, safetensors. Nothing is downloaded.
"""

import copy
import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

OUT = Path(__file__).parent / "texts"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "en_XX", "de_DE"]
NUM_STEPS = 24  # greedy tokens
NUM_POSITIONS = 64
NUM_SEEDS = 40
LEAST_DIFFERENT = 300  # three of eight outputs
# Factors of queries. With larger ones, rounding decides; with smaller ones, all outputs are alike.
SHARPNESS = {"marian": 4, "marian-two-tables": 4, "t5": 4, "mt5": 4}
ROUNDING = 3e-5
SINES = ["Marian", "Pegasus"]
TEXTS = [
    "a",
    "",
    "The tower is 324 metres tall.",
    "Zwei <mask> sind mehr als einer, und",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "one two three four five",
    "one two three four six",
    "\u00fc\u4e2d \U0001f600",
]

SMALL = dict(
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_ffn_dim=48,
)
WIDE = dict(
    d_model=48,
    encoder_layers=1,
    decoder_layers=3,
    encoder_attention_heads=4,
    decoder_attention_heads=3,
    encoder_ffn_dim=40,
    decoder_ffn_dim=80,
    scale_embedding=True,
)
S, E = ("<s>",), ("</s>",)
# The class, the tokens around a text, the fields of `config.json`, and those of
# `generation_config.json`.
MODELS = {
    "bart": ("Bart", (S, E), SMALL, dict(forced_bos_token_id=0)),
    "bart-wide": ("Bart", (S, E), dict(WIDE, activation_function="relu"), {}),
    "bart-untied": ("Bart", (S, E), dict(SMALL, tie_word_embeddings=False), {}),
    "mbart": ("MBart", ((), E + ("en_XX",)), SMALL, dict(decoder_start_token_id=6)),
    "mbart-wide": (
        "MBart",
        (("en_XX",), E),
        dict(WIDE, activation_function="gelu_new"),
        dict(forced_bos_token_id=6),
    ),
    "marian": ("Marian", ((), E), dict(SMALL, activation_function="swish"), {}),
    "marian-two-tables": (
        "Marian",
        ((), E),
        dict(WIDE, share_encoder_decoder_embeddings=False, extra_tokens=9),
        {},
    ),
    "pegasus": ("Pegasus", ((), E), SMALL, {}),
    "pegasus-wide": ("Pegasus", ((), E), dict(WIDE, activation_function="relu"), {}),
    "blenderbot": ("Blenderbot", ((), E), SMALL, {}),
    "blenderbot-wide": ("Blenderbot", ((), E), dict(WIDE, activation_function="relu"), {}),
    "m2m_100": ("M2M100", (("en_XX",), E), SMALL, dict(forced_bos_token_id=6)),
    "t5": (
        "T5",
        ((), E),
        dict(d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, decoder_start_token_id=1),
        {},
    ),
    "t5-gated": (
        "T5",
        ((), E),
        dict(
            d_model=48,
            d_kv=10,
            d_ff=40,
            num_layers=3,
            num_decoder_layers=2,
            num_heads=3,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=20,
            feed_forward_proj="gated-gelu",
            layer_norm_epsilon=1e-5,
            n_positions=NUM_POSITIONS,
            tie_word_embeddings=False,
            has_own_head=True,
        ),
        dict(forced_bos_token_id=5),
    ),
    "mt5": (
        "MT5",
        ((), E),
        dict(d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, has_own_head=True),
        {},
    ),
    "mt5-relu": (
        "MT5",
        ((), E),
        dict(
            d_model=48,
            d_kv=10,
            d_ff=40,
            num_layers=3,
            num_decoder_layers=2,
            num_heads=3,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=20,
            feed_forward_proj="relu",
        ),
        dict(forced_bos_token_id=5),
    ),
    "m2m_100-wide": (
        "M2M100",
        (("en_XX",), E),
        dict(WIDE, scale_embedding=False, activation_function="gelu", pad_token_id=3),
        dict(forced_bos_token_id=5),
    ),
}


def tokenizer(folder, before, after):
    """Writes a tokenizer whose tokens are special tokens and bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(SPECIAL + alphabet)}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    around = [(token, tokenizer.token_to_id(token)) for token in {*before, *after}]
    single = " ".join([*before, "$A", *after])
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=around)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    return tokenizer


def rounded(tensor):
    return [float(f"{x:.7g}") for x in tensor.double().flatten().tolist()]


def record(model, ids, name):
    """Returns the answers for each text."""
    settings = model.generation_config
    prompt = [settings.decoder_start_token_id]
    if settings.forced_bos_token_id is not None:
        prompt.append(settings.forced_bos_token_id)
    answers = []
    exact_model = copy.deepcopy(model).double()
    for text in TEXTS:
        text_ids = ids.encode(text).ids
        input_ids = torch.tensor([text_ids])
        with torch.no_grad():
            states = model.get_encoder()(input_ids).last_hidden_state
            tokens = list(prompt)
            for _ in range(NUM_STEPS):
                decoder_ids = torch.tensor([tokens])
                logits = model(encoder_outputs=(states,), decoder_input_ids=decoder_ids).logits[0]
                rows = torch.log_softmax(logits, -1)
                tokens.append(int(rows[-1].argmax()))
            gaps = [row.topk(2).values for row in rows]
            least = min(float(gap[0] - gap[1]) for gap in gaps[len(prompt) - 1 :])
            if least < 2e-4:
                return None  # Two tokens are nearly equal.
            exact = exact_model(input_ids=input_ids, decoder_input_ids=decoder_ids).logits[0]
            if (torch.log_softmax(exact, -1) - rows).abs().max() > ROUNDING:
                return None  # Rounding would decide the log-probabilities.
            decoder = model.get_decoder()
            if hasattr(decoder, "block"):
                last = decoder.block[-1].layer[1].EncDecAttention
                keys, values = last.k(states), last.v(states)
            else:
                last = decoder.layers[-1].encoder_attn
                keys, values = last.k_proj(states), last.v_proj(states)
            generated = model.generate(
                input_ids,
                do_sample=False,
                num_beams=1,
                max_new_tokens=NUM_STEPS + len(prompt) - 1,
                min_new_tokens=NUM_STEPS + len(prompt) - 1,
                forced_eos_token_id=None,
                eos_token_id=None,
                pad_token_id=None,
                bad_words_ids=None,
            )
            assert generated[0].tolist() == tokens, f"{name}: {generated[0].tolist()} {tokens}"
        kept = [0, len(rows) // 2, len(rows) - 1]
        answers.append(
            dict(
                text=text,
                text_token_ids=text_ids,
                last_state=rounded(states[0][-1]),
                last_key=rounded(keys[0][-1]),
                last_value=rounded(values[0][-1]),
                prompt_token_ids=prompt,
                greedy_token_ids=tokens[len(prompt) :],
                greedy_log_probs=[
                    float(f"{rows[len(prompt) - 1 + i][token]:.7g}")
                    for i, token in enumerate(tokens[len(prompt) :])
                ],
                rows=kept,
                log_probs=[rounded(rows[row]) for row in kept],
            )
        )
    return answers


def make(name, seed, kind, around, fields, generation):
    """Makes a model. Returns a larger number the more its greedy tokens differ, and 0 if
    rounding would decide some of them."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ids = tokenizer(folder, *around)
    fields = dict(fields)
    size = ids.get_vocab_size()
    extra = fields.pop("extra_tokens", 0)
    if extra:
        fields["decoder_vocab_size"] = size + extra
    torch.manual_seed(seed)
    fields = dict(bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2) | fields
    has_own_head = fields.pop("has_own_head", False)
    if kind not in ("T5", "MT5"):
        fields |= dict(max_position_embeddings=NUM_POSITIONS, init_std=0.2)
    config = getattr(hf, f"{kind}Config")(vocab_size=size, **fields)
    suffix = "MTModel" if kind == "Marian" else "ForConditionalGeneration"
    model = getattr(hf, kind + suffix)(config).eval()
    with torch.no_grad():
        for name_of, tensor in model.named_parameters():
            if name_of.endswith("bias") or "norm" in name_of and name_of.endswith("weight"):
                tensor.add_(torch.randn_like(tensor) * 0.1)
            # With even attention, all tokens would be the same.
            if name_of.endswith("embed_positions.weight") and kind not in SINES:
                tensor.normal_(0, 1)
            if name_of.endswith(("q_proj.weight", "Attention.q.weight")):
                tensor.mul_(SHARPNESS.get(name, 2))
            if name_of.endswith(("out_proj.weight", "fc2.weight", "Attention.o.weight", "wo.weight")):
                tensor.mul_(2)
            if name_of.endswith("relative_attention_bias.weight"):
                tensor.normal_(0, 2)
            if name_of == "shared.weight":
                tensor.mul_(0.3)
        if has_own_head:
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.3)
        bias = getattr(model, "final_logits_bias", None)
        if bias is not None:
            bias.normal_(0, 0.5)
    for field, value in generation.items():
        setattr(model.generation_config, field, value)
    model.save_pretrained(folder)
    answers = record(model, ids, name)
    (folder / "golden.json").write_text(json.dumps(answers) + "\n")
    if answers is None:
        return 0
    outputs = [answer["greedy_token_ids"] for answer in answers]
    return 100 * len({tuple(output) for output in outputs}) + sum(len(set(o)) for o in outputs)


def main():
    OUT.mkdir(exist_ok=True)
    chosen = {name: MODELS[name] for name in sys.argv[1:] or MODELS}
    for name, model in chosen.items():
        seeds = (seed for seed in range(NUM_SEEDS) if make(name, seed, *model) >= LEAST_DIFFERENT)
        print(name, next(seeds), flush=True)


main()
