"""Training steps as rows of tokens: a picture, then several conversations about it.

The conversations of a row share the picture. Each sees the picture and itself, at the positions that
it would have alone. So the picture is computed once for all of them. A row in sixteen has no picture.
"""

import random
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from lessons.split import Split, digest

from . import questions, scenes, talk
from .digits import STROKES
from .drawing import COLOURS, SHAPES

SIDE, PATCH = 64, 8
GRID = SIDE // PATCH
EMBEDS = GRID * GRID
ROW_TOKENS = 232
WITHOUT_PICTURE = 1 / 16
HARD_THINGS, REDRAWN = 3, 0.6
"""`Batches.is_hard` draws so many of the pictures with fewer things once again."""
KINDS = (None, *SHAPES, *STROKES)
"""What a patch may have in its middle."""
IMAGE = "<image>"
START, ANSWER, END = "<|im_start|>", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"


@dataclass
class Batch:
    """Rows of a step. `branches` has 0 for tokens that all see, -1 for padding."""

    tokens: torch.Tensor  # [rows, ROW_TOKENS]
    branches: torch.Tensor  # [rows, ROW_TOKENS]
    positions: torch.Tensor  # [rows, ROW_TOKENS]
    learned: torch.Tensor  # [rows, ROW_TOKENS], bool
    pixels: torch.Tensor  # [pictures, 3, SIDE, SIDE], from -1 to 1
    kinds: torch.Tensor  # [pictures, EMBEDS], indices of `KINDS`
    colours: torch.Tensor  # [pictures, EMBEDS], indices of `COLOURS`, or -1

    def mask(self):
        """Returns which token sees which, [rows, 1, ROW_TOKENS, ROW_TOKENS]."""
        one, other = self.branches[:, :, None], self.branches[:, None, :]
        seen = (other == 0) | (one == other)
        return seen.tril()[:, None]


def pixels(image):
    """Returns the picture as the image processor makes it, [3, SIDE, SIDE] uint8."""
    small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(small).transpose(2, 0, 1)


def targets(scene):
    """Returns for each patch the kind and the colour of the thing whose middle is in it."""
    kinds, colours = np.zeros(EMBEDS, np.int64), np.full(EMBEDS, -1, np.int64)
    width, height = scene.image.size
    for thing in scene.things:
        column = min(GRID - 1, int(GRID * thing.x / width))
        patch = min(GRID - 1, int(GRID * thing.y / height)) * GRID + column
        kinds[patch] = KINDS.index(thing.name)
        colours[patch] = list(COLOURS).index(thing.colour)
    return kinds, colours


class Row:
    """The tokens of one picture and of conversations about it."""

    def __init__(self, encode, prefix):
        self.encode = encode
        self.tokens, self.count = list(prefix), 0
        self.branches = [0] * len(prefix)
        self.positions = list(range(len(prefix)))
        self.learned = [False] * len(prefix)
        self.start = len(prefix)

    def add(self, turns, opening=""):
        """Adds a conversation of `(question, answer)` turns. Returns whether there was room."""
        ids, learned = [], []
        for i, (question, answer) in enumerate(turns):
            opening = opening if i == 0 else f"\n{START}user\n"
            for text, is_learned in ((opening + question + ANSWER, False), (answer + END, True)):
                part = self.encode(text)
                ids += part
                learned += [is_learned] * len(part)
        if len(self.tokens) + len(ids) > ROW_TOKENS:
            return False
        self.count += 1
        self.tokens += ids
        self.learned += learned
        self.branches += [self.count] * len(ids)
        self.positions += range(self.start, self.start + len(ids))
        return True


class Batches:
    """The steps of a training; each depends on the seed, its number and `is_hard` alone.

    With `is_hard` there are more pictures of many things, and more of the hard questions.
    """

    def __init__(self, tokenizer, seed, rows, is_hard=False):
        self.seed, self.rows, self.is_hard = seed, rows, is_hard
        self.split = Split(held_out=False)
        self.image_token = tokenizer.token_to_id(IMAGE)
        self.encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids

    def step(self, number, part=0, parts=1):
        """Returns part `part` of `parts` of step `number`."""
        first = number * self.rows
        return batch_of([self._row(first + i) for i in range(part, self.rows, parts)])

    def pictures(self, number, count, part=0, parts=1):
        """Returns part `part` of step `number`, of `count` pictures: pixels, kinds and colours."""
        first = number * count
        made = [
            scenes.scene(f"pictures {self.seed}", first + i, self.split)
            for i in range(part, count, parts)
        ]
        return seen(made)

    def _row(self, index):
        """Returns a row, and its picture or None."""
        rng = random.Random(digest("row", self.seed, index))
        if rng.random() < WITHOUT_PICTURE:
            return self._talk(rng, index), None
        scene = scenes.scene(self.seed, index, self.split)
        if self.is_hard and len(scene.things) < HARD_THINGS and rng.random() < REDRAWN:
            scene = scenes.scene(self.seed, f"{index} again", self.split)
        row = Row(self.encode, self.prefix(rng))
        while row.add(self._turns(rng, scene, index)):
            pass
        return row, scene

    def prefix(self, rng):
        """Returns the tokens up to the question, now and then with a system message or a greeting."""
        system = talk.system(rng)
        text = f"{START}system\n{system}{END}\n" if system else ""
        if rng.random() < 0.08:
            asked, answer = talk.greeting(rng, self.split)
            text += f"{START}user\n{asked}{ANSWER}{answer}{END}\n"
        ids = self.encode(f"{text}{START}user\n")
        return [*ids, *[self.image_token] * EMBEDS, *self.encode("\n")]

    def _turns(self, rng, scene, index):
        count = 1 if rng.random() < 0.75 else rng.choice((2, 3))
        if rng.random() < 0.03:
            return [talk.unknown(rng, self.seed, index)]
        made = [
            questions.question(scene, rng, self.split, is_hard=self.is_hard) for _ in range(count)
        ]
        return [turn for _, *turn in made]

    def _talk(self, rng, index):
        row = Row(self.encode, [])
        turns = talk.without_picture(rng, self.seed, f"{index} 0", self.split)
        while True:
            system = talk.system(rng)
            opening = f"{START}system\n{system}{END}\n" if system else ""
            if not row.add(turns, f"{opening}{START}user\n"):
                return row
            turns = talk.without_picture(rng, self.seed, f"{index} {row.count}", self.split)


def batch_of(made):
    """Returns `(row, scene or None)` pairs as a batch. At least one has a scene."""
    rows = [row for row, _ in made]
    return Batch(
        _padded([row.tokens for row in rows], 0),
        _padded([row.branches for row in rows], -1),
        _padded([row.positions for row in rows], 0),
        _padded([row.learned for row in rows], False),
        *seen([scene for _, scene in made if scene]),
    )


def seen(made):
    """Returns the pixels of pictures, and their patches' kinds and colours."""
    found = [targets(scene) for scene in made]
    images = np.stack([pixels(scene.image) for scene in made]).astype(np.float32)
    return (
        torch.from_numpy(images / 127.5 - 1),
        torch.from_numpy(np.stack([kinds for kinds, _ in found])),
        torch.from_numpy(np.stack([colours for _, colours in found])),
    )


def _padded(rows, filler):
    return torch.tensor([row + [filler] * (ROW_TOKENS - len(row)) for row in rows])
