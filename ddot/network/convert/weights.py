"""What converters share: their result, and reading named weights from a checkpoint."""

from torch import Tensor

from ddot.data.tokenizer import Tokenizer
from ddot.network.denoiser import DenoiserConfig

Converted = tuple[DenoiserConfig, dict[str, Tensor], Tokenizer]  # the dict: weights of the trunk


def take(names: dict[str, Tensor], name: str, *shape: int) -> Tensor:
    """The named weight in float32, removed from `names` to free its memory."""
    if name not in names:
        raise ValueError(f"the checkpoint has no '{name}'; it is incomplete or of another family")
    weight = names.pop(name)
    if shape and tuple(weight.shape) != shape:
        raise ValueError(f"'{name}' has shape {tuple(weight.shape)}, the model needs {shape}")
    return weight.float()
