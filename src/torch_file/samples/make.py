"""Writes the samples of the tests: dictionaries of tensors as torch.save writes them.

Usage: python make.py (with torch)
"""

import pathlib

import torch

HERE = pathlib.Path(__file__).parent

linear = torch.nn.Linear(3, 2)
with torch.no_grad():
    linear.weight.copy_(torch.arange(6).reshape(2, 3))
    linear.bias.copy_(torch.tensor([0.5, -1.5]))
torch.save(linear.state_dict(), HERE / "linear.pt")
torch.save(dict(linear.half().state_dict()) | dict(epoch=3), HERE / "plain.pt", pickle_protocol=4)
torch.save([linear.weight], HERE / "list.pt")
zeros = torch.zeros(256)
torch.save({name: zeros for name in "abcdefgh"}, HERE / "shared.pt")
