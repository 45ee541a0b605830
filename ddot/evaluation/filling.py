"""How the items of a benchmark are filled: by the product, or by a method's own sampler.

A filling yields texts by the index of their item, batch by batch. Neither the width of a batch nor its random numbers
depend on what else is in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, UInt64

from ddot.core.positions import starts_of
from ddot.core.records import Prompt
from ddot.core.rng import row_keys
from ddot.data.tokenizer import Tokenizer
from ddot.evaluation.items import TASKS, Item, Prompted
from ddot.infill.engine import gap_tokens, kept
from ddot.infill.lengths import mean_length, plan, roomy
from ddot.infill.model import Model
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.methods.left_context import LeftContext
from ddot.methods.method import Method, Trainable
from ddot.network.denoiser import Denoiser

_CHUNK = 64  # texts the product is given at a time, for each of its threads

Lengths = list[Int[np.ndarray, "_"]]
# The tokens of each gap, for a batch of items: how many the network is told to write there.
ChooseLengths = Callable[["Loaded", Sequence[Prompted], UInt64[np.ndarray, "B"], int], Lengths]
R = TypeVar("R")


@dataclass(frozen=True)
class Loaded:
    """A model under evaluation. `training` (see `network.embedded.training_of`) goes into its rows.

    Each of the model's threads fills `batch` texts at a time; fewer where texts are longer than usual.
    """

    model: Model
    name: str
    batch: int = 128
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def denoiser(self) -> Denoiser:
        return self.model.denoiser

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.tokenizer


@runtime_checkable
class Filling(Protocol):
    """A way of filling items."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks it can do: "located" if it can be told where words are missing, "free" if it need not be."""
        ...

    def learnt_from(self, trained: Trainable) -> bool:
        """Whether a model trained by this method has learnt to fill so."""
        ...

    def texts(
        self, model: Loaded, items: Sequence[Item], at: Sequence[int], located: bool, steps: int, seed: int
    ) -> Iterator[dict[int, str]]:
        """The texts of the items `at` these indices."""
        ...


@dataclass(frozen=True)
class Product:
    """What `ddot infill` does by default. `told`: each blank asks for its true number of words, as ___{7} does."""

    told: bool = False

    @property
    def tasks(self) -> tuple[str, ...]:
        return ("located",) if self.told else TASKS

    def learnt_from(self, trained: Trainable) -> bool:
        return isinstance(trained, DDOT | FixedLength)

    def texts(
        self, model: Loaded, items: Sequence[Item], at: Sequence[int], located: bool, steps: int, seed: int
    ) -> Iterator[dict[int, str]]:
        size = max(model.batch, _CHUNK * model.model.threads)
        for chunk in (at[first : first + size] for first in range(0, len(at), size)):
            asked = {i: items[i].template(self.told) if located else " ".join(items[i].given) or "___" for i in chunk}
            blank = [i for i in chunk if asked[i] is not None]
            answers = model.model.infill([str(asked[i]) for i in blank], seed=seed, steps=steps, free=not located)
            filled = {i: found[0].text for i, found in zip(blank, answers, strict=True)}
            yield {i: filled.get(i, items[i].unfilled) for i in chunk}  # without a blank, as it is


@dataclass(frozen=True)
class Written:
    """The whole text as a method writes it: nothing but the network keeps the prompt in it."""

    method: Method

    @property
    def tasks(self) -> tuple[str, ...]:
        return ("free",) if isinstance(self.method, LeftContext) else TASKS

    def learnt_from(self, trained: Trainable) -> bool:
        return _learnt(self.method, trained)

    def texts(
        self, model: Loaded, items: Sequence[Item], at: Sequence[int], located: bool, steps: int, seed: int
    ) -> Iterator[dict[int, str]]:
        asked = _Asked(model, items, at, located, seed)

        def write(rows: list[int], L: int) -> dict[int, str]:
            examples = [asked.prompts[i].example for i in rows]
            *_, last = self.method.sample(model.denoiser, examples, L, steps, asked.keys[rows])
            texts = self.method.texts(last, model.denoiser.vocabulary)
            return {i: asked.items[i].read(text, model.tokenizer) for i, text in zip(rows, texts, strict=True)}

        return asked.batches(write, 1)


