"""Text made from a seed alone, and byte-level BPE tokenizers trained on it.

Nothing is downloaded, so the models that use this file can be rebuilt anywhere.
"""

import random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

NAMES = "Ada Boris Chen Dora Emil Farida Goran Hana Igor Jun Kofi Lena Mira Noor Otto Petra".split()
PLACES = "harbour library station theatre kitchen garden museum valley workshop bridge".split()
THINGS = "lantern ledger violin compass kettle map telescope letter mirror suitcase drum".split()
VERBS = "carried found painted repaired borrowed forgot measured opened returned sold".split()
MANNERS = "slowly before sunrise, without a word, on the second day, with great care".split(", ")
UNICODE = "naïve café, façade, 東京の駅, привет мир, 5 €, ½ litre, emoji 🎭🎻, don't, x²".split(", ")


def sentences(seed, count):
    """Returns `count` sentences, one a line: prose, numbers, code, JSON and text beyond ASCII."""
    rng = random.Random(seed)
    for _ in range(count):
        name, place, thing = rng.choice(NAMES), rng.choice(PLACES), rng.choice(THINGS)
        verb, manner, number = rng.choice(VERBS), rng.choice(MANNERS), rng.randrange(10_000)
        yield rng.choice(
            [
                f"{name} {verb} the {thing} near the {place} {manner}.",
                f"In the {place}, {name} and {rng.choice(NAMES)} {verb} {number} {thing}s.",
                f"\"Where is my {thing}?\" asked {name}. It was in the {place}, of course.",
                f"def {verb}_{thing}({place}, n={number}):\n    return [{thing}] * n",
                f'{{"name": "{name}", "{place}": {number}, "{thing}": [true, null, {number / 8}]}}',
                f"{name} wrote: {rng.choice(UNICODE)} ({number}).",
            ]
        )


def train_tokenizer(vocab_size, seed=0, count=4_000):
    """Returns a byte-level BPE tokenizer of exactly `vocab_size` tokens, specials first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(seed, count), trainer)
    assert tokenizer.get_vocab_size() == vocab_size, tokenizer.get_vocab_size()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL_TOKENS[2],
        pad_token=SPECIAL_TOKENS[0],
        clean_up_tokenization_spaces=False,
    )
