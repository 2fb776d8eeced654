"""Spelling, reversing and looking into words.

A word in quotation marks reaches the model letter by letter. A thought counts letters,
`"e1" in "h00e11l01l01o01".`: behind each letter stands whether it is the wanted one (`reasoning` says
why), and how often that one has come so far.
"""

from . import check
from .conversation import one
from .vocabulary import COMMON, syllables

SPELL = (
    "[Spell|Please spell|Can you spell|How do you spell|How does one spell] "
    "[|the word ]{word}[?|.]",
    "[Write|Say|Tell me] the letters of [|the word ]{word}[.|, please.]",
)
REVERSE = (
    "[Reverse|Please reverse|Can you reverse] [|the word |the letters of ]{word}[.|?]",
    "[Spell|Write|Say] [|the word ]{word} [backwards|from the end|in reverse][.|, please.]",
    "[What is|How do you write] [|the word ]{word} backwards?",
)
AT = (
    "[What is|Tell me|Which is|Please tell me] the {which} letter [of|in] [|the word ]{word}?",
    "[What letter|Which letter] does [|the word ]{word} {verb} with?",
)
LENGTH = (
    "How many letters [does|has] [|the word ]{word}[| have][?|, please?]",
    "[Count|Please count] the letters [of|in] [|the word ]{word}[.|, please.]",
)
HOW_OFTEN = (
    "How [many times|often] does [the letter |]{letter} [appear|occur] in [|the word ]{word}?",
    "[Count|Please count] the letter {letter} in [|the word ]{word}[.|, please.]",
)


def lesson(rng, split):
    return rng.choice([spell, spell, reverse, reverse, _at, _length, _how_often])(rng, split)


def word(rng, split):
    """Returns a word of this side, common or meaningless, of three to nine letters."""
    if rng.random() < 0.4:
        return split.draw(lambda: rng.choice(COMMON), "word")
    return split.draw(lambda: syllables(rng, rng.randint(1, 2)), "word")


def spelled(text):
    return "-".join(text)


def quoted(text):
    return f'"{text}"'


def spell(rng, split):
    w = word(rng, split)
    return one(split.say(rng, *SPELL, word=quoted(w)), f"{spelled(w)}.", check.letters(spelled(w)))


def reverse(rng, split):
    w = word(rng, split)
    value = spelled(w[::-1])
    return one(split.say(rng, *REVERSE, word=quoted(w)), f"{value}.", check.letters(value))


def _at(rng, split):
    w = word(rng, split)
    last = rng.random() < 0.5
    which, verb = ("last", "end") if last else ("first", "begin")
    letter = w[-1] if last else w[0]
    question = split.say(rng, *AT, which=which, verb=verb, word=quoted(w))
    return one(question, f'The {which} letter is "{letter}".', check.says(f'"{letter}"'))


def _length(rng, split):
    w = word(rng, split)
    thought = quoted("".join(f"{letter}{i}" for i, letter in enumerate(w, 1))) + "."
    question = split.say(rng, *LENGTH, word=quoted(w))
    return one(question, f"It has {len(w)} letters.", check.number(len(w)), thought)


def _how_often(rng, split):
    w = word(rng, split)
    letter = rng.choice(w) if rng.random() < 0.8 else rng.choice("aeioutsnr")
    told, count = "", 0
    for x in w:
        count += x == letter
        told += f"{x}{int(x == letter)}{count}"
    question = split.say(rng, *HOW_OFTEN, letter=quoted(letter), word=quoted(w))
    thought = f"{quoted(letter + '1')} in {quoted(told)}."
    return one(question, f"The answer is {count}.", check.number(count), thought)
