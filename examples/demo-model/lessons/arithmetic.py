"""Sums, differences, products and word problems; larger sums are thought through by columns."""

from . import check
from .conversation import one
from .vocabulary import THINGS, invented_name

_DIRECT = {
    "+": (
        "[What is|How much is|What's|Tell me,|Can you add up|Please work out] {a} [+|plus] {b}?",
        "[Add|Please add|Now add|Can you add] {b} [to|and] {a}[.|, please.|?]",
        "[|Calculate |Compute |Quick: ]{a} [+|plus] {b}[| =| = ?|?]",
        "[What is|What's|Tell me|Give me] the sum of {a} and {b}[?|, please?]",
    ),
    "-": (
        "[What is|How much is|What's|Tell me,|Please work out] {a} [-|minus] {b}?",
        "[Subtract|Take|Please take|Please subtract|Now take] {b} from {a}[.|, please.|!]",
        "[|Calculate |Compute |Quick: ]{a} [-|minus] {b}[| =| = ?|?]",
        "[What is|What's|Tell me] the difference between {a} and {b}?",
        "How much is left [of|from] {a} [after|when] [taking away|you take away] {b}?",
    ),
    "*": (
        "[What is|How much is|What's|Tell me,|Please work out] {a} [*|times|x] {b}?",
        "[Multiply|Please multiply|Now multiply|Can you multiply] {a} [by|with] {b}[.|, please.|?]",
        "[|Calculate |Compute |Quick: ]{a} [*|times|x] {b}[| =| = ?|?]",
        "[What is|What's|Tell me] the product of {a} and {b}?",
    ),
}
_STORIES = {
    "+": (
        "{name} has {a} {things} and [gets|finds|buys|is given] {b} more. How "
        "many {things} does {name} have [now|in the end]?",
        "There are {a} {things} on the table. {name} [puts|lays|adds] {b} more "
        "[there|next to them]. How many {things} are [there|on the table] now?",
    ),
    "-": (
        "{name} has {a} {things} and [loses|sells|gives away|uses up] {b}. How "
        "many {things} [are left|does {name} still have|remain]?",
        "There are {a} {things} in the box. {name} [takes|removes] {b} [out|"
        "away]. How many {things} are [left|still there]?",
    ),
    "*": (
        "{name} has {a} boxes with {b} {things} [each|in each of them|in every "
        "box]. How many {things} [are there|is that] [altogether|in all]?",
        "Each of {a} [children|friends|people] brings {b} {things}. How many "
        "{things} [are there|is that] [altogether|in all]?",
    ),
}
RESULT = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
WORD = {"+": "plus", "-": "minus", "*": "times"}


def pair(rng, op, limit=99):
    """Operands whose result is no less than zero."""
    if op == "*":
        return rng.randint(0, 12), rng.randint(0, 12)
    a, b = rng.randint(0, limit), rng.randint(0, limit)
    return (max(a, b), min(a, b)) if op == "-" else (a, b)


def held_pair(rng, split, op):
    """Operands on this side of the split; a table of products is learned by heart, so not split."""
    if op == "*":
        return pair(rng, op)
    return split.draw(lambda: pair(rng, op), "sum", op)


def lesson(rng, split):
    op = rng.choice("++--*")
    kind = rng.random()
    if kind < 0.25 and op != "*":
        return columns(rng, split, op)
    a, b = held_pair(rng, split, op)
    value = RESULT[op](a, b)
    if kind < 0.45:
        name, things = invented_name(rng)[0], rng.choice(THINGS)
        question = split.say(rng, *_STORIES[op], name=name, things=things, a=a, b=b)
        return one(question, f"{a} {op} {b} = {value}. The answer is {value}.", check.number(value))
    question = split.say(rng, *_DIRECT[op], a=a, b=b)
    answer = rng.choice([f"{a} {op} {b} = {value}.", f"{a} {WORD[op]} {b} is {value}."])
    return one(question, answer, check.number(value))


def columns(rng, split, op):
    """A sum of three-digit numbers, thought through column by column."""

    def make():
        a, b = rng.randint(100, 999), rng.randint(10, 999)
        return (max(a, b), min(a, b)) if op == "-" else (a, b)

    a, b = split.draw(make, "columns", op)
    value = RESULT[op](a, b)
    question = split.say(rng, *_DIRECT[op], a=a, b=b)
    answer = f"{a} {op} {b} = {value}."
    return one(question, answer, check.number(value), working(a, b, op))


def working(a, b, op):
    """The written working from right to left: `7 + 5 + 0 = 12, write 2, carry 1.`"""
    steps, carry, result = [], 0, ""
    for x, y in zip(f"{a:03}"[::-1], f"{b:03}"[::-1]):
        if op == "+":
            total = int(x) + int(y) + carry
            steps.append(f"{x} + {y} + {carry} = {total}, write {total % 10}, carry {total // 10}.")
            carry, digit = total // 10, total % 10
        else:
            total = int(x) - int(y) - carry
            borrow = int(total < 0)
            steps.append(f"{x} - {y} - {carry}: write {total % 10}, borrow {borrow}.")
            carry, digit = borrow, total % 10
        result = f"{digit}{result}"
    if op == "+" and carry:
        steps.append("Write 1.")
        result = f"1{result}"
    return " ".join(steps) + f" That is {int(result)}."
