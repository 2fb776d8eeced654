"""Sums, differences, products and word problems.

Results up to twelve are known by heart. A thought works out larger sums and differences column by
column, so that the model needs to know only single digits.
"""

from . import check
from .conversation import one
from .vocabulary import THINGS, invented_name

BY_HEART_MAX = 12
DIRECT = {
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
        "There are {a} {things} in the box. {name} [takes {b} out|"
        "takes {b} away|removes {b}]. How many {things} are [left|still there]?",
    ),
    "*": (
        "{name} has {a} boxes with {b} {things} [each|in each of them|in every "
        "box]. How many {things} [are there|is that] [altogether|in all]?",
        "Each of {a} [children|friends|people] brings {b} {things}. How many "
        "{things} [are there|is that] [altogether|in all]?",
    ),
}
RESULT = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


def pair(rng, op, limit=99):
    """Returns operands whose result is not negative."""
    if op == "*":
        return rng.randint(0, 12), rng.randint(0, 12)
    a, b = rng.randint(0, limit), rng.randint(0, limit)
    return (max(a, b), min(a, b)) if op == "-" else (a, b)


def by_heart(a, b, op):
    """Returns whether the result is known without a thought."""
    return op == "*" or max(a, b) <= BY_HEART_MAX


def held_pair(rng, split, op, limit=99):
    """Returns operands on this side of the split. Facts that are learned by heart are not split."""
    while True:
        a, b = pair(rng, op, limit)
        if by_heart(a, b, op) or split.keeps("sum", op, (a, b)):
            return a, b


def lesson(rng, split):
    op = rng.choice("++--**")
    limit = rng.choice([BY_HEART_MAX, 99, 99, 99, 999, 999])
    a, b = held_pair(rng, split, op, limit)
    if rng.random() < 0.25 and max(a, b) <= 99:
        name, things = invented_name(rng)[0], rng.choice(THINGS)
        question = split.say(rng, *_STORIES[op], name=name, things=things, a=a, b=b)
    else:
        question = split.say(rng, *DIRECT[op], a=a, b=b)
    return answered(question, a, b, op)


def answered(question, a, b, op):
    """Returns the question with its thought, where it needs one, and its answer."""
    value = RESULT[op](a, b)
    thought = None if by_heart(a, b, op) else working(a, b, op)
    return one(question, f"{a} {op} {b} = {value}.", check.number(value), thought)


def working(a, b, op):
    """The written working from right to left: `7 + 5 + 0 = 12, write 2, carry 1.`"""
    steps, carry, result = [], 0, ""
    width = max(len(str(a)), len(str(b)))
    for x, y in zip(f"{a:0{width}}"[::-1], f"{b:0{width}}"[::-1], strict=True):
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
