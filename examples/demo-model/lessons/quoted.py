"""Words in quotation marks, where a word that begins with a small letter is spelled."""

from . import check
from .conversation import one

_ASK = (
    "[Quote|Please quote|Put in quotes|Quote each of]: {text}",
    "[Put|Write] [quotation marks|quotes] around each word: {text}",
)


def line(rng, split, item):
    """Returns a line of words, and each of them in quotation marks."""
    words = split.draw(lambda: tuple(item(rng) for _ in range(rng.randint(4, 12))), "quoted")
    text = ", ".join(f'"{word}"' for word in words)
    return one(split.say(rng, *_ASK, text=" ".join(words)), text, check.says(*words))
