"""Digits: by strokes of a pen, as seven bars, and in the two fonts that PIL has within."""

import math
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

FONT_SIZE = 64
# Points within a box of 1 x 1 from the top left. Lists of strokes; `~` marks those to be rounded.
STROKES = {
    "0": [["~.5,0 .1,.1 0,.5 .1,.9 .5,1 .9,.9 1,.5 .9,.1 .5,0"]],
    "1": [[".5,0 .5,1"], [".2,.25 .55,0 .55,1"], [".2,.25 .55,0 .55,1", ".2,1 .9,1"]],
    "2": [["~.05,.3 .1,.05 .5,0 .9,.1 .9,.35 .6,.65 .0,1", ".0,1 1,1"]],
    "3": [
        ["~.05,.15 .3,0 .8,0 .95,.25 .8,.45 .4,.48", "~.4,.48 .85,.5 1,.75 .8,1 .3,1 .0,.85"],
        [".05,0 .95,0 .5,.42", "~.5,.42 .95,.5 1,.75 .8,1 .3,1 .0,.85"],
    ],
    "4": [[".7,1 .7,0 0,.68 1,.68"], [".15,0 .1,.55 1,.55", ".75,.1 .75,1"]],
    "5": [[".9,0 .15,0 .1,.42", "~.1,.42 .5,.35 .95,.45 1,.7 .85,1 .35,1 .0,.88"]],
    "6": [["~.85,.02 .4,.1 .05,.5 .0,.8 .25,1 .75,1 1,.8 .9,.55 .6,.48 .2,.55 .03,.72"]],
    "7": [[".0,0 1,0 .4,1"], [".0,0 1,0 .4,1", ".35,.5 .85,.5"]],
    "8": [["~.5,.47 .1,.4 .08,.1 .5,0 .92,.1 .9,.4 .5,.47 .05,.6 .0,.9 .5,1 1,.9 .95,.6 .5,.47"]],
    "9": [
        ["~.97,.3 .8,.5 .3,.5 .03,.3 .15,.05 .55,0 .95,.1 .97,.3", ".97,.3 .85,1"],
        ["~.97,.3 .8,.5 .3,.5 .03,.3 .15,.05 .55,0 .95,.1 1,.5 .8,.9 .2,1"],
    ],
}
SEGMENTS = {
    "0": "abcdef", "1": "bc", "2": "abged", "3": "abgcd", "4": "fgbc",
    "5": "afgcd", "6": "afgedc", "7": "abc", "8": "abcdefg", "9": "abcdfg",
}  # fmt: skip
_BARS = {
    "a": ".08,0 .92,0", "b": "1,.08 1,.42", "c": "1,.58 1,.92", "d": ".08,1 .92,1",
    "e": "0,.58 0,.92", "f": "0,.08 0,.42", "g": ".08,.5 .92,.5",
}  # fmt: skip
STYLES = ("pen", "bars", "font", "pixels")


@lru_cache(maxsize=None)
def _font(style):
    if style == "pixels":
        return ImageFont.load_default_imagefont()
    return ImageFont.load_default(FONT_SIZE)


def new_style(rng):
    """Returns how all digits of one number look."""
    kind = rng.choices(STYLES, (0.45, 0.1, 0.35, 0.1))[0]
    return {
        "kind": kind,
        "slant": rng.uniform(-0.1, 0.25) if rng.random() < 0.5 else 0.0,
        "wide": rng.uniform(0.75, 1.2),
        "pen": rng.uniform(0.08, 0.12) if kind == "bars" else rng.uniform(0.09, 0.24),
        "bold": rng.choice([0, 0, 1, 3]),
        "shake": rng.uniform(0.0, 0.05),
        "variants": {digit: rng.randrange(len(ways)) for digit, ways in STROKES.items()},
    }


def mask(rng, digit, height, style):
    """Returns an image "L" of one digit, about `height` pixels high."""
    if style["kind"] in ("font", "pixels"):
        glyph = _glyph(digit, style)
        width = max(2, round(glyph.width / glyph.height * height * style["wide"]))
        way = Image.Resampling.NEAREST if style["kind"] == "pixels" else Image.Resampling.BILINEAR
        made = glyph.resize((width, max(4, round(height))), way)
    else:
        made = _drawn(rng, digit, height, style)
    slant = style["slant"]
    if slant:
        extra = math.ceil(abs(slant) * made.height)
        wide = Image.new("L", (made.width + extra, made.height))
        wide.paste(made, (0 if slant > 0 else extra, 0))
        sheared = (1, slant, 0 if slant < 0 else -extra, 0, 1, 0)
        made = wide.transform(wide.size, Image.Transform.AFFINE, sheared, Image.Resampling.BILINEAR)
        made = made.crop(made.getbbox() or (0, 0, *made.size))
    return made


def _glyph(digit, style):
    font = _font(style["kind"])
    image = Image.new("L", (2 * FONT_SIZE, 2 * FONT_SIZE))
    bold = style["bold"] if style["kind"] == "font" else 0
    more = {"stroke_width": bold} if bold else {}
    ImageDraw.Draw(image).text((20, 20), digit, 255, font, **more)
    return image.crop(image.getbbox())


def _drawn(rng, digit, height, style):
    """Returns a digit made of lines."""
    if style["kind"] == "bars":
        strokes, shake = [_BARS[name] for name in SEGMENTS[digit]], 0.0
    else:
        strokes, shake = STROKES[digit][style["variants"][digit]], style["shake"]
    pen = max(2, round(style["pen"] * height))
    tall = height - pen
    wide = tall * 0.58 * style["wide"]
    image = Image.new("L", (round(wide + pen) + 1, round(height) + 1))
    draw = ImageDraw.Draw(image)
    moved = {}
    for stroke in strokes:
        points = [tuple(map(float, p.split(","))) for p in stroke.lstrip("~").split()]
        for point in points:
            moved.setdefault(point, tuple(c + rng.gauss(0, shake) for c in point))
        points = [moved[point] for point in points]
        if stroke.startswith("~"):
            points = _rounded(_rounded(points))
        points = [(pen / 2 + x * wide, pen / 2 + y * tall) for x, y in points]
        draw.line(points, 255, pen, joint="curve")
        if style["kind"] == "pen" and pen > 3:
            for x, y in (points[0], points[-1]):
                draw.ellipse((x - pen / 2, y - pen / 2, x + pen / 2, y + pen / 2), 255)
    return image.crop(image.getbbox())


def _rounded(points):
    """Returns the line with its corners cut (Chaikin 1974)."""
    cut = [points[0]]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        cut += [(0.75 * x0 + 0.25 * x1, 0.75 * y0 + 0.25 * y1)]
        cut += [(0.25 * x0 + 0.75 * x1, 0.25 * y0 + 0.75 * y1)]
    return [*cut, points[-1]]
