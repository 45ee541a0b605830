"""Networks compiled for a GPU, for training and for large files of texts."""

import torch

from ddot.denoiser import Denoiser


def compile_blocks(model: Denoiser) -> None:
    """Compile block by block: one block's code serves all of them, so it takes seconds, not a minute."""
    torch._dynamo.config.cache_size_limit = 64
    for block in model.trunk.blocks:  # type: ignore[attr-defined]
        block.compile(dynamic=False)
    model.token_loss = torch.compile(model.token_loss, dynamic=True)  # type: ignore[method-assign]
