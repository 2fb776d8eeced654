"""The training of a model that sees, and how often its answers about new pictures are right."""

import random

import torch

from lessons.split import Split
from pictures import scenes
from pictures.batches import Row, batch_of, seen
from pictures.held_out import asked

from .loop import CLIP, DECAY, Training

LOOK_PICTURES = 200
PICTURES = 128
WARM_UP = 30
FINDER_SHARE = 0.5
"""The finder's loss, next to that of the answers."""


class Finding(Training):
    """A training of the tower alone: it finds things in pictures."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.before, self.pace = self.seconds, None

    def look(self):
        """Prints in how many held-out pictures each thing is found, and nothing else."""
        self.model.eval()
        made = [scenes.scene("look", i, Split(held_out=True)) for i in range(2 * LOOK_PICTURES)]
        pixels, kinds, colours = seen(made)
        with torch.no_grad(), self.autocast:
            found = self.model.found(pixels)
        is_right = (found[0] == kinds) & ((found[1] == colours) | (colours < 0))
        right = is_right.all(-1)
        for kind in ("shapes", "number", "empty"):
            those = torch.tensor([scene.kind == kind for scene in made])
            print(f"  step {self.step}  {kind:<8}{right[those].float().mean():7.1%}", flush=True)

    def _one_step(self):
        pictures = self.batches.pictures(self.step, PICTURES, self.team.part, self.team.parts)
        return self._learn(lambda: [self.model.finder_loss(*pictures)], pictures[1].numel())

    def _learn(self, losses, size):
        """Learns from the sum of `losses()`. Returns the first of them."""
        for group in (g for optimizer in self.optimizers for g in optimizer.param_groups):
            group["lr"] = self.plan.lr * self._rate()
        self.model.train()
        with self.autocast:
            found = losses()
        (sum(found) / self.team.parts).backward()
        total = (found[0] / self.team.parts).detach()
        size = torch.tensor(float(size))
        weights = [w for w in self.model.parameters() if w.grad is not None]
        self.team.sum([*(w.grad for w in weights), total, size])
        self.tokens += int(size)
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return total.item()

    def _rate(self):
        """Returns the factor of the learning rate: up, level, down."""
        fall = (self.steps - self.step) / max(1, int(self.steps * DECAY))
        return min(1.0, (self.step + 1) / WARM_UP, fall)

    def _hurry(self):
        """Plans as many steps as the minutes allow at the pace of the last ones."""
        if self.plan.minutes is None:
            return
        took, self.before = self.seconds - self.before, self.seconds
        self.pace = took if self.pace is None else 0.95 * self.pace + 0.05 * took
        left = max(0.0, 60 * self.plan.minutes - self.seconds)
        steps = min(self.plan.steps, self.step + round(left / self.pace))
        self.steps = self.team.agreed(steps)

    def _shape(self):
        return {}


class Looking(Finding):
    """A training whose steps are rows of `pictures.batches`: pictures, and talk of them."""

    def look(self):
        """Prints how often each kind of question is answered right, on held-out pictures."""
        self.model.eval()
        found = measure(self.model, self.batches, self.autocast, LOOK_PICTURES)
        shown = "  ".join(f"{kind} {right / asked:.1%}" for kind, (right, asked) in found.items())
        right, asked = (sum(column) for column in zip(*found.values()))
        print(f"  step {self.step}  all {right / asked:.1%}  {shown}", flush=True)

    def _one_step(self):
        batch = self.batches.step(self.step, self.team.part, self.team.parts)

        def losses():
            answer, finder = self.model.losses(batch)
            return [answer, FINDER_SHARE * finder]

        return self._learn(losses, batch.tokens.numel())


class Again(Looking):
    """More of the training with the checkpoint `start`.

    The learning rate falls in a line, to zero when the minutes are over. The count of steps goes
    on, so their pictures are new.
    """

    def __init__(self, start, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if not self.plan.checkpoint.exists():
            self._load(start)
            self.steps, self.seconds, self.tokens = self.plan.steps, 0.0, 0

    def _rate(self):
        left = 1 - self.seconds / (60 * self.plan.minutes)
        return self.team.agreed(max(0.0, left))


@torch.no_grad()
def measure(model, batches, autocast, count, seed="look", rows=25):
    """Returns `{kind: (right, asked)}`.

    An answer is right when greedy decoding gives exactly it. That is so when each of its tokens is the
    first choice behind the ones before it.
    """
    found, items = {}, list(asked(seed, count))
    for start in range(0, count, rows):
        part = items[start : start + rows]
        made, kinds = [], []
        for scene, asks in part:
            row = Row(batches.encode, batches.prefix(random.Random(0)))
            kinds.append([kind for kind, *turn in asks if row.add([turn])])
            made.append((row, scene))
        batch = batch_of(made)
        with autocast:
            logits = model.logits(batch)
        is_wrong = (logits.argmax(-1) != batch.tokens[:, 1:]) & batch.learned[:, 1:]
        for branches, wrong, names in zip(batch.branches[:, 1:], is_wrong, kinds):
            for number, kind in enumerate(names, 1):
                right, total = found.get(kind, (0, 0))
                is_right = not wrong[branches == number].any().item()
                found[kind] = (right + is_right, total + 1)
    return found