@dataclass(frozen=True)
class Kept:
    """Text in the gaps only: the prompt's words and their order are kept by projection.

    `lengths` tells the network the length of each gap beforehand; without it, pads decide.
    """

    method: DDOT | FixedLength
    lengths: ChooseLengths | None = None
    tasks: tuple[str, ...] = TASKS

    def learnt_from(self, trained: Trainable) -> bool:
        return _learnt(self.method, trained)

    def texts(
        self, model: Loaded, items: Sequence[Item], at: Sequence[int], located: bool, steps: int, seed: int
    ) -> Iterator[dict[int, str]]:
        asked = _Asked(model, items, at, located, seed)
        if self.lengths is not None:
            choose = self.lengths

            def told(rows: list[int], L: int) -> dict[int, Prompt]:
                lengths = choose(model, [asked.items[i] for i in rows], asked.keys[rows], L)
                return {i: asked.prompts[i].with_gap_lengths(each) for i, each in zip(rows, lengths, strict=True)}

            for prompts in list(asked.batches(told, 1)):
                asked.prompts |= prompts

        def filled(rows: list[int], L: int) -> dict[int, str]:
            prompts = [asked.prompts[i] for i in rows]
            method, examples = self.method, [prompt.example for prompt in prompts]
            if isinstance(method, DDOT):
                method = replace(method, projections=kept(model.denoiser, prompts, L))
            *_, last = method.sample(model.denoiser, examples, L, steps, asked.keys[rows])
            gaps = gap_tokens(last, prompts, model.denoiser.vocabulary)
            return {i: asked.items[i].filled(each, model.tokenizer) for i, each in zip(rows, gaps, strict=True)}

        # Still slots beyond the text hold [pad]s, so widths may be rounded up and more texts share one.
        still = isinstance(self.method, FixedLength)
        return asked.batches(filled, max(1, model.denoiser.config.slots // 4) if still else 1)


class _Asked:
    """Items as prompts, run in batches of one width: extra slots would change what is written."""

    def __init__(self, model: Loaded, items: Sequence[Item], at: Sequence[int], located: bool, seed: int):
        usual = model.denoiser.config.slots
        self.model, self.at, self.keys = model, at, row_keys(seed, len(items))
        self.items = {i: items[i].prompted(model.tokenizer, located) for i in at}
        self.prompts = {i: prompted.prompt for i, prompted in self.items.items()}
        self.slots = {i: max(usual, items[i].slots) for i in at}
        self.size = max(1, model.batch * usual // max((max(usual, item.slots) for item in items), default=usual))

    def batches(self, run: Callable[[list[int], int], R], multiple: int) -> Iterator[R]:
        """`run` of each batch of indices and its L, a `multiple` where gap lengths are known."""

        def width(i: int) -> int:
            prompt, gap_length = self.prompts[i], self.prompts[i].example.gap_length
            if gap_length is None:
                return roomy(len(prompt), self.slots[i])
            return -(-(len(prompt) + int(gap_length.sum())) // multiple) * multiple

        def work(batch: tuple[list[int], int]) -> R:
            with torch.inference_mode(), self.model.denoiser.quickly():
                return run(*batch)

        groups = [(list(rows), L) for L, rows in groupby(sorted(self.at, key=width), width)]
        parts = [(rows[k : k + self.size], L) for rows, L in groups for k in range(0, len(rows), self.size)]
        with ThreadPoolExecutor(self.model.model.threads) as pool:
            yield from pool.map(work, parts)


def _learnt(mine: Method, trained: Trainable) -> bool:
    """The same method; for DDOT also the same coupling, from starts that were trained."""
    if not isinstance(mine, DDOT):
        return isinstance(trained, type(mine))
    return (
        isinstance(trained, DDOT)
        and trained.couple is mine.couple
        and starts_of(mine.terminal) <= starts_of(trained.terminal)
    )


def planned_lengths(model: Loaded, items: Sequence[Prompted], keys: UInt64[np.ndarray, "B"], L: int) -> Lengths:
    """The lengths that the network expects."""
    return plan(model.denoiser, [item.prompt for item in items], keys, mean_length, L)


def true_lengths(model: Loaded, items: Sequence[Prompted], keys: UInt64[np.ndarray, "B"], L: int) -> Lengths:
    """The lengths of the reference."""
    return [item.gap_lengths for item in items]


def guessed_lengths(model: Loaded, items: Sequence[Prompted], keys: UInt64[np.ndarray, "B"], L: int) -> Lengths:
    """The usual length of a text, what is missing of it shared evenly among the open gaps."""
    return [_guess(item) for item in items]


def _guess(item: Prompted) -> Int[np.ndarray, "n"]:
    gap_length = np.zeros(len(item.prompt), np.int64)
    places = np.flatnonzero(item.prompt.is_open[1:])
    missing = max(len(places), item.guess - len(item.prompt))
    if len(places):
        gap_length[places] = missing // len(places)
        gap_length[places[: missing % len(places)]] += 1
    return gap_length
