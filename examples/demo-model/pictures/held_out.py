"""Pictures that are not in training, with questions."""

import random

from lessons.split import Split, digest

from . import questions, scenes


def asked(seed, count, wordings_held_out=False):
    """Yields held-out pictures, each with one question of each kind that it allows."""
    wordings = Split(wordings_held_out)
    for index in range(count):
        scene = scenes.scene(seed, index, Split(held_out=True))
        rng = random.Random(digest("asked", seed, index))
        made = [questions.question(scene, rng, wordings, kind) for kind in questions.KINDS]
        yield scene, [question for question in made if question]
