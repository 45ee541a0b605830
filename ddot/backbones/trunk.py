"""What every trunk offers the denoiser, and the attention they share."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@runtime_checkable
class Trunk(Protocol):
    """A transformer seen from outside."""

    width: int

    def embed(self, x: Int[Tensor, "B L"]) -> Float[Tensor, "B L d"]: ...

    def hidden(
        self, h: Float[Tensor, "B L d"], positions: Float[Tensor, "B L"], sigma: Float[Tensor, "B"]
    ) -> Float[Tensor, "B L d"]:
        """The last hidden vectors, ready for a linear head. `positions` are in rotary units, σ is the total noise."""
        ...

    def logits(self, hidden: Float[Tensor, "M d"]) -> Float[Tensor, "M V"]: ...


def rotary(
    positions: Float[Tensor, "B L"], head_width: int, base: float
) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B L D"]]:
    """(cos, signed sin) of position × frequency for real-valued positions, in float32; the pairs are (i, i + D/2)."""
    half = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions.device) / head_width
    angles = positions.float()[..., None] * base**-half
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def rotate(
    heads: Float[Tensor, "B L H D"], cos: Float[Tensor, "B L D"], sin: Float[Tensor, "B L D"]
) -> Float[Tensor, "B L H D"]:
    """Rotate the pairs (i, i + D/2) of each head by the slot's angles."""
    cos, sin = cos[:, :, None].to(heads.dtype), sin[:, :, None].to(heads.dtype)
    return heads * cos + heads.roll(heads.shape[-1] // 2, -1) * sin


def attend(
    q: Float[Tensor, "B L H D"], k: Float[Tensor, "B L K D"], v: Float[Tensor, "B L K D"], causal: bool = False
) -> Float[Tensor, "B L HD"]:
    """Attention of every slot to every slot (or to earlier ones); H / K query heads share a key head."""
    out = scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal, enable_gqa=q.shape[2] != k.shape[2]
    )
    return out.transpose(1, 2).flatten(2)
