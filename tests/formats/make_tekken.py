"""Builds a small tokenizer in the format of Mistral's `tekken.json`, and records mistral-common.

    python tests/formats/make_tekken.py

The vocabulary is byte-level BPE, trained on the corpus of the fidelity tests. `golden.json` has
texts with the token ids that mistral-common's `Tekkenizer` gives them.

Needs: mistral-common, tokenizers, transformers. Nothing is downloaded.
"""

import base64
import json
import sys
from pathlib import Path

from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "fidelity"))
from corpus import sentences

# Letters with those after them, numbers one digit at a time, signs and spaces.
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AUDIO]", "[BEGIN_AUDIO]", "<pad>"]
NUM_SPECIAL, NUM_TOKENS = 12, 700


def trained():
    """Returns the bytes of the tokens, in the order of their ranks."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    trainer = trainers.BpeTrainer(
        vocab_size=NUM_TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(7, 4_000), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of |= {chr(256 + at): byte for at, byte in enumerate(others)}
    assert sorted(byte_of) == alphabet
    merged = [bytes(byte_of[c] for c in "".join(merge)) for merge in model["merges"]]
    return list(dict.fromkeys([bytes([byte]) for byte in range(256)] + merged))


def main():
    folder = HERE / "fixtures" / "tekken"
    tokens = trained()
    vocab = [
        dict(rank=rank, token_bytes=base64.b64encode(it).decode(), token_str=None)
        for rank, it in enumerate(tokens)
    ]
    special = [
        dict(rank=rank, token_str=name, is_control=True) for rank, name in enumerate(SPECIAL)
    ]
    # The last tokens of the list are beyond the vocabulary.
    config = dict(
        pattern=PATTERN, num_vocab_tokens=len(vocab), version="v11",
        default_vocab_size=len(vocab) - 20 + NUM_SPECIAL, default_num_special_tokens=NUM_SPECIAL,
    )
    path = folder / "tekken.json"
    path.write_text(json.dumps(dict(config=config, vocab=vocab, special_tokens=special)) + "\n")
    tokenizer = Tekkenizer.from_file(path)
    texts = list(sentences(8, 60)) + ["", " ", "aaaaaaaaa", "  \n\n x\t\ty", "ÄÖÜ ǅ ʰ 你好", "١٢٣"]
    golden = [
        dict(text=text, token_ids=tokenizer.encode(text, bos=True, eos=False)) for text in texts
    ]
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
