"""Words, names and numbers repeated: the model copies them and need not know them."""

from . import check
from .conversation import one
from .vocabulary import COMMON, invented_name, invented_town, syllables

SAY = (
    "[Say|Please say|Write|Please write|Can you say|Now say][|, please|: exactly this]: {text}",
    "[Repeat|Please repeat|Repeat after me|Say after me|Echo|Copy]: {text}",
    "[Say|Write|Repeat|Echo|Copy] [this|these words|this line][| again| exactly| for me]: {text}",
)


def lesson(rng, split):
    return line(rng, split, _item)


def line(rng, split, item):
    """Returns a line of one to six results of `item(rng)`, and its echo."""
    items = split.draw(lambda: tuple(item(rng) for _ in range(rng.randint(1, 6))), "echo")
    text = " ".join(items)
    return one(split.say(rng, *SAY, text=text), f"Here you are: {text}", check.says(text))


def _item(rng):
    kind = rng.randrange(5)
    if kind == 0:
        return str(rng.randint(0, rng.choice([9, 99, 999])))
    if kind == 1:
        return rng.choice([invented_name(rng)[0], invented_town(rng)])
    if kind == 2:
        return syllables(rng, rng.randint(1, 2))
    return rng.choice(COMMON)
