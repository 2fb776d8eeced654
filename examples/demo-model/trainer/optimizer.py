"""Muon for matrices, AdamW for the embedding and the norms.

Muon (Jordan et al. 2024) takes the momentum, then the nearest semi-orthogonal matrix by five steps of a
Newton-Schulz iteration. Here the update is scaled to the size of AdamW's (Liu et al. 2025), so that one
learning rate serves both.
"""

import torch

_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalised(x, dtype=torch.float32, steps=5):
    """Returns about U V^T of x = U S V^T, for x [.., rows, columns], by products in `dtype`."""
    flat = x.shape[-2] > x.shape[-1]
    x = x.mT if flat else x
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(dtype)
    for _ in range(steps):
        a = x @ x.mT
        x = _A * x + (_B * a + _C * a @ a) @ x
    return x.mT if flat else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0, dtype=torch.float32):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))
        self.dtype = dtype

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            # Matrices of one shape go through the iteration together.
            shapes = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes.setdefault(weight.shape, []).append(weight)
            for (rows, columns), weights in shapes.items():
                momenta = []
                for weight in weights:
                    momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                    momentum.lerp_(weight.grad, 1 - group["momentum"])
                    momenta.append(weight.grad.lerp(momentum, group["momentum"]))
                scale = 0.2 * max(rows, columns) ** 0.5
                updates = orthogonalised(torch.stack(momenta), self.dtype)
                for weight, update in zip(weights, updates):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(update, alpha=-group["lr"] * scale)


def optimizers(model, lr, weight_decay, dtype=torch.float32):
    """One optimizer for each kind of weight. AdamW has the thin matrices of adapters, too. `dtype` is that
    of Muon's products, bf16 in the paper."""
    trained = [(n, w) for n, w in model.named_parameters() if w.requires_grad]
    is_matrix = {n: w.dim() == 2 and "embed" not in n and ".lora_" not in n for n, w in trained}
    matrices = [w for n, w in trained if is_matrix[n]]
    others = [w for n, w in trained if not is_matrix[n]]
    made = [Muon(matrices, lr, weight_decay=weight_decay, dtype=dtype)] if matrices else []
    if others:
        made.append(torch.optim.AdamW(others, lr, betas=(0.9, 0.95), weight_decay=0.0))
    return made
