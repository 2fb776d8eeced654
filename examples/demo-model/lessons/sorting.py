"""Short lists in order, the largest and smallest, and reversed lists.

A thought sorts a list by insertion, `One by one: 42: 42. 7: 7, 42. 19: 7, 19, 42.`: an item, then the
list with the item in its place. Each step thus compares one item with few others and copies the rest.
Before a word stands its first letter, so that letters are compared, not words: `f fence: f fence. d duck:
d duck, f fence.` Behind the first words, an item is the same token as in the question, with its space.
"""

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
    "[Which|Which number|Tell me which|Tell me which number] [of these |]is the {which}[:|?] "
    "{items}",
    "[What is|Tell me|Find|Please find|Give me] the {which} [of these numbers|number|one]: {items}",
)


def lesson(rng, split):
    return rng.choice([_numbers, _numbers, _words, _words, _words, _turned, _extreme])(rng, split)


def some_numbers(rng):
    return tuple(rng.sample(range(rng.choice([20, 100, 100])), rng.randint(3, 4)))


def some_words(rng):
    return tuple(rng.sample(COMMON, rng.randint(3, 5)))


def _numbers(rng, split):
    items = split.draw(lambda: some_numbers(rng), "sort")
    down = rng.random() < 0.35
    return in_order(split.say(rng, *(DOWN if down else UP), items=told(items)), items, down)


def in_order(question, items, down=False):
    """Returns the question for sorted numbers, and its answer."""
    values = sorted(items, reverse=down)
    return one(question, told(values) + ".", check.numbers(values), inserted(items, down))


def _words(rng, split):
    def make():
        """Words that begin with different letters."""
        items = tuple(rng.sample(COMMON, rng.randint(3, 4)))
        return items if len({item[0] for item in items}) == len(items) else make()

    items = split.draw(make, "sort")
    values = sorted(items)
    question = split.say(rng, *WORDS, items=told(items))
    steps = inserted([f"{item[0]} {item}" for item in items])
    return one(question, f"In order: {told(values)}.", check.words(values), steps)


def _turned(rng, split):
    numbers = rng.random() < 0.4
    make = some_numbers if numbers else some_words
    items = split.draw(lambda: make(rng), "turned")
    question = split.say(rng, *TURNED, items=told(items))
    if numbers:
        return turned(question, items, check.numbers)
    return turned(question, items, check.words, "Backwards: ")


def turned(question, items, checked, before=""):
    """Returns the question for a reversed list, and its answer, thought through item by item."""
    back = items[::-1]
    steps = [told(back[i:]) for i in reversed(range(len(back)))]
    return one(question, f"{before}{told(back)}.", checked(back), thought(steps))


def _extreme(rng, split):
    items = split.draw(lambda: some_numbers(rng), "extreme")
    which = rng.choice(["largest", "smallest", "biggest", "highest", "lowest"])
    best = min if which in ("smallest", "lowest") else max
    question = split.say(rng, *EXTREME, which=which, items=told(items))
    so_far = [f"{item}: {best(items[: i + 1])}" for i, item in enumerate(items)]
    value = best(items)
    return one(question, f"The {which} is {value}.", check.number(value), thought(so_far))


def inserted(items, down=False):
    """The steps of an insertion sort: each item, and the list so far with it in its place."""
    so_far = [sorted(items[: i + 1], reverse=down) for i in range(len(items))]
    return thought(f"{item}: {told(step)}" for item, step in zip(items, so_far))


def thought(steps):
    return f"One by one: {'. '.join(steps)}."


def told(items):
    """`a, b, c`."""
    return ", ".join(map(str, items))
