"""Pictures with what is in them: shapes, a number, or nothing."""

import random
from dataclasses import dataclass

from lessons.split import digest

from . import digits, drawing
from .drawing import COLOURS, SHAPES, Thing

SIZES = (128, 160, 192, 224, 256)
"""Lengths of a canvas's shorter side."""
THINGS_MAX = 6
_KINDS = {"shapes": 0.66, "number": 0.3, "empty": 0.04}


@dataclass
class Scene:
    """A picture, and its things in order: by shape, then by colour; digits from the left."""

    kind: str
    image: object
    things: list

    @property
    def groups(self):
        """Returns `{(shape, colour): count}` in canonical order."""
        found = {}
        for thing in self.things:
            key = (thing.name, thing.colour)
            found[key] = found.get(key, 0) + 1
        return found

    @property
    def number(self):
        """Returns the digits, read from the left."""
        return "".join(thing.name for thing in self.things)


def scene(seed, index, split):
    """Returns picture `index` of `seed`, on one side of the split. The arguments alone decide it."""
    rng = random.Random(digest("picture", seed, index, split.held_out))
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    long = rng.uniform(1.0, 1.5) if rng.random() < 0.6 else 1.0
    side = rng.choice(SIZES)
    size = (side, round(side * long)) if rng.random() < 0.3 else (round(side * long), side)
    colour = drawing.background(rng)
    image = drawing.canvas(rng, size, colour)
    things = {"shapes": _shapes, "number": _number, "empty": lambda *_: []}[kind](
        rng, split, image, colour
    )
    return Scene(kind, drawing.worn(rng, image), things)


def _visible(rng, colour, on):
    """Returns a shade of `colour` that stands out, or None."""
    for _ in range(4):
        made = drawing.shade(rng, colour)
        if drawing.contrast(made, on) >= drawing.CONTRAST_MIN:
            return made
    return None


def _groups(rng, shades, count):
    """Returns `((shape, colour), number)` of `count` groups, in canonical order."""
    groups = {}
    while len(groups) < count:
        key = (rng.choice(SHAPES), rng.choice(list(shades)))
        left = THINGS_MAX - sum(groups.values()) - (count - len(groups) - 1)
        number = rng.choices(range(1, THINGS_MAX + 1), (8, 4, 3, 2, 1, 1))[0]
        groups.setdefault(key, min(left, number))
    order = sorted(groups, key=lambda key: (SHAPES.index(key[0]), list(COLOURS).index(key[1])))
    return tuple((key, groups[key]) for key in order)


def _shapes(rng, split, image, on):
    shades = {name: _visible(rng, name, on) for name in COLOURS}
    shades = {name: shade for name, shade in shades.items() if shade}
    count = rng.choices((1, 2, 3), (0.4, 0.38, 0.22))[0]
    groups = _groups(rng, shades, count)
    # There are too few kinds of one group to hold any out.
    while count > 1 and not split.keeps("shapes", groups):
        groups = _groups(rng, shades, count)
    names = [key for key, number in groups for _ in range(number)]
    things = _placed(rng, names, image.size)
    line = rng.uniform(0.1, 0.26) if rng.random() < 0.3 else 0
    shaky = rng.uniform(0.01, 0.07) if rng.random() < 0.4 else 0
    for thing in things:
        drawing.shape(rng, image, thing, shades[thing.colour], line, shaky)
    return things


def _placed(rng, names, size):
    """Returns the things at random places, apart from each other."""
    short, crowd = min(size), len(names)
    most = {1: 0.44, 2: 0.27, 3: 0.23, 4: 0.2, 5: 0.18, 6: 0.165}[crowd]
    while True:
        things = []
        for name, colour in names:
            radius = short * rng.uniform(0.1, most)
            for _ in range(20):
                x, y = (rng.uniform(1.08 * radius, length - 1.08 * radius) for length in size)
                if all(
                    (x - t.x) ** 2 + (y - t.y) ** 2 > (1.08 * (radius + t.radius)) ** 2
                    for t in things
                ):
                    things.append(Thing(name, colour, x, y, radius))
                    break
        if len(things) == crowd:
            return things


def _digits(rng, length):
    """Returns a number of `length` digits. Only a single one may be 0."""
    first = rng.choice("0123456789" if length == 1 else "123456789")
    return first + "".join(rng.choice("0123456789") for _ in range(length - 1))


def _number(rng, split, image, on):
    length = rng.choices((1, 2, 3, 4), (2, 3, 3, 3))[0]
    number = _digits(rng, length)
    while length > 1 and not split.keeps("number", number):
        number = _digits(rng, length)
    shades = {name: _visible(rng, name, on) for name in COLOURS}
    # Most people write in black on white.
    colour = rng.choice([name for name, shade in shades.items() if shade])
    if shades["black"] and rng.random() < 0.4:
        colour = "black"
    style = digits.new_style(rng)
    width, height = image.size
    # A digit is at least a patch wide, so that no two have their middle in the same patch.
    tall = height * rng.uniform(0.28, 0.85 if length < 3 else 0.6)
    masks = [digits.mask(rng, digit, tall * rng.uniform(0.95, 1.05), style) for digit in number]
    gap = tall * rng.uniform(0.08, 0.22)
    pitch_min = width * 0.15
    steps = [max(m.width + gap, pitch_min) for m in masks]
    scale = min(1.0, 0.94 * width / sum(steps))
    if scale < 1:
        sizes = [(max(2, int(m.width * scale)), max(4, int(m.height * scale))) for m in masks]
        masks = [m.resize(size) for m, size in zip(masks, sizes)]
        steps = [step * scale for step in steps]
    x = rng.uniform(0.02 * width, 0.98 * width - sum(steps))
    tallest = max(m.height for m in masks)
    y = rng.uniform(0.02 * height, 0.98 * height - tallest)
    things = []
    for digit, made, step in zip(number, masks, steps):
        left = round(x + (step - made.width) / 2)
        top = round(y + (tallest - made.height) * rng.uniform(0.3, 0.7))
        image.paste(shades[colour], (left, top), made)
        middle = (left + made.width / 2, top + made.height / 2)
        things.append(Thing(digit, colour, *middle, made.height / 2))
        x += step
    return things
