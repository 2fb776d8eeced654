"""Short lists in order, the largest and smallest, and lists turned round."""

from . import check
from .conversation import one
from .vocabulary import COMMON

UP = (
    "[Sort|Please sort|Order|Arrange|Can you sort] [these numbers|the "
    "numbers|them][| from small to large| in ascending order| from smallest "
    "to largest]: {items}",
    "[Put|Please put] [these numbers|the numbers] in [order|ascending order]: {items}",
)
DOWN = (
    "[Sort|Please sort|Order|Arrange|Can you sort] [these numbers|the "
    "numbers|them] [from large to small|in descending order|from largest to "
    "smallest]: {items}",
    "[Put|Please put] [these numbers|the numbers] in descending order: {items}",
)
WORDS = (
    "[Sort|Please sort|Order|Arrange|Can you sort] [these words|the words|"
    "them][| by the alphabet| alphabetically| from a to z]: {items}",
    "[Put|Please put] [these words|the words] in [order|alphabetical order]: {items}",
)
TURNED = (
    "[Reverse|Please reverse|Turn round|Can you reverse] [this list|the list|"
    "the order of this list]: {items}",
    "[Write|Say|Give me] [this list|the list] [backwards|in reverse order|"
    "the other way round]: {items}",
)
EXTREME = (
    "[Which|Which number] [of these |]is the {which}[:|?] {items}",
    "[What is|Tell me|Find] the {which} [of these numbers|number]: {items}",
)


def lesson(rng, split):
    return rng.choice([_numbers, _numbers, _words, _words, _words, _turned, _extreme])(rng, split)


def some_numbers(rng):
    return tuple(rng.sample(range(rng.choice([20, 100, 100])), rng.randint(3, 4)))


def _numbers(rng, split):
    items = split.draw(lambda: some_numbers(rng), "sort")
    down = rng.random() < 0.35
    values = sorted(items, reverse=down)
    question = split.say(rng, *(DOWN if down else UP), items=_told(items))
    return one(question, _told(values) + ".", check.numbers(values))


def _words(rng, split):
    def make():
        """Words that begin with different letters."""
        items = tuple(rng.sample(COMMON, rng.randint(3, 4)))
        return items if len({item[0] for item in items}) == len(items) else make()

    items = split.draw(make, "sort")
    values = sorted(items)
    question = split.say(rng, *WORDS, items=_told(items))
    return one(question, f"In order: {_told(values)}.", check.words(values))


def _turned(rng, split):
    items = split.draw(lambda: tuple(rng.sample(COMMON, rng.randint(3, 5))), "turned")
    question = split.say(rng, *TURNED, items=_told(items))
    return one(question, f"Backwards: {_told(items[::-1])}.", check.words(items[::-1]))


def _extreme(rng, split):
    items = split.draw(lambda: some_numbers(rng), "extreme")
    which = rng.choice(["largest", "smallest", "biggest", "highest", "lowest"])
    value = min(items) if which in ("smallest", "lowest") else max(items)
    question = split.say(rng, *EXTREME, which=which, items=_told(items))
    return one(question, f"The {which} is {value}.", check.number(value))


def _told(items):
    return ", ".join(map(str, items))
