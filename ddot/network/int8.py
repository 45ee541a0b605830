"""Weights as 8-bit integers with one scale per row: a quarter of the size, and faster on a CPU.

A matrix w is stored as round(w / scale) in int8, with scale = max|row| / 127. On a CPU, torch's 8-bit kernels multiply
it with activations that are quantised dynamically, also with one scale per row.
"""

from collections.abc import Mapping
from functools import cache

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor, nn

from ddot.network.denoiser import Denoiser
from ddot.network.llama import Table

SCALE = ".scale"  # a quantised matrix NAME has its scales under NAME.scale


def to_int8(rows: Float[Tensor, "n k"]) -> tuple[Int8[Tensor, "n k"], Float[Tensor, "n"]]:
    """(int8 rows, scale of each row)."""
    scale = rows.abs().amax(-1).clamp(min=1e-12) / 127
    return (rows / scale[:, None]).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """A linear layer in int8 with oneDNN's kernels and weights packed for this processor.

    `fine`: also multiply the rounding error of the activations, for twice the work.
    """

    def __init__(
        self,
        weight: Int8[Tensor, "n k"],
        scale: Float[Tensor, "n"],
        bias: Float[Tensor, "n"] | None = None,
        fine: bool = False,
    ):
        super().__init__()
        self.packed = torch.ops.onednn.qlinear_prepack(weight, None)
        self.scale, self.bias, self.fine = scale, bias, fine
        self.zero = torch.zeros(len(scale), dtype=torch.long)
        self.most = most_exact()

    def forward(self, x: Float[Tensor, "*n k"]) -> Float[Tensor, "*n m"]:
        flat, half = x.flatten(0, -2), self.most // 2
        step = flat.abs().amax(-1, keepdim=True).clamp_(min=1e-12).div_(half)
        steps = flat / step
        rounded = steps.round()
        residual = (steps - rounded).mul_(2 * half).round_() if self.fine else None
        out = self._product(rounded)
        if residual is not None:
            out += self._product(residual).div_(2 * half)
        out *= step
        if self.bias is not None:
            out += self.bias
        return out.unflatten(0, x.shape[:-1])

    def _product(self, integers: Float[Tensor, "n k"]) -> Float[Tensor, "n m"]:
        """The product with integers of magnitude at most `most` / 2, which are overwritten."""
        zero = self.most // 2 + 1  # the processor's instruction takes unsigned activations
        return _qlinear(integers.add_(zero).to(torch.uint8), zero, self.packed, self.scale, self.zero)


def _qlinear(x: Tensor, x_zero: int, packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    options: tuple[object, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
    return torch.ops.onednn.qlinear_pointwise.default(x, 1.0, x_zero, packed, scale, zero, *options)


@cache
def most_exact() -> int:
    """The largest activation whose products this processor sums exactly.

    Processors without VNNI add two 8-bit products in 16 bits and saturate silently; 7-bit activations always fit.
    """
    n, k = 16, 64
    packed = torch.ops.onednn.qlinear_prepack(torch.full((n, k), 127, dtype=torch.int8), None)
    for rows in (1, 32):  # a single row may use another kernel
        largest = torch.full((rows, k), 255, dtype=torch.uint8)
        sums = _qlinear(largest, 0, packed, torch.ones(n), torch.zeros(n, dtype=torch.long))
        if not bool((sums == 255 * 127 * k).all()):
            return 127
    return 255


def available() -> bool:
    """Whether this build of torch has the 8-bit kernels."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_pointwise")


class Int8Table(nn.Module):
    """Token embeddings and, with the same rows, logits."""

    def __init__(self, weight: Int8[Tensor, "V d"], scale: Float[Tensor, "V"]):
        super().__init__()
        self.weight, self.scale = weight, scale
        self.linear = Int8Linear(weight, scale, fine=True)  # worth it: it chooses the words, and runs at few slots

    def forward(self, x: Int[Tensor, "B L"]) -> Float[Tensor, "B L d"]:
        return self.weight[x].float() * self.scale[x][..., None]

    def logits(self, hidden: Float[Tensor, "M d"]) -> Float[Tensor, "M V"]:
        return self.linear(hidden)


def compress(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights for storage: the trunk's matrices in int8, everything else in float16."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.dim() == 2 and name.startswith("trunk."):
            stored[name], scale = to_int8(weight.float())
            stored[name + SCALE] = scale.float()
        else:
            stored[name] = weight.half()
    return stored


def decompress(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Float32 weights from stored ones, compressed or not."""
    return {
        name: weight.float() * stored[name + SCALE][:, None] if name + SCALE in stored else weight.float()
        for name, weight in stored.items()
        if not name.endswith(SCALE)
    }


def run_in_int8(model: Denoiser, stored: Mapping[str, Tensor]) -> None:
    """Load stored weights into a network (possibly on `meta`), with its matrices in int8."""
    stored = stored if any(name.endswith(SCALE) for name in stored) else compress(stored)
    in_float = [name for name in stored if not name.endswith(SCALE) and name + SCALE not in stored]
    floats = decompress({name: stored[name] for name in in_float})
    for path, module in list(model.named_modules()):
        name = f"{path}.weight"
        if name + SCALE in stored and isinstance(module, nn.Linear):
            bias = floats.pop(f"{path}.bias", None)
            _replace(model, path, Int8Linear(stored[name], stored[name + SCALE], bias))
        elif name + SCALE in stored and isinstance(module, Table):
            _replace(model, path, Int8Table(stored[name], stored[name + SCALE]))
    for name in [name for name, _ in model.named_parameters() if name + SCALE in stored]:  # a bare matrix
        floats[name] = stored[name].float() * stored[name + SCALE][:, None]
    model.load_state_dict({**model.state_dict(), **floats}, assign=True)


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
