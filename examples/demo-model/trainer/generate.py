"""Greedy decoding of many prompts at once."""

import torch

from .model import Past
from .tokenizer import END_OF_TEXT, END_OF_TURN


@torch.no_grad()
def greedy(model, prompts, max_new_tokens, device="cpu"):
    """Returns the tokens that follow each prompt (a list of token ids), up to the end of the turn."""
    model.eval()
    longest = max(map(len, prompts))
    pads = torch.tensor([longest - len(p) for p in prompts], device=device)[:, None]
    tokens = torch.tensor([[END_OF_TEXT] * (longest - len(p)) + p for p in prompts], device=device)
    written = [[] for _ in prompts]
    running, past, seen = set(range(len(prompts))), Past(), 0
    for _ in range(max_new_tokens):
        total = seen + tokens.shape[1]
        at = torch.arange(seen, total, device=device)[None, :]
        keys = torch.arange(total, device=device)[None, None, :]
        # A padding token sees itself, so that no row of the mask is empty.
        mask = ((keys >= pads[:, :, None]) & (keys <= at[..., None])) | (keys == at[..., None])
        hidden = model.hidden(tokens, (at - pads).clamp(min=0), mask[:, None], past)
        picked = model.logits(hidden[:, -1]).argmax(-1)
        seen = total
        for i in list(running):
            token = picked[i].item()
            if token in (END_OF_TURN, END_OF_TEXT):
                running.discard(i)
            else:
                written[i].append(token)
        if not running:
            break
        tokens = picked[:, None]
    return written
