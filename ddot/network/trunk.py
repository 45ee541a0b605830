"""The interface of a trunk, and the attention shared by trunks."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

Hidden = Float[Tensor, "B L d"]
Angles = Float[Tensor, "B L D"]  # a number per slot and head dimension
# (queries, keys, values) → outputs.
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
# Who attends to whom: the attention of each block, by its number.
Reading = Callable[[int], Attention]


@runtime_checkable
class Trunk(Protocol):
    """A transformer as the denoiser sees it."""

    blocks: nn.ModuleList

    def embed(self, x: Int[Tensor, "B L"]) -> Hidden: ...

    def hidden(
        self, h: Hidden, positions: Float[Tensor, "B L"], sigma: Float[Tensor, "B"], reading: Reading | None = None
    ) -> Hidden:
        """The last hidden vectors, ready for a linear head. `positions` are in rotary units, σ is the total noise.

        By default, `reading` follows the configuration: both ways unless it is causal.
        """
        ...

    def logits(self, hidden: Float[Tensor, "M d"]) -> Float[Tensor, "M V"]: ...


def rotary(positions: Float[Tensor, "B L"], head_width: int, base: float) -> tuple[Angles, Angles]:
    """(cos, signed sin) of position × frequency for real-valued positions, in float32; pairs are (i, i + D/2)."""
    half = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions.device) / head_width
    angles = positions.float()[..., None] * base**-half
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def rotate(heads: Float[Tensor, "B L H D"], cos: Angles, sin: Angles) -> Float[Tensor, "B L H D"]:
    """Rotate the pairs (i, i + D/2) of each head by the slot's angles."""
    cos, sin = cos[:, :, None].to(heads.dtype), sin[:, :, None].to(heads.dtype)
    return heads * cos + heads.roll(heads.shape[-1] // 2, -1) * sin


def attend(
    q: Float[Tensor, "B L H D"],
    k: Float[Tensor, "B N K D"],
    v: Float[Tensor, "B N K D"],
    is_causal: bool = False,
    attn_mask: Bool[Tensor, "B 1 L N"] | Float[Tensor, "B 1 L N"] | None = None,
) -> Float[Tensor, "B L HD"]:
    """Attention, by default of every slot to every slot; H / K query heads share a key head."""
    gqa = q.shape[2] != k.shape[2]
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    out = scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal, enable_gqa=gqa)
    return out.transpose(1, 2).flatten(2)


def attend_grouped(
    q: Float[Tensor, "B L H D"],
    k: Float[Tensor, "B N K D"],
    v: Float[Tensor, "B N K D"],
    mask: Float[Tensor, "B 1 G N"],
) -> Float[Tensor, "B L HD"]:
    """Attention with a `grouped_mask`, fast on a GPU: query heads that share a key head become slots of one head."""
    K = k.shape[2]
    out = attend(q.unflatten(2, (K, -1)).transpose(2, 3).flatten(1, 2), k, v, attn_mask=mask)
    return out.unflatten(1, (q.shape[1], -1)).unflatten(3, (K, -1)).transpose(2, 3).flatten(2)


def grouped_mask(seen: Bool[Tensor, "B L N"], q: Tensor, k: Tensor) -> Float[Tensor, "B 1 G N"]:
    """What `attend_grouped` adds to its scores: 0 where a slot attends to another, −∞ elsewhere."""
    mask = torch.zeros(seen.shape, dtype=k.dtype, device=k.device).masked_fill(~seen, -torch.inf)
    return mask.repeat_interleave(q.shape[2] // k.shape[2], 1)[:, None]


def attend_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of every slot to itself and to the slots before it."""
    return attend(q, k, v, is_causal=True)


def both_ways(block: int) -> Attention:
    """A `Reading`: every slot attends to every slot."""
    return attend


def left_to_right(block: int) -> Attention:
    """A `Reading`: every slot attends to itself and to the slots before it."""
    return attend_before


class Cache:
    """A `Reading` from left to right with a key-value cache, in which rows advance at their own pace.

    Every pass adds slots to all rows. `seen`: the slots that a row attends to; the others are padding or discarded.
    Keys and values are stored in tensors with spare capacity.
    """

    _ROOM = 64

    def __init__(self, rows: int, device: torch.device | str = "cpu", masked: bool = False):
        """`masked`: for batches of fixed shape; attends with a mask always, so that rows are independent."""
        self.masked = masked
        self.seen = torch.zeros(rows, 0, dtype=torch.bool, device=device)
        self.past: dict[int, tuple[Tensor, Tensor]] = {}
        self.how: dict[str, Any] = {}  # the mask of a pass, the same for every block

    def grow(self, seen: Bool[Tensor, "B new"]) -> None:
        """Announce the slots of the next pass."""
        self.seen = torch.cat([self.seen, seen], 1)
        new, read = seen.shape[1], self.seen.shape[1]
        self.how = {}
        whole = not self.masked and bool(self.seen.all())
        if whole and new == read:
            self.how = {"is_causal": True}
        elif not whole or new > 1:
            slot = torch.arange(read, device=seen.device)
            # A slot always attends to itself: attention to nothing gives NaN, which would spread.
            visible = self.seen[:, None] | (slot[read - new :, None] == slot)
            self.visible = visible & (slot[read - new :, None] >= slot)
            self.how = {"attn_mask": self.visible[:, None]}

    def keep(self, rows: Int[Tensor, "_"]) -> None:
        """Keep these rows; a row may be repeated."""
        self.seen = self.seen[rows]
        self.past = {block: (k[rows], v[rows]) for block, (k, v) in self.past.items()}

    def __call__(self, block: int) -> Attention:
        return partial(self._attend, block)

    def _attend(
        self, block: int, q: Float[Tensor, "B new H D"], k: Float[Tensor, "B new K D"], v: Float[Tensor, "B new K D"]
    ) -> Float[Tensor, "B new HD"]:
        new, read = q.shape[1], self.seen.shape[1]
        if block not in self.past or self.past[block][0].shape[1] < read:
            self.past[block] = self._roomier(block, k, read), self._roomier(block, v, read, 1)
        keys, values = self.past[block]
        keys[:, read - new : read], values[:, read - new : read] = k, v
        if self.masked:
            if block == 0:
                self.mask = grouped_mask(self.visible, q, k)
            return attend_grouped(q, keys[:, :read], values[:, :read], self.mask)
        return attend(q, keys[:, :read], values[:, :read], **self.how)

    def _roomier(self, block: int, like: Tensor, read: int, which: int = 0) -> Tensor:
        more = like.new_zeros(like.shape[0], self._ROOM * -(-(read + 1) // self._ROOM), *like.shape[2:])
        if block in self.past:
            old = self.past[block][which]
            more[:, : old.shape[1]] = old
        return more
