"""Taking named weights out of a checkpoint, with their shapes checked."""

from torch import Tensor


def take(names: dict[str, Tensor], name: str, *shape: int) -> Tensor:
    """The weight of that name in float32, taken out of `names`: the old one is free as soon as the new one is made."""
    if name not in names:
        raise ValueError(f"the checkpoint lacks '{name}'; it is incomplete, or of another family")
    weight = names.pop(name)
    if shape and tuple(weight.shape) != shape:
        raise ValueError(f"'{name}' has the shape {tuple(weight.shape)}, the model wants {shape}")
    return weight.float()
