"""Counting up and down, the next number, and how many there are.

A thought first counts how often a word is in a list: `The tail1, nut00, tail11.` Behind each word
stands whether it is the wanted one (`reasoning` says why) and how often that one has come so far.
"""

from . import check
from .conversation import one
from .vocabulary import COMMON

_UP = (
    "[Count|Please count|Can you count|Now count] [|up ]from {a} to {b}[.|, please.|?|!]",
    "[List|Write|Give me|Say] [the numbers|all numbers|every number] from {a} to {b}[.|, please.]",
)
_DOWN = (
    "[Count|Please count|Can you count|Now count] [down|backwards] from {a} to {b}"
    "[.|, please.|?|!]",
    "[List|Write|Give me|Say] [the numbers|all numbers|every number] from {a} down to {b}"
    "[.|, please.]",
)
_NEXT = {
    1: (
        "[What|Which number] comes [after|right after|just after|next after] {a}?",
        "[Tell me|Say|Give me] the number [after|that follows] {a}[.|, please.]",
    ),
    -1: (
        "[What|Which number] comes [before|right before|just before] {a}?",
        "[Tell me|Say|Give me] the number [before|that precedes] {a}[.|, please.]",
    ),
}
_ITEMS = (
    "[How many words are|Count the words|Please count the words|What is the number of words] in "
    "[this|my|the] list[?|:|, please:] {items}",
    "[How many things|How many words] [do I list here|are there][?|:] {items}",
)
_OF_ONE = (
    "How often does {word} [appear|occur|come|stand] in [this list|the list][:|?] {items}",
    "[Count|Please count] [how often|how many times] {word} [appears|occurs] "
    "in[| the list]: {items}",
)


def lesson(rng, split):
    return rng.choice([_count, _count, _neighbour, _items, _of_one])(rng, split)


def _count(rng, split):
    def make():
        low, length = rng.randint(0, 88), rng.randint(3, 12)
        ends = low, low + length
        return ends if rng.random() < 0.5 else ends[::-1]

    a, b = split.draw(make, "range")
    values = list(range(a, b + 1)) if a < b else list(range(a, b - 1, -1))
    answer = ", ".join(map(str, values)) + "."
    templates = _UP if a < b else _DOWN
    return one(split.say(rng, *templates, a=a, b=b), answer, check.numbers(values))


def _neighbour(rng, split):
    step = rng.choice([1, -1])
    a = split.draw(lambda: rng.randint(1, rng.choice([99, 999])), "next", step)
    word = "After" if step == 1 else "Before"
    question = split.say(rng, *_NEXT[step], a=a)
    return one(question, f"{word} {a} comes {a + step}.", check.number(a + step))


def _items(rng, split):
    items = split.draw(lambda: tuple(rng.sample(COMMON, rng.randint(2, 9))), "items")
    numbered = ", ".join(f"{i} {item}" for i, item in enumerate(items, 1))
    question = split.say(rng, *_ITEMS, items=", ".join(items))
    answer = f"Let me count: {numbered}. There are {len(items)}."
    return one(question, answer, check.number(len(items)))


def _of_one(rng, split):
    def make():
        word, *others = rng.sample(COMMON, 4)
        items = [word] * rng.randint(0, 4) + rng.choices(others, k=rng.randint(1, 4))
        rng.shuffle(items)
        return (word, *items)

    word, *items = split.draw(make, "of one")
    count, told = 0, [f"{word}1"]
    for item in items:
        count += item == word
        told.append(f"{item}{int(item == word)}{count}")
    question = split.say(rng, *_OF_ONE, word=word, items=", ".join(items))
    answer = f"It appears {count} time{'' if count == 1 else 's'}."
    return one(question, answer, check.number(count), f"The {', '.join(told)}.")
