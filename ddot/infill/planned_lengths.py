"""Planned lengths for models that do not write: `choose_lengths`, from what a planner predicts.

Where blanks are written, as with the embedded model, nothing is planned: a blank ends where the network chooses [sep]
(`passes`), which `draft` allows within its bounds.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from torch import Tensor

from ddot.core import gap_lengths
from ddot.core.positions import grid_terminal
from ddot.core.records import Prompt, to_device
from ddot.core.rng import fold, uniform
from ddot.infill.template import Blank
from ddot.infill.view import SLOTS, View
from ddot.methods.ddot import DDOT
from ddot.methods.planning import Planning
from ddot.network.denoiser import Denoiser

# The lengths of gaps from the distribution over length classes: (gaps, classes), u (gaps,) → lengths.
ChooseLength = Callable[[Float[Tensor, "gaps classes"], Float[Tensor, "gaps"]], Float[Tensor, "gaps"]]

_BREVITY = 10.0  # tokens over which the probability of a length falls by a factor of e (`GridPlanner`)
_SPARE, _WIDTH_MULTIPLE = 18, 4  # slots beyond the prompt and its [mask]s; few widths, so that texts share batches
_GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are spread evenly


class GridPlanner:
    """Predicts gap lengths from the prompt at t = 1, where DDOT starts: tokens on a grid among [mask]s.

    In training all lengths up to 32 words were equally common, but most blanks of users are short.
    """

    def slots(self, prompt: Prompt, usual: int) -> int:
        """L for a prompt; `usual`: the L of the network's training."""
        return default_slots(len(prompt), usual)

    def chances(self, model: Denoiser, prompts: Sequence[Prompt], L: int) -> list[Float[Tensor, "_ classes"]]:
        """For each prompt, the distribution over length classes of the gap after each of its tokens."""
        return length_chances(model, prompts, np.zeros(len(prompts), np.uint64), L)  # a grid draws nothing

    def reweighted(self, chances: Float[Tensor, "n classes"]) -> Float[Tensor, "n classes"]:
        """The distribution, tilted towards short lengths."""
        likely = chances * torch.exp(-gap_lengths.class_lengths() / _BREVITY)
        return likely / likely.sum(-1, keepdim=True)

    def most_tokens(self, words: int) -> int:
        """The most tokens for this many words."""
        return words  # a slot that may not begin a word would have to split one


