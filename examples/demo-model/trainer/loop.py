"""The training loop: steps, learning rate, checkpoints, and regular measurements of the skills."""

import functools
import os
import time
import timeit
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

import lessons

from .measure import measure
from .optimizer import optimizers
from .parallel import Team

DECAY = 0.5
"""The share of the steps in which the learning rate falls to zero."""
WARM_UP = 100
CLIP = 1.0
PARTS_OF_TIME = 1_000_000
"""Processes agree on whole numbers, so that their rates are equal."""


@dataclass
class Plan:
    """The parameters of a training."""

    steps: int
    lr: float
    weight_decay: float
    checkpoint: Path
    minutes: float | None = None
    save_minutes: float = 5
    look_minutes: float = 15
    look_count: int = 40
    look_skills: tuple = tuple(lessons.SKILLS)


def rate(step, steps):
    """Returns the factor of the learning rate: up, level, down."""
    decay = max(1, int(steps * DECAY))
    return min(1.0, (step + 1) / WARM_UP, (steps - step) / decay)


class Training:
    """A model in training. A checkpoint holds everything that an exact continuation needs."""

    def __init__(self, model, batches, plan, tokenizer, device="cpu", teacher=None, team=Team()):
        self.model, self.batches, self.plan, self.team = model, batches, plan, team
        self.tokenizer, self.device, self.teacher = tokenizer, device, teacher
        is_bf16 = bool(team.agreed(has_fast_bf16(device)))
        dtype = torch.bfloat16 if is_bf16 else torch.float32
        self.optimizers = optimizers(model, plan.lr, plan.weight_decay, dtype)
        self.step, self.steps, self.seconds, self.tokens = 0, plan.steps, 0.0, 0
        self.left = 1.0
        self.autocast = torch.autocast(device, torch.bfloat16, enabled=is_bf16)
        if plan.checkpoint.exists():
            self._load(plan.checkpoint)

    def run(self):
        """Trains to the end, or until the minutes are over."""
        since, saved, looked, shown = time.monotonic(), time.monotonic(), time.monotonic(), 0.0
        before, losses = self.seconds, []
        while self.step < self.steps:
            losses.append(self._one_step())
            now = time.monotonic()
            self.seconds = before + now - since
            self._hurry()
            if not self.team.leads:
                continue
            if now - shown > 20 or self.step == self.steps:
                self._show(sum(losses) / len(losses))
                shown, losses = now, []
            if now - saved > 60 * self.plan.save_minutes:
                self.save()
                saved = time.monotonic()
            if now - looked > 60 * self.plan.look_minutes:
                self.look()
                looked = time.monotonic()
        self.save()

    def look(self):
        """Prints how each skill does on held-out conversations."""
        self.model.eval()
        count, device = self.plan.look_count, self.device
        for skill in self.plan.look_skills:
            right = measure(self.model, self.tokenizer, skill, count, device=device)
            print(f"  step {self.step}  {skill:<11}{right:7.1%}", flush=True)

    def _one_step(self):
        for group in (g for optimizer in self.optimizers for g in optimizer.param_groups):
            factor = min(rate(self.step, self.steps), self.left / DECAY)
            group["lr"] = self.plan.lr * factor
        self.model.train()
        batches, count = self.batches.step(self.step, self.team.part, self.team.parts)
        total, size = torch.zeros((), device=self.device), torch.zeros(())
        for lists in batches:
            tokens, learned = (torch.tensor(rows, device=self.device) for rows in lists)
            loss = self._loss(tokens, learned) / count
            loss.backward()
            total += loss.detach()
            size += tokens.numel()
        weights = [w for w in self.model.parameters() if w.requires_grad]
        self.team.sum([*(w.grad for w in weights), total, size])
        self.tokens += int(size)
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return total.item()

    def _loss(self, tokens, learned):
        """Returns the summed loss of the tokens to be learned, each predicted from those before it."""
        wanted = learned[:, 1:]
        with self.autocast:
            logits = self.model.logits(self.model.hidden(tokens[:, :-1])[wanted]).float()
        loss = F.cross_entropy(logits, tokens[:, 1:][wanted], reduction="sum")
        if self.teacher is None:
            return loss
        with torch.no_grad(), self.autocast:
            taught = self.teacher.logits(self.teacher.hidden(tokens[:, :-1])[wanted]).float()
        kl = F.kl_div(logits.log_softmax(-1), taught.softmax(-1), reduction="sum")
        return 0.2 * loss + 0.8 * kl

    def _hurry(self):
        """Ends within the minutes: the learning rate falls in the last of them, as in the last steps.
        What another program takes from the machine then costs steps, and no time."""
        if self.plan.minutes is None:
            return
        left = 1 - self.seconds / (60 * self.plan.minutes)
        self.left = self.team.agreed(max(0, round(left * PARTS_OF_TIME))) / PARTS_OF_TIME
        if self.left == 0:
            self.steps = self.step

    def _show(self, loss):
        pace = self.tokens / max(self.seconds, 1e-9)
        print(
            f"step {self.step}/{self.steps}  loss {loss:.4f}  {self.tokens / 1e6:.2f} M tokens  "
            f"{pace:.0f} tokens/s  {self.seconds / 60:.1f} min  "
            f"cpu {time.process_time() / 60:.1f} min",
            flush=True,
        )

    def save(self):
        """Writes the checkpoint beside the last one, then replaces that one."""
        if not self.team.leads:
            return
        path = self.plan.checkpoint
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "shape": self._shape(),
            "progress": [self.step, self.steps, self.seconds, self.tokens],
        }
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def _shape(self):
        return self.model.shape.as_dict()

    def _load(self, path):
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.step, self.steps, self.seconds, self.tokens = state["progress"]
        print(f"goes on at step {self.step} of {self.steps}", flush=True)


@functools.cache
def has_fast_bf16(device):
    """Returns whether products in bf16 pay: on a CPU, if they take much less time than in f32. Not every
    CPU that has the instructions is faster with them."""
    if device != "cpu":
        return True
    x = torch.randn(1024, 256)

    def seconds(x):
        return min(timeit.repeat(lambda: x @ x.mT, repeat=8, number=2))

    return seconds(x.bfloat16()) < 0.8 * seconds(x)
