"""Several processes of one training: each computes its part of a step's gradient, on a thread of its own.

More threads of one process gain little with matrices this small, and nothing elsewhere.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


class Team:
    """Process `part` of `parts`. All do the same, except for their part of each step."""

    def __init__(self, part=0, parts=1):
        self.part, self.parts = part, parts

    @property
    def leads(self):
        """Returns whether this process writes, and decides everything that depends on the time."""
        return self.part == 0

    @torch.no_grad()
    def sum(self, tensors):
        """Replaces each tensor by its sum over all processes."""
        if self.parts == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(total.view_as(tensor))

    def agreed(self, number):
        """Returns the leader's whole number."""
        if self.parts == 1:
            return number
        told = torch.tensor(number)
        dist.broadcast(told, 0)
        return told.item()


def run(parts, work, *args):
    """Calls `work(team, *args)` in each of `parts` processes."""
    if parts == 1:
        work(Team(), *args)
        return
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        multiprocessing.spawn(_part, (parts, meeting, work, args), parts)


def _part(part, parts, meeting, work, args):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=meeting, rank=part, world_size=parts)
    work(Team(part, parts), *args)
    dist.destroy_process_group()