class TextPlanner:
    """Predicts gap lengths from the prompt read as a text with one [mask] in every open gap (`methods.planning`).

    The number of spare slots tells the network how much is missing: in training, passages fill most of their row. With
    `_SPARE` of them the median is right to within a token on everyday texts, stories, news and reviews (dev sets;
    docs/log.md). The methods are those of `GridPlanner`.
    """

    def slots(self, prompt: Prompt, usual: int) -> int:
        placeholders = 0 if prompt.free else int(prompt.is_open.sum())
        return _WIDTH_MULTIPLE * -(-(len(prompt) + placeholders + _SPARE) // _WIDTH_MULTIPLE)

    def chances(self, model: Denoiser, prompts: Sequence[Prompt], L: int) -> list[Float[Tensor, "_ classes"]]:
        start = to_device(Planning().start([prompt.example for prompt in prompts], L, model.vocabulary), model.device)
        chances = torch.softmax(model.gap_length_logits(start), -1).cpu()
        return [row[given] for row, given in zip(chances, start.is_prompt.cpu(), strict=True)]

    def reweighted(self, chances: Float[Tensor, "n classes"]) -> Float[Tensor, "n classes"]:
        return chances

    def most_tokens(self, words: int) -> int:
        return (
            words + min(words, 1) + words // 6
        )  # some are marks; with more slots, words would go on where they should end


Planner = GridPlanner | TextPlanner
PLANNERS: dict[str, Planner] = {"grid": GridPlanner(), "text": TextPlanner()}


def choose_lengths(
    view: View,
    blanks: Sequence[Blank],
    chances: Float[Tensor, "n classes"],
    key: UInt64[np.ndarray, "1"],
    draw: int = 0,
    planner: Planner = PLANNERS["grid"],
) -> list[int]:
    """The number of tokens of each blank, within its bounds: the expected one, or, for draws 1, 2, …, a drawn one.

    The draws of one key are spread evenly over the distribution of each blank, in a different order for each.
    """
    begin, swap = uniform(fold(key, 0x9A9), 2 * len(chances)).reshape(2, -1)
    u = torch.from_numpy((begin + (draw ^ (8 * swap).astype(np.int64)) * _GOLDEN) % 1)
    choose = drawn_length if draw else mean_length
    if not view.prompt.free:
        chances = conditioned(view, blanks, planner.reweighted(chances), planner)
    whole = rounded(expected_gap_lengths(view.prompt, chances, u, choose))
    shares = np.bincount(view.after, minlength=len(whole))
    lengths = []
    for after in view.after:  # blanks with nothing between them share the length of their gap
        part = -(-int(whole[after]) // int(shares[after]))
        lengths.append(part)
        whole[after] -= part
        shares[after] -= 1
    return within_bounds(view, blanks, lengths, planner)


def conditioned(
    view: View, blanks: Sequence[Blank], chances: Float[Tensor, "n classes"], planner: Planner
) -> Float[Tensor, "n classes"]:
    """The distribution over lengths, conditioned on gaps holding the words their blanks ask for."""
    length, chances = gap_lengths.class_lengths(), chances.clone()
    for after in set(view.after):
        inside = [blank for blank, gap in zip(blanks, view.after, strict=True) if gap == after]
        fits = length >= sum(blank.least for blank in inside)
        if not any(blank.most is None for blank in inside):
            fits &= length <= sum(planner.most_tokens(blank.most or 0) for blank in inside)
        if fits.any():
            fitting = torch.where(fits, chances[after], 0)
            if not fitting.sum() > 0:  # the network rules all of them out: take the nearest
                distance = (length - chances[after] @ length).abs()
                fitting[int(torch.where(fits, distance, torch.inf).argmin())] = 1.0
            chances[after] = fitting / fitting.sum()
    return chances


def within_bounds(
    view: View, blanks: Sequence[Blank], lengths: Sequence[int], planner: Planner = PLANNERS["grid"]
) -> list[int]:
    """Lengths in tokens that can hold the words each blank asks for, within the slots available."""
    least = [blank.least for blank in blanks]
    bounded = []
    for blank, length in zip(blanks, lengths, strict=True):
        most = SLOTS if blank.most is None else planner.most_tokens(blank.most)
        bounded.append(min(max(length, blank.least), most))
    left = max(SLOTS - len(view.prompt), sum(least)) - sum(least)
    extra = np.array(bounded) - np.array(least)
    if extra.sum() > left:
        extra = rounded(extra * (left / extra.sum()))
    return [a + int(b) for a, b in zip(least, extra, strict=True)]


def mean_length(chances: Float[Tensor, "gaps classes"], u: Float[Tensor, "gaps"]) -> Float[Tensor, "gaps"]:
    """The expected length: minimises squared error, and totals are right on average."""
    return chances @ gap_lengths.class_lengths(chances.device)


def drawn_length(chances: Float[Tensor, "gaps classes"], u: Float[Tensor, "gaps"]) -> Float[Tensor, "gaps"]:
    """A length drawn from the model's distribution."""
    below = (chances.cumsum(-1) <= u[:, None]).sum(-1).clamp(max=chances.shape[-1] - 1)
    return gap_lengths.class_lengths(chances.device)[below]


def default_slots(prompt: int, usual: int = 64) -> int:
    """L for a prompt of this many tokens while gap lengths are unknown; `usual`: the L of the network's training.

    At least a quarter of `usual` is left for words; L grows in steps of that quarter.
    """
    quarter = max(1, usual // 4)
    return max(usual, quarter * -(-(prompt + quarter) // quarter))


@torch.no_grad()
def length_chances(
    model: Denoiser, prompts: Sequence[Prompt], keys: UInt64[np.ndarray, "B"], L: int
) -> list[Float[Tensor, "n classes"]]:
    """For each prompt, the distribution over length classes of the gap after each of its tokens, predicted at t = 1."""
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
        length = concentrated(length, (1 - chances[:, 0]).double().numpy())
    return length if at_most is None else length * min(1.0, at_most / max(1e-9, length.sum()))


def concentrated(length: Float[np.ndarray, "n"], chance_open: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Expected lengths, concentrated in the gaps most likely to hold text, with the same total.

    Where it is unknown which gaps are open, each has a little of the expected text. Gaps are opened in order of
    expected length, each with its length if open, until the expected total is used up.
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
