"""Questions about a scene, each with its one right answer."""

from lessons.split import capital

from .drawing import COLOURS, SHAPES

WORDS = ("no", "one", "two", "three", "four", "five", "six")
SEES_NO_PICTURE = "I see no picture. Please add one with shapes or a number."
HELLO = "Hello! Show me a picture of shapes or of a number, and ask me about it."
UNKNOWN = "I don't know that. I only know shapes, colours, counts and numbers in a picture."
EMPTY = "The picture is empty."

_DESCRIBE = (
    "[|Please |Can you ][describe|tell me about|explain] [this picture|the picture|this image|the "
    "image|this photo|this drawing|it][|.|?|, please.]",
    "[What is|What's|What are the things|What do you see|What can you see|What can be seen] [in "
    "this picture|in the picture|in this image|in the image|on this picture|in this photo|in this "
    "drawing|here|there][?|]",
    "[What do you see|What can you see|What is this|What's this|What is it|What is shown][?| here?]",
    "[What does|What might] [this picture|the picture|this image|this|it] show?",
)
_COUNT = (
    "[How many|Count the|Please count the|Tell me how many] {x}[|?|.| please| there are]",
    "[How many|What number of] {x} [are there|are in the picture|are in this picture|are in the "
    "image|do you see|can you see|can you count|are here][?|]",
    "[Please count|Count|Can you count] [the|all] {x}[| in the picture| in this image][.|?]",
)
_COUNT_ALL = tuple(text.replace("{x}", "[shapes|things|objects]") for text in _COUNT)
_COLOUR = (
    "[What|Which] [colour|color] [is|has] the {x}[?|| in the picture?| here?]",
    "[What is|Tell me|What's] the [colour|color] of the {x}[?|.|| in this picture?]",
)
_COLOURS = (
    "[What|Which] [colour|color] [are|have] the {x}[?|| in the picture?| here?]",
    "[What is|Tell me|What's] the [colour|color] of the {x}[?|.|| in this picture?]",
)
_PRESENT = (
    "[Is there|Do you see|Can you see|Can you find|Does it show] {x}[?|| in the picture?| in this "
    "picture?| in the image?| here?]",
)
_PLACE = (
    "[Which|What] [shape|thing|object] is {x}[?|| of the picture?| in the picture?]",
    "What [is|do you see|can you see] {x}[?|| of the picture?| of this image?]",
)
_SHAPE = (
    "[What|Which] shape is {x}[?|| in the picture?]",
    "[What|Which] shape [does|has] the {x} [one|thing|object][?|| have?]",
    "What is the {x} [shape|one|thing|object][?|| in the picture?]",
)
_NUMBER = (
    "[What|Which] number [is this|is it|is shown|do you see|can you see|is in the picture|is in "
    "this picture|is written here|is this picture showing][?|]",
    "[|Please |Can you ][read|read out|tell me] the [number|digits][|.|?|, please.| in the picture.]",
    "[What is|What's] the number[?|| in the picture?| here?| in this image?]",
    "[What does it say|What is written here|What is written|What does this say][?|]",
)
_DIGITS = (
    "How many digits [are there|does it have|does the number have|do you see|are in the "
    "number][?|]",
    "[Count the|How many] digits[|.|?]",
)
_SIDES = {
    "left": ("[on the left|on the left side|at the left|farthest left|leftmost]", "x", 1),
    "right": ("[on the right|on the right side|at the right|farthest right|rightmost]", "x", -1),
    "top": ("[at the top|on top|highest|topmost]", "y", 1),
    "bottom": ("[at the bottom|lowest|at the very bottom]", "y", -1),
}
_APART = 0.12
"""Least distance of the outermost thing's middle from the next one's, of the picture's length."""


def plural(name, count):
    """Returns `name` as it stands after a number."""
    return name if count == 1 else f"{name}s"


