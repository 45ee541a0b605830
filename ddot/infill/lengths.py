"""How many tokens each gap gets: the chances the network gives to lengths, and whole numbers chosen from them."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from torch import Tensor

from ddot.core import gap_lengths
from ddot.core.positions import grid_terminal
from ddot.core.records import Prompt, to_device
from ddot.core.rng import fold, uniform
from ddot.methods.ddot import DDOT
from ddot.network.denoiser import Denoiser

# Decides the length of gaps from the chances of each length class: (gaps, classes), u (gaps,) → lengths.
ChooseLength = Callable[[Float[Tensor, "gaps classes"], Float[Tensor, "gaps"]], Float[Tensor, "gaps"]]


def mean_length(chances: Float[Tensor, "gaps classes"], u: Float[Tensor, "gaps"]) -> Float[Tensor, "gaps"]:
    """The expected length: least squared error, and totals that are right on average."""
    return chances @ gap_lengths.class_lengths(chances.device)


def drawn_length(chances: Float[Tensor, "gaps classes"], u: Float[Tensor, "gaps"]) -> Float[Tensor, "gaps"]:
    """A length drawn as the model says."""
    below = (chances.cumsum(-1) <= u[:, None]).sum(-1).clamp(max=chances.shape[-1] - 1)
    return gap_lengths.class_lengths(chances.device)[below]


def roomy(prompt: int, usual: int = 64) -> int:
    """How many slots to look at a prompt of so many tokens with, while lengths are unknown; `usual` is the network's.

    At least a quarter of the usual number is left for words, in steps of that quarter.
    """
    quarter = max(1, usual // 4)
    return max(usual, quarter * -(-(prompt + quarter) // quarter))


@torch.no_grad()
def length_chances(
    model: Denoiser, prompts: Sequence[Prompt], keys: UInt64[np.ndarray, "B"], L: int
) -> list[Float[Tensor, "n classes"]]:
    """For each prompt, the chances of each length class of the gap after each of its tokens, seen at t = 1."""
    method = DDOT(terminal=grid_terminal)
    start = method.start([prompt.example for prompt in prompts], L, keys, model.vocabulary)
    chances = torch.softmax(model.gap_length_logits(to_device(start, model.device)), -1).cpu()
    return [row[: len(prompt)] for row, prompt in zip(chances, prompts, strict=True)]  # prompts fill the first slots


def plan(
    model: Denoiser, prompts: Sequence[Prompt], keys: UInt64[np.ndarray, "B"], choose: ChooseLength, L: int
) -> list[Int[np.ndarray, "n"]]:
    """A length for every gap, 0 for closed ones, within L slots in all."""
    draws = torch.from_numpy(uniform(fold(keys, 0x9A9), L))
    planned = []
    for prompt, chances, u in zip(prompts, length_chances(model, prompts, keys, L), draws, strict=True):
        planned.append(rounded(expected_gap_lengths(prompt, chances, u[: len(prompt)], choose, L - len(prompt))))
    return planned


def expected_gap_lengths(
    prompt: Prompt,
    chances: Float[Tensor, "n classes"],
    u: Float[Tensor, "n"],
    choose: ChooseLength,
    at_most: int | None = None,
) -> Float[np.ndarray, "n"]:
    """The length of the gap after each prompt token, 0 for closed ones, `at_most` in all; not yet whole."""
    length = choose(chances, u).double().numpy() * prompt.is_open[1:]
    if prompt.free:
        length = gathered(length, (1 - chances[:, 0]).double().numpy())
    return length if at_most is None else length * min(1.0, at_most / max(1e-9, length.sum()))


def gathered(length: Float[np.ndarray, "n"], chance_open: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Expected lengths, gathered where text most likely goes; the total stays.

    Where nobody says which gaps are open, each has a little of the expected text. Gaps are opened from the likeliest
    on, each with the length it has when it is open, until the expected total is used up.
    """
    total, when_open = length.sum(), length / np.maximum(chance_open, 1e-6)
    chosen = np.zeros_like(length)
    for gap in np.argsort(-length, kind="stable"):
        if chosen.sum() + when_open[gap] / 2 > total:
            break
        chosen[gap] = when_open[gap]
    if not chosen.any():
        chosen[np.argmax(length)] = 1.0
    return chosen * (total / chosen.sum())


def rounded(length: Float[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Whole lengths with the same total: the largest remainders are rounded up."""
    whole = np.floor(length).astype(np.int64)
    short = round(float(length.sum())) - int(whole.sum())
    whole[np.argsort(whole - length, kind="stable")[:short]] += 1
    return whole
