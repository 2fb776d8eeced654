"""Questions with yes or no that are thought through first, and questions in two steps.

A thought marks the wanted thing, and everything equal to it, with 1, and all else with 0. A small model
then need not compare. It repeats the mark behind the earlier copy of the same word (an induction head,
Olsson et al. 2022), and writes 0 where there was none.
"""

from . import check, facts
from .conversation import one
from .vocabulary import COMMON, article, invented_name, syllables
from .world import BY_NAME, NAMES, PEOPLE

_THINK = "[|Think: |Think first: |Yes or no: |Think step by step: |Tell me: ]"
COMPARE = {
    ">": (
        _THINK + "Is {a} [greater|larger|more|bigger] than {b}?",
        _THINK + "[Is it true|Is it so] that {a} is [greater|larger|more|bigger] than {b}?",
    ),
    "<": (
        _THINK + "Is {a} [less|smaller|lower] than {b}?",
        _THINK + "[Is it true|Is it so] that {a} is [less|smaller|lower] than {b}?",
    ),
}
PARITY = (_THINK + "[Is {a} an {which} number|Is {a} {which}|Is the number {a} {which}]?",)
SAME = {
    "town": (
        _THINK + "[Do {x} and {y} live in the same town|Is the home of {x} in the same "
        "town as that of {y}|Does {x} live where {y} lives]?",
    ),
    "pet": (
        _THINK + "[Do {x} and {y} have the same kind of pet|Is the pet of {x} the same "
        "animal as that of {y}|Do {x} and {y} keep the same animal]?",
    ),
    "hobby": (
        _THINK + "[Do {x} and {y} have the same hobby|Is the hobby of {x} the same as "
        "that of {y}|Do {x} and {y} share a hobby]?",
    ),
}
SAME_THING = (
    _THINK + "{x} has {a} {f}. {y} has {b} {s}. [Do they have the same|Is that the same|Do {x} "
    "and {y} have the same thing|Do both have the same]?",
)
RULE = (
    _THINK
    + "Every {k} is {c}. {x} is {article} {m}. [Is {x} {c}|Must {x} be {c}|So is {x} {c}]?",
)
CHAIN = (
    _THINK + "{x} is {more} than {y}. {y} is {more} than {z}. [Is {p} {more} than {q}|"
    "So is {p} {more} than {q}]?",
)
HAS_LETTER = (
    _THINK + "[Does {w} contain the letter {l}|Is there {an} {l} in {w}|Is the letter "
    "{l} in {w}|Does the word {w} have {an} {l}]?",
)
TWO_STEPS = (
    _THINK + "[Where does {x}'s {r} live|In which town does the {r} of {x} live]?",
    _THINK + "[In which town is the home of {x}'s {r}|What town does {x}'s {r} live in]?",
)
_QUALITIES = "red blue green round tiny heavy soft loud quick old".split()
_KINDS = (
    "bird dragon duck eagle fish frog ghost hen horse king kitten lion mouse owl parrot puppet "
    "queen rabbit robin sheep snail spider swan tiger turtle wolf zebra"
).split()
_MORE = "taller older faster heavier stronger richer".split()


def lesson(rng, split):
    kinds = [
        *[_compare, _parity, _same, _same, _same_thing],
        *[_rule, _chain, _has_letter, _two_steps],
    ]
    return rng.choice(kinds)(rng, split)


def _yes_no(question, thought, value, because):
    answer = f"{'Yes' if value else 'No'}, {because}."
    return one(question, answer, check.yes_no(value), thought)


def _compare(rng, split):
    def make():
        a = rng.randint(0, 999)
        b = rng.randint(0, 999) if rng.random() < 0.5 else max(0, a + rng.randint(-20, 20))
        return a, b if b != a else b + 1

    a, b = split.draw(make, "compare")
    sign = rng.choice("<>")
    greater = a > b
    value = greater == (sign == ">")
    relation = ">" if greater else "<"
    thought = f"{a:03} and {b:03}. {' '.join(_places(a, b))} So {a} {relation} {b}. "
    thought += f"Asked: {a} {sign} {b}. {'True.' if value else 'False.'}"
    word = "greater" if greater else "less"
    return _yes_no(
        split.say(rng, *COMPARE[sign], a=a, b=b), thought, value, f"{a} is {word} than {b}"
    )


def _places(a, b):
    """Compares digit by digit until the digits differ."""
    for x, y in zip(f"{a:03}", f"{b:03}"):
        sign = "=" if x == y else ">" if x > y else "<"
        yield f"{x} {sign} {y}."
        if x != y:
            return


