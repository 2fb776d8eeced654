"""The split between training and held-out text.

Two things are held out: contents (numbers, words, names, lists) by their hash, and wordings by the
hash of the whole phrase. A test item has both its content and its wording held out. So no test item can
occur in training, with any seed.
"""

import hashlib
import re
from functools import lru_cache
from itertools import product

HELD_OUT_OF = 10
"""One in this many contents and wordings is held out."""

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_DRAWS_MAX = 100_000


def digest(*key):
    """Returns a number that depends on `key` alone."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big")


@lru_cache(maxsize=None)
def phrasings(templates):
    """Returns the wordings of `templates` (`[a|b]` is a choice): those of training, and those held out.

    Wordings that differ only in marks or capitals are on the same side.
    """
    wordings = {}
    for template in templates:
        parts = _CHOICE.split(template)
        choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
        for chosen in product(*choices):
            wording = "".join(chosen)
            wordings.setdefault(_bare(wording), []).append(wording)
    bare = sorted(wordings, key=digest)
    held_out = max(1, len(bare) // HELD_OUT_OF)
    assert len(bare) > held_out, f"a single wording cannot be split: {bare}"
    sides = bare[held_out:], bare[:held_out]
    return [[wording for key in side for wording in wordings[key]] for side in sides]


def _bare(wording):
    """Returns `wording` without capitals, spaces and marks, except those of arithmetic."""
    return re.sub(r"[^a-z0-9{}+*-]", "", wording.lower())


class Split:
    """One side of the split."""

    def __init__(self, held_out):
        self.held_out = held_out

    def keeps(self, *key):
        """Returns whether the content `key` is on this side."""
        return (digest(*key) % HELD_OUT_OF == 0) == self.held_out

    def draw(self, make, *kind):
        """Returns the first result of `make` that is on this side."""
        for _ in range(_DRAWS_MAX):
            content = make()
            if self.keeps(*kind, content):
                return content
        raise ValueError(f"nothing of {kind} is on this side of the split")

    def say(self, rng, *templates, **slots):
        """Returns a wording of this side, with its `{slots}` filled."""
        wordings = phrasings(templates)[self.held_out]
        return capital(rng.choice(wordings).format(**slots))


def capital(text):
    """Returns `text` with a capital at its start."""
    return text[:1].upper() + text[1:]
