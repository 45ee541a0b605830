"""What every converter returns, and how it takes named weights out of a checkpoint."""

from torch import Tensor

from ddot.data.tokenizer import Tokenizer
from ddot.network.denoiser import DenoiserConfig

Converted = tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]  # the dict: weights of the trunk


def take(names: dict[str, Tensor], name: str, *shape: int) -> Tensor:
    """The weight of that name in float32, removed from `names` so that its memory can be freed."""
    if name not in names:
        raise ValueError(f"the checkpoint has no '{name}'; it is incomplete or of another family")
    weight = names.pop(name)
    if shape and tuple(weight.shape) != shape:
        raise ValueError(f"'{name}' has shape {tuple(weight.shape)}, the model needs {shape}")
    return weight.float()
