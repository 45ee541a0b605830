"""Muon, the learning-rate schedule, the moving average of weights, and the assignment of weights to optimizers."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ddot.network.denoiser import Denoiser
from ddot.training.config import Training
from ddot.training.distributed import gathered, sharded_like


def orthogonalise(matrices: Float[Tensor, "k m n"]) -> Float[Tensor, "k m n"]:
    """The matrices with singular values pushed towards 1 (five quintic Newton–Schulz steps, in bf16 on a GPU)."""
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    flat = x.shape[1] > x.shape[2]
    if flat:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x.mT if flat else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum: every direction of a weight matrix moves by the same amount.

    The update is scaled to the RMS of AdamW's (0.2 · √max(m, n)), so learning rates carry over. Matrices of one shape
    are orthogonalised together, in a few kernels; sharded weights are gathered for it.
    `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")` gives the same updates (cosine 0.99997, norms within 0.1%), but
    one matrix at a time, and in bf16 on a CPU too.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[Any, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape, parameter.device].append(parameter)
            for parameters in by_shape.values():
                self._step_together(parameters, group["lr"], group["momentum"], group["weight_decay"])

    def _step_together(self, parameters: list[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        buffers = [self.state[parameter]["momentum"] for parameter in parameters]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)  # Nesterov
        updates = orthogonalise(torch.stack([gathered(update) for update in ahead]))
        scale = 0.2 * max(parameters[0].shape) ** 0.5
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.mul_(1 - lr * weight_decay)
            parameter.add_(sharded_like(parameter, update), alpha=-lr * scale)


def warm_hold_decay(step: int, progress: float, warmup: int, decay: float) -> float:
    """Factor of the learning rate: rises over `warmup` steps, is 1, and falls to 0 over the last `decay` of the run."""
    rise = min(1.0, (step + 1) / max(1, warmup))
    fall = min(1.0, max(0.0, 1 - progress) / decay) if decay > 0 else 1.0
    return min(rise, fall)


class Average:
    """Exponential moving average of weights: decay min(rate, (1 + n)/(10 + n)) after n updates, as in SEDD."""

    def __init__(self, weights: dict[str, Tensor], rate: float):
        self.rate = rate
        self.weights = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def update(self, weights: dict[str, Tensor], n: int) -> None:
        share = 1 - min(self.rate, (1 + n) / (10 + n))
        torch._foreach_lerp_(list(self.weights.values()), [weights[name].detach() for name in self.weights], share)


def make_optimisers(model: Denoiser, settings: Training) -> list[torch.optim.Optimizer]:
    """AdamW, and Muon for the matrices of the blocks if the run has a rate for them."""
    matrices, trunk, added = list[nn.Parameter](), list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        in_block = name.startswith("trunk.blocks.") and parameter.dim() == 2 and "adaLN" not in name
        group = matrices if in_block and settings.matrix_rate else trunk if name.startswith("trunk.") else added
        group += [parameter] * parameter.requires_grad
    groups = [(trunk, settings.rate), (added, settings.rate if settings.added_rate is None else settings.added_rate)]
    adam_groups = [{"params": group, "full_rate": rate} for group, rate in groups if group]
    optimisers: list[torch.optim.Optimizer] = []
    if adam_groups:
        fused, decay = model.device.type == "cuda", settings.weight_decay
        optimisers.append(torch.optim.AdamW(adam_groups, betas=settings.betas, weight_decay=decay, fused=fused))
    if matrices:
        optimisers.append(Muon(matrices, lr=0.0, weight_decay=settings.weight_decay))
        optimisers[-1].param_groups[0]["full_rate"] = settings.matrix_rate
    return optimisers