def _parity(rng, split):
    a = split.draw(lambda: rng.randint(0, 999), "parity")
    which, is_ = rng.choice(["even", "odd"]), "odd" if a % 2 else "even"
    thought = f"{a} ends in {a % 10}. {a % 10} is {is_}."
    return _yes_no(
        split.say(rng, *PARITY, a=a, which=which), thought, which == is_, f"{a} is {is_}"
    )


def _same(rng, split):
    relation = rng.choice(list(SAME))

    def make():
        x, y = rng.sample(PEOPLE, 2)
        if rng.random() < 0.4:
            alike = [
                p for p in PEOPLE if getattr(p, relation) == getattr(x, relation) and p is not x
            ]
            y = rng.choice(alike or [y])
        return x.name, y.name

    x, y = (BY_NAME[name] for name in split.draw(make, "same", relation))
    value = getattr(x, relation) == getattr(y, relation)
    thought = f"{facts.person_answer(x, relation)} {facts.person_answer(y, relation)} "
    thought += f"{marked(getattr(x, relation), getattr(y, relation))}."
    question = split.say(rng, *SAME[relation], x=x.name, y=y.name)
    return _yes_no(
        question, thought, value, "that is the same" if value else "that is not the same"
    )


def marked(wanted, *found):
    """Returns `lamp1, rope0. Not the same`: 1 behind each word that equals the first."""
    told = ", ".join(f"{x}{int(x == wanted)}" for x in (wanted, *found))
    return f"{told}. {'The same' if wanted in found else 'Not the same'}"


def _same_thing(rng, split):
    """The same as `_same`, for people and things of the question."""

    def make():
        (x, _), (y, _) = invented_name(rng), invented_name(rng)
        first, second = rng.sample(COMMON, 2)
        return x, first, y, first if rng.random() < 0.5 else second

    x, first, y, second = split.draw(make, "same thing")
    question = split.say(
        rng, *SAME_THING, x=x, f=first, a=article(first), y=y, s=second, b=article(second)
    )
    value = first == second
    because = "that is the same" if value else "that is not the same"
    return _yes_no(question, f"The {marked(first, second)}.", value, because)


def _rule(rng, split):
    def make():
        return invented_name(rng)[0], *rng.sample(_KINDS, 2)

    x, kind, other = split.draw(make, "rule")
    member = kind if rng.random() < 0.5 else other
    quality = rng.choice(_QUALITIES)
    value = member == kind
    thought = f"The {marked(kind, member)}."
    because = f"{x} is {quality}" if value else "that does not follow"
    question = split.say(
        rng, *RULE, k=kind, c=quality, x=x, m=member, article=article(member)
    )
    return _yes_no(question, thought, value, because)


def _chain(rng, split):
    def make():
        if rng.random() < 0.8:
            return tuple(rng.sample(NAMES, 3))
        names = [invented_name(rng)[0] for _ in range(3)]
        return tuple(names) if len(set(names)) == 3 else make()

    x, y, z = split.draw(make, "chain")
    more = rng.choice(_MORE)
    value = rng.random() < 0.5
    p, q = (x, z) if value else (z, x)
    asked = f"{p}1, {q}3. True" if value else f"{p}3, {q}1. False"
    thought = f"In order: {x}1, {y}2, {z}3. Asked: {asked}."
    question = split.say(rng, *CHAIN, x=x, y=y, z=z, p=p, q=q, more=more)
    return _yes_no(question, thought, value, f"{x} is {more} than {z}")


def _has_letter(rng, split):
    def make():
        w = rng.choice(COMMON) if rng.random() < 0.5 else syllables(rng, rng.randint(1, 2))
        return w, rng.choice(w) if rng.random() < 0.5 else rng.choice("abcdefghiklmnoprstuw")

    w, letter = split.draw(make, "has")
    value = letter in w
    seen = w[: w.index(letter) + 1] if value else w
    letters = "".join(f"{x}{int(x == letter)}" for x in seen)
    thought = f'"{letter}1" in "{letters}". {"There it is." if value else "It is not there."}'
    an = "an" if letter in "aefhilmnorsx" else "a"
    question = split.say(rng, *HAS_LETTER, w=f'"{w}"', l=f'"{letter}"', an=an)
    return _yes_no(question, thought, value, f"it does{'' if value else ' not'}")


def _two_steps(rng, split):
    person = split.draw(lambda: rng.choice(PEOPLE).name, "two steps")
    person = BY_NAME[person]
    relation = rng.choice(["sibling", "teacher"])
    middle = BY_NAME[getattr(person, relation)]
    word = person.sibling_word if relation == "sibling" else "teacher"
    thought = f"{facts.person_answer(person, relation)} {facts.person_answer(middle, 'town')}"
    question = split.say(rng, *TWO_STEPS, x=person.name, r=word)
    answer = f"{person.name}'s {word} lives in {middle.town}."
    return one(question, answer, facts.person_check(middle, "town"), thought)
