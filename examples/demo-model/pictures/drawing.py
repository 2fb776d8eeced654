"""Shapes on a canvas: colours, outlines with a shaky hand, backgrounds and noise."""

import colorsys
import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

COLOURS = {
    # Hue in degrees, saturation, value: from, to.
    "red": ((-8, 8), (0.75, 1.0), (0.7, 1.0)),
    "orange": ((24, 36), (0.85, 1.0), (0.92, 1.0)),
    "yellow": ((51, 60), (0.7, 1.0), (0.88, 1.0)),
    "green": ((95, 145), (0.55, 1.0), (0.4, 0.85)),
    "blue": ((212, 242), (0.65, 1.0), (0.5, 1.0)),
    "purple": ((270, 292), (0.5, 1.0), (0.45, 0.85)),
    "black": ((0, 360), (0.0, 0.2), (0.0, 0.12)),
    "white": ((0, 360), (0.0, 0.03), (0.95, 1.0)),
}
SHAPES = ("circle", "square", "triangle", "star")
CONTRAST_MIN = 135
"""Least distance between the colours of a thing and of its background, of 442."""
_CORNERS = {"square": 4, "triangle": 3}


@dataclass
class Thing:
    """A shape or a digit: its name, colour, and place in pixels of the canvas."""

    name: str
    colour: str
    x: float
    y: float
    radius: float


def rgb(hue, saturation, value):
    """Returns three whole numbers up to 255."""
    return tuple(round(255 * c) for c in colorsys.hsv_to_rgb(hue / 360 % 1, saturation, value))


def shade(rng, colour):
    """Returns a random shade of `colour`."""
    return rgb(*(rng.uniform(low, high) for low, high in COLOURS[colour]))


def contrast(one, other):
    """Returns the distance of two colours."""
    return math.dist(one, other)


def background(rng):
    """Returns the colour of a background: mostly white or light, sometimes dark or grey."""
    kind = rng.random()
    if kind < 0.4:
        return (255, 255, 255)
    if kind < 0.75:
        return rgb(rng.uniform(0, 360), rng.uniform(0, 0.22), rng.uniform(0.85, 1.0))
    if kind < 0.95:
        return rgb(rng.uniform(0, 360), rng.uniform(0, 0.6), rng.uniform(0.0, 0.25))
    return rgb(0, 0, rng.uniform(0.3, 0.75))


def canvas(rng, size, colour):
    """Returns an image of `size`, of one colour or of two that are close to each other."""
    image = Image.new("RGB", size, colour)
    if rng.random() < 0.2:
        low = np.array(colour) + np.array([rng.randint(-18, 18) for _ in range(3)])
        ramp = np.linspace(0, 1, size[1])[:, None, None] * np.ones((1, size[0], 1))
        mixed = ramp * low + (1 - ramp) * np.array(colour)
        image = Image.fromarray(mixed.clip(0, 255).astype(np.uint8))
    return image


def outline(rng, name, radius, shaky):
    """Returns the points of a shape around (0, 0)."""
    if name == "circle":
        stretch = rng.uniform(0.9, 1.1)
        angles = [2 * math.pi * i / 40 for i in range(40)]
        points = [(stretch * math.cos(a), math.sin(a) / stretch) for a in angles]
    elif name == "star":
        inner, turn = rng.uniform(0.36, 0.5), _turn(rng, 0.3)
        arms = [(1.0 if i % 2 == 0 else inner, turn + math.pi * i / 5) for i in range(10)]
        points = [(r * math.sin(a), -r * math.cos(a)) for r, a in arms]
    else:
        corners = _CORNERS[name]
        start = math.pi / 4 if corners == 4 else 0
        turn = start + (_turn(rng, 0.12) if corners == 4 else _turn(rng, 0.25))
        angles = [turn + 2 * math.pi * i / corners for i in range(corners)]
        wide = rng.uniform(0.88, 1.12) if corners == 4 else rng.uniform(0.8, 1.2)
        points = [(wide * math.sin(a), -math.cos(a) / wide) for a in angles]
    if shaky:
        points = _shaken(rng, points, shaky, closed=True)
    return [(radius * x, radius * y) for x, y in points]


def _turn(rng, most):
    """Returns a small angle; a triangle or a star is turned anyhow now and then."""
    if most > 0.2 and rng.random() < 0.2:
        return rng.uniform(0, 2 * math.pi)
    return rng.gauss(0, most / 2)


def _shaken(rng, points, amount, closed):
    """Returns more points on the same lines, moved by a smooth random amount."""
    ends = points[1:] + points[:1] if closed else points[1:]
    waves = [(rng.uniform(-1, 1), rng.uniform(0, 6.3), k) for k in (1, 2, 3) for _ in "xy"]
    count = max(1, 40 // len(points))
    moved = []
    for i, ((x0, y0), (x1, y1)) in enumerate(zip(points, ends)):
        for j in range(count):
            t = (i + j / count) / len(ends) * 2 * math.pi
            dx = sum(a * math.sin(k * t + p) / k for a, p, k in waves[::2])
            dy = sum(a * math.sin(k * t + p) / k for a, p, k in waves[1::2])
            f = j / count
            moved.append((x0 + f * (x1 - x0) + amount * dx, y0 + f * (y1 - y0) + amount * dy))
    return moved


def shape(rng, image, thing, colour, line, shaky):
    """Draws `thing` in `colour`: filled, or with a line of `line` times its radius."""
    points = outline(rng, thing.name, thing.radius, shaky)
    points = [(thing.x + x, thing.y + y) for x, y in points]
    draw = ImageDraw.Draw(image)
    if line:
        width = max(2, round(line * thing.radius))
        draw.line([*points, points[0], points[1]], colour, width, joint="curve")
    else:
        draw.polygon(points, colour)


def worn(rng, image):
    """Returns the image as it may come from a camera or a JPEG file, or unchanged."""
    if rng.random() < 0.25:
        shape = (*image.size[::-1], 3)
        noise = np.random.default_rng(rng.getrandbits(32)).normal(0, rng.uniform(1, 9), shape)
        image = Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))
    if rng.random() < 0.15:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=rng.randint(50, 95))
        image = Image.open(file).convert("RGB")
    return image
