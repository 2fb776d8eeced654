"""Decoding of many prompts at once: greedy, or by a model's default sampling."""

import json

import torch

from .model import Past
from .tokenizer import END_OF_TEXT, END_OF_TURN


def likeliest(logits):
    return logits.argmax(-1)


class Sampling:
    """Picks tokens at random, as a model's `generation_config.json` says."""

    def __init__(self, folder, seed=0):
        config = json.loads((folder / "generation_config.json").read_text())
        self.temperature, self.top_k, self.top_p = (
            config[name] for name in ("temperature", "top_k", "top_p")
        )
        self.random = torch.Generator().manual_seed(seed)

    def __call__(self, logits):
        """Returns a token of each row. As elsewhere, the best token is never left out."""
        best, tokens = (logits.float().cpu() / self.temperature).topk(self.top_k)
        shares = best.softmax(-1)
        before = shares.cumsum(-1) - shares
        shares = shares.masked_fill(before > self.top_p, 0.0)
        picked = torch.multinomial(shares, 1, generator=self.random)
        return tokens.gather(-1, picked)[:, 0].to(logits.device)


def greedy(model, prompts, max_new_tokens, device="cpu"):
    return written(model, prompts, max_new_tokens, likeliest, device)


@torch.no_grad()
def written(model, prompts, max_new_tokens, pick, device="cpu"):
    """Returns the tokens that follow each prompt (a list of token ids), up to the end of the turn.
    `pick` chooses a token of each row of logits."""
    model.eval()
    longest = max(map(len, prompts))
    pads = torch.tensor([longest - len(p) for p in prompts], device=device)[:, None]
    tokens = torch.tensor([[END_OF_TEXT] * (longest - len(p)) + p for p in prompts], device=device)
    answers = [[] for _ in prompts]
    running, past, seen = set(range(len(prompts))), Past(), 0
    for _ in range(max_new_tokens):
        total = seen + tokens.shape[1]
        at = torch.arange(seen, total, device=device)[None, :]
        keys = torch.arange(total, device=device)[None, None, :]
        # A padding token sees itself, so that no row of the mask is empty.
        mask = ((keys >= pads[:, :, None]) & (keys <= at[..., None])) | (keys == at[..., None])
        hidden = model.hidden(tokens, (at - pads).clamp(min=0), mask[:, None], past)
        picked = pick(model.logits(hidden[:, -1]))
        seen = total
        for i in list(running):
            token = picked[i].item()
            if token in (END_OF_TURN, END_OF_TEXT):
                running.discard(i)
            else:
                answers[i].append(token)
        if not running:
            break
        tokens = picked[:, None]
    return answers
