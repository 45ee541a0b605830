"""Devices by name. Separate from `training.distributed`, whose imports take as long as loading a model."""

import torch


def device_of(name: str | None) -> torch.device:
    """The device of that name, cuda if available by default; refused if this machine does not have it."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"there is no device '{name}'; devices are cpu, cuda and mps") from None
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device.type, False):
        raise ValueError(f"there is no {name} here: torch finds no GPU; use cpu")
    return device


def device_name(device: torch.device) -> str:
    """The name of a device in results: the GPU's model, cpu or mps."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
