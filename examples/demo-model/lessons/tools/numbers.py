"""Arithmetic by tools: one for each operation, one with an operator, one with an expression."""

from .schemas import Kind, Parameter

_WORDS = {
    "add": ("+", ("{a} [plus|+] {b}",), (
        "[add|add up] {a} and {b}", "add {b} to {a}", "[find|work out|compute] the sum of {a} and "
        "{b}")),
    "subtract": ("-", ("{a} [minus|-] {b}",), (
        "[subtract|take] {b} from {a}", "[find|work out|compute] the difference of {a} and {b}")),
    "multiply": ("*", ("{a} [times|*|x|multiplied by] {b}",), (
        "multiply {a} [by|with|and] {b}", "[find|work out|compute] the product of {a} and {b}")),
    "divide": ("/", ("{a} [divided by|/|over] {b}",), (
        "divide {a} by {b}", "[find|work out|compute] the quotient of {a} and {b}")),
}
_RESULTS = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b, "divide": lambda a, b: a / b,
}
_ENDS = "[?|.||, please.| = ?]"
_KEYS = {
    "a": ("a", "x", "first", "left", "number1", "num1", "first_number", "n1"),
    "b": ("b", "y", "second", "right", "number2", "num2", "second_number", "n2"),
}
_NAMES = {
    "add": "[add|sum|plus|add_numbers|addition|calculate_sum|add_two_numbers|compute_sum]",
    "subtract": "[subtract|minus|difference|subtract_numbers|subtraction|compute_difference]",
    "multiply": "[multiply|product|times|multiply_numbers|multiplication|compute_product]",
    "divide": "[divide|quotient|divide_numbers|division|compute_quotient|ratio]",
}
_TEXTS = {
    "add": ("Adds two numbers", "Add two numbers", "The sum of two numbers", "Sums up"),
    "subtract": ("Subtracts two numbers", "Subtract one number from another", "The difference"),
    "multiply": ("Multiplies two numbers", "Multiply two numbers", "The product of two numbers"),
    "divide": ("Divides two numbers", "Divide one number by another", "The quotient"),
}
OPERATORS = (
    ("add", "subtract", "multiply", "divide"), ("+", "-", "*", "/"),
    ("plus", "minus", "times", "divided_by"), ("add", "sub", "mul", "div"),
)


def _asked(operation):
    _, spoken, told = _WORDS[operation]
    return (
        *(f"[What is |What's |How much is |Calculate |Compute |Work out |Tell me |]{each}"
          for each in spoken),
        *(f"[|Please |Can you |Could you ]{each}" for each in told),
    )


QUESTIONS = {operation: _asked(operation) for operation in _WORDS}


def _number(rng):
    kind = rng.random()
    if kind < 0.12:
        return rng.randint(1, 999) + rng.choice([0.5, 0.25, 0.1, 0.75, 0.2])
    return rng.randint(0, rng.choice([9, 99, 99, 999, 999, 9_999, 99_999]))


def _integer(rng):
    return rng.randint(0, rng.choice([9, 99, 99, 999, 999, 9_999, 99_999]))


def _pair(rng, split, make):
    a, b = split.draw(lambda: (make(rng), make(rng)), "numbers")
    return {"a": a, "b": b or 1}


def _result(operation):
    def result(rng, told):
        value = _RESULTS[operation](told["a"], told["b"])
        value = round(value, 2)
        value = int(value) if value == int(value) else value
        return {"result": value}, f"The result is {value}."

    return result


def _operands(kind):
    return {
        name: Parameter(
            _KEYS[name], (f"The {word} number", f"{word.capitalize()} operand", "Number"), kind
        )
        for name, word in (("a", "first"), ("b", "second"))
    }


def _single(operation, kind):
    make = _integer if kind == "integer" else _number
    return Kind(
        names=(_NAMES[operation],), texts=_TEXTS[operation], parameters=_operands(kind),
        make=lambda rng, split, source, offered: _pair(rng, split, make),
        questions=QUESTIONS[operation], result=_result(operation), ends=_ENDS,
    )


SINGLE = [_single(operation, kind) for operation in _WORDS for kind in ("number", "integer")]

_CALCULATOR = ("[calculate|calculator|calc|compute|arithmetic|math|do_math|evaluate|calculation]",)


def _calculator(operation):
    def make(rng, split, source, offered):
        order = list(_WORDS).index(operation)
        return _pair(rng, split, _number) | {"operation": offered.choices["operation"][order]}

    operator = Parameter(
        ("operation", "operator", "op", "kind", "method"),
        ("The operation", "What to do with the numbers", "Which operation"), choices=OPERATORS,
    )
    return {
        "names": _CALCULATOR,
        "texts": ("Calculates with two numbers", "Does arithmetic", "A simple calculator",
                  "Computes a result"),
        "parameters": {"operation": operator, **_operands("number")},
        "make": make, "questions": QUESTIONS[operation], "result": _result(operation),
        "ends": _ENDS,
    }


CALCULATORS = [Kind(**_calculator(operation)) for operation in _WORDS]


def _expression(operation):
    def make(rng, split, source, offered):
        made = _pair(rng, split, _number)
        return made | {"expression": f"{made['a']} {_WORDS[operation][0]} {made['b']}"}

    return Kind(
        names=_CALCULATOR,
        texts=("Evaluates an expression", "Calculates an expression", "Computes a formula"),
        parameters={"expression": Parameter(
            ("expression", "formula", "input", "expr", "term"),
            ("The expression", "What to calculate, e.g. 2 + 2", "A formula"))},
        make=make, questions=QUESTIONS[operation], result=_result(operation), ends=_ENDS,
    )


EXPRESSIONS = [_expression(operation) for operation in _WORDS]