def article(name):
    """Returns `name` with its article."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def describe(scene, rng, split):
    question = split.say(rng, *_DESCRIBE)
    return question, description(scene)


def description(scene):
    """Returns the whole content, as in "Two red circles and a blue square."."""
    if scene.kind == "empty":
        return EMPTY
    if scene.kind == "number":
        return f"The number {scene.number}."
    parts = []
    for (name, colour), count in scene.groups.items():
        thing = plural(f"{colour} {name}", count)
        parts.append(article(thing) if count == 1 else f"{WORDS[count]} {thing}")
    *most, last = parts
    return capital(f"{', '.join(most)} and {last}." if most else f"{last}.")


def count(scene, rng, split):
    """Asks for the count of a shape, of a colour of it, or of all."""
    things = scene.things if scene.kind == "shapes" else []
    kind = rng.random()
    if kind < 0.25:
        return split.say(rng, *_COUNT_ALL), there_are(len(things), "shape")
    name, colour = _some(scene, rng)
    if kind < 0.65:
        number = sum(t.name == name for t in things)
        return split.say(rng, *_COUNT, x=f"{name}s"), there_are(number, name)
    number = sum((t.name, t.colour) == (name, colour) for t in things)
    thing = f"{colour} {name}"
    return split.say(rng, *_COUNT, x=f"{thing}s"), there_are(number, thing)


def there_are(number, thing):
    """Returns the sentence that says how many."""
    verb = "is" if number == 1 else "are"
    return f"There {verb} {WORDS[number]} {plural(thing, number)}."


def _some(scene, rng):
    """Returns a shape and a colour: of the picture, or mixed, or any."""
    shape, colour = rng.choice(SHAPES), rng.choice(list(COLOURS))
    if scene.kind != "shapes" or rng.random() < 0.2:
        return shape, colour
    mixed = rng.choice(scene.things).name, rng.choice(scene.things).colour
    return rng.choice([(mixed[0], mixed[1]), (shape, mixed[1]), (mixed[0], colour), mixed])


def colour(scene, rng, split):
    """Asks for the colour of a shape or of the number. Returns None where there are two."""
    if scene.kind == "number":
        return split.say(rng, *_COLOUR, x="number"), f"The number is {scene.things[0].colour}."
    name = rng.choice(scene.things).name if scene.things else rng.choice(SHAPES)
    if rng.random() < 0.15:
        name = rng.choice(SHAPES)
    colours = [t.colour for t in scene.things if t.name == name]
    if len(set(colours)) > 1:
        return None
    if not colours:
        return split.say(rng, *_COLOUR, x=name), f"There is no {name}."
    if len(colours) == 1:
        return split.say(rng, *_COLOUR, x=name), f"The {name} is {colours[0]}."
    return split.say(rng, *_COLOURS, x=f"{name}s"), f"The {name}s are {colours[0]}."


def presence(scene, rng, split):
    """Asks whether there is a shape, a colour, both, or a number."""
    things = scene.things if scene.kind == "shapes" else []
    name, colour = _some(scene, rng)
    kind = rng.random()
    if kind < 0.1:
        is_there, thing = scene.kind == "number", "a number"
    elif kind < 0.5:
        is_there, thing = any(t.name == name for t in things), article(name)
    elif kind < 0.65:
        is_there, thing = any(t.colour == colour for t in scene.things), f"anything {colour}"
    else:
        is_there = any((t.name, t.colour) == (name, colour) for t in things)
        thing = article(f"{colour} {name}")
    return split.say(rng, *_PRESENT, x=thing), "Yes." if is_there else "No."


def place(scene, rng, split):
    """Asks which shape is outermost on a side. Returns None where that is not clear."""
    if scene.kind != "shapes" or len(scene.things) < 2:
        return None
    words, axis, sign = _SIDES[rng.choice(list(_SIDES))]
    order = sorted(scene.things, key=lambda thing: sign * getattr(thing, axis))
    apart = abs(getattr(order[0], axis) - getattr(order[1], axis))
    if apart < _APART * scene.image.size[axis == "y"]:
        return None
    templates = tuple(text.replace("{x}", words) for text in _PLACE)
    answer = capital(article(f"{order[0].colour} {order[0].name}"))
    return split.say(rng, *templates), f"{answer}."


def shape(scene, rng, split):
    """Asks for the shape of a colour. Returns None where there are two."""
    if scene.kind != "shapes":
        return None
    colour = rng.choice(scene.things).colour
    names = {thing.name for thing in scene.things if thing.colour == colour}
    if len(names) > 1:
        return None
    return split.say(rng, *_SHAPE, x=colour), f"{capital(article(names.pop()))}."


def number(scene, rng, split):
    """Asks to read the number. Without one, the answer says so."""
    question = split.say(rng, *_NUMBER)
    return question, f"{scene.number}." if scene.kind == "number" else "There is no number."


def digits(scene, rng, split):
    """Asks for the count of digits."""
    if scene.kind != "number":
        return None
    return split.say(rng, *_DIGITS), there_are(len(scene.things), "digit")


KINDS = {
    "describe": (describe, 3.0),
    "count": (count, 2.0),
    "colour": (colour, 1.0),
    "presence": (presence, 1.3),
    "place": (place, 1.3),
    "shape": (shape, 0.7),
    "number": (number, 0.4),
    "digits": (digits, 0.4),
}
"""Each kind's function and its share of the questions."""
NUMBER_SHARE = 3.0
"""The share of `number` where there is one."""
HARD = {"describe": 5.0, "place": 3.0}
HARD_NUMBER_SHARE = 5.0
"""The shares of what is learned last, for `is_hard`."""


def question(scene, rng, split, kind=None, is_hard=False):
    """Returns `(kind, question, answer)`. A given `kind` that the picture does not allow gives None."""
    if kind is not None:
        made = KINDS[kind][0](scene, rng, split)
        return made and (kind, *made)
    shares = {name: share for name, (_, share) in KINDS.items()}
    if is_hard:
        shares |= HARD
    if scene.kind == "number":
        shares["number"] = HARD_NUMBER_SHARE if is_hard else NUMBER_SHARE
    while True:
        kind = rng.choices(list(shares), list(shares.values()))[0]
        made = KINDS[kind][0](scene, rng, split)
        if made:
            return (kind, *made)
