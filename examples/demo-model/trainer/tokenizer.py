"""The tokenizer: byte-level BPE, trained on the lessons.

A digit is a token. So is each letter of a word that begins behind a quotation mark or a hyphen, unless
the word is a key or a last word in JSON. Sums and spelling then need not know the inside of a token.
"""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]
END_OF_TEXT, START, END_OF_TURN = 0, 1, 2

PIECES = "|".join(
    [
        r"'(?:ll|re|ve|[sdmt])(?!\p{L})",
        r"[a-z_]+(?=\"[:,}\]])",
        r" \p{L}+",
        r"\p{Lu}\p{Ll}+",
        r"(?<![\"'“‘\-\p{L}])\p{Ll}+",
        r"\p{L}",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def train(texts, vocab_size):
    """Returns a tokenizer of exactly `vocab_size` tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(MARKS),
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Marks are shown in decoded text, so they are not special.
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    assert tokenizer.get_vocab_size() == vocab_size, tokenizer.get_vocab_size()
    return tokenizer
