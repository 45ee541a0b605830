"""How the items of a benchmark are filled: by the product, or by a method's own sampler.

A filling yields texts by the index of their item, batch by batch. Neither the width of a batch nor its random numbers
depend on what else is in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

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
from ddot.methods.outline import Outline
from ddot.network.denoiser import Denoiser

_CHUNK = 64  # texts per call of the product, for each of its threads

Lengths = list[Int[np.ndarray, "_"]]
# The gap lengths that the network is conditioned on, for a batch of items.
ChooseLengths = Callable[[Denoiser, Sequence[Prompted], UInt64[np.ndarray, "B"], int], Lengths]
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


@dataclass(frozen=True)
class Asked:
    """The items `at` these indices, to be filled by a model. `located`: hints say where text is missing."""

    model: Loaded
    items: Sequence[Item]
    at: Sequence[int]
    located: bool
    steps: int
    seed: int

    @cached_property
    def keys(self) -> UInt64[np.ndarray, "items"]:
        return row_keys(self.seed, len(self.items))

    @cached_property
    def prompted(self) -> dict[int, Prompted]:
        return {i: self.items[i].prompted(self.model.tokenizer, self.located) for i in self.at}

    def batches(
        self, prompts: Mapping[int, Prompt], run: Callable[[list[int], int], dict[int, R]], multiple: int = 1
    ) -> Iterator[dict[int, R]]:
        """`run` of each batch of indices and its L: of one width, because extra slots would change what is written.

        L is a `multiple` where gap lengths are known.
        """
        usual = self.model.denoiser.config.slots

        def width(i: int) -> int:
            prompt, gap_length = prompts[i], prompts[i].example.gap_length
            if gap_length is None:
                return roomy(len(prompt), max(usual, self.items[i].slots))
            return -(-(len(prompt) + int(gap_length.sum())) // multiple) * multiple

        def work(batch: tuple[list[int], int]) -> dict[int, R]:
            with torch.inference_mode(), self.model.denoiser.half_precision():
                return run(*batch)

        size = max(1, self.model.batch * usual // max([usual, *(item.slots for item in self.items)]))
        groups = [(list(rows), L) for L, rows in groupby(sorted(self.at, key=width), width)]
        parts = [(rows[k : k + size], L) for rows, L in groups for k in range(0, len(rows), size)]
        with ThreadPoolExecutor(self.model.model.threads) as pool:
            yield from pool.map(work, parts)


@dataclass(frozen=True)
class Product:
    """What `ddot infill` does by default. `told`: each blank asks for its true number of words, as ___{7} does."""

    told: bool = False

    @property
    def tasks(self) -> tuple[str, ...]:
        return ("located",) if self.told else TASKS

    def texts(self, asked: Asked) -> Iterator[dict[int, str]]:
        model, items, located = asked.model.model, asked.items, asked.located
        size = max(asked.model.batch, _CHUNK * model.threads)
        for chunk in (asked.at[first : first + size] for first in range(0, len(asked.at), size)):
            said = {i: items[i].template(self.told) if located else " ".join(items[i].given) or "___" for i in chunk}
            templates = {i: text for i, text in said.items() if text is not None}
            answers = model.infill([*templates.values()], seed=asked.seed, steps=asked.steps, free=not located)
            filled = {i: found[0].text for i, found in zip(templates, answers, strict=True)}
            yield {i: filled.get(i, items[i].unfilled) for i in chunk}  # without a blank, as it is


@dataclass(frozen=True)
class Written:
    """The whole text as a method writes it: nothing but the network keeps the prompt in it."""

    method: Method

    @property
    def tasks(self) -> tuple[str, ...]:
        """The supported tasks: "located" with hints about gaps, "free" without."""
        return ("free",) if isinstance(self.method, LeftContext) else TASKS

    def texts(self, asked: Asked) -> Iterator[dict[int, str]]:
        model, prompted = asked.model, asked.prompted

        def write(rows: list[int], L: int) -> dict[int, str]:
            examples = [prompted[i].prompt.example for i in rows]
            *_, last = self.method.sample(model.denoiser, examples, L, asked.steps, asked.keys[rows])
            texts = self.method.texts(last, model.denoiser.vocabulary)
            return {i: prompted[i].read(text, model.tokenizer) for i, text in zip(rows, texts, strict=True)}

        return asked.batches({i: each.prompt for i, each in prompted.items()}, write)


@dataclass(frozen=True)
class Kept:
    """Text in the gaps only: the prompt's words and their order are kept by projection.

    `lengths` tells the network the length of each gap beforehand; without it, pads decide.
    """

    method: DDOT | FixedLength
    lengths: ChooseLengths | None = None
    tasks: tuple[str, ...] = TASKS

    def texts(self, asked: Asked) -> Iterator[dict[int, str]]:
        denoiser, tokenizer, prompted = asked.model.denoiser, asked.model.tokenizer, asked.prompted
        prompts = {i: each.prompt for i, each in prompted.items()}
        if self.lengths is not None:
            choose = self.lengths

            def told(rows: list[int], L: int) -> dict[int, Prompt]:
                lengths = choose(denoiser, [prompted[i] for i in rows], asked.keys[rows], L)
                return {i: prompts[i].with_gap_lengths(each) for i, each in zip(rows, lengths, strict=True)}

            for found in list(asked.batches(prompts, told)):
                prompts |= found

        def fill(rows: list[int], L: int) -> dict[int, str]:
            some, method = [prompts[i] for i in rows], self.method
            if isinstance(method, DDOT):
                method = replace(method, projections=kept(denoiser, some, L))
            *_, last = method.sample(denoiser, [p.example for p in some], L, asked.steps, asked.keys[rows])
            gaps = gap_tokens(last, some, denoiser.vocabulary)
            return {i: prompted[i].filled(each, tokenizer) for i, each in zip(rows, gaps, strict=True)}

        # Still slots beyond the text hold [pad]s, so widths may be rounded up and more texts share one.
        still = isinstance(self.method, FixedLength)
        return asked.batches(prompts, fill, max(1, denoiser.config.slots // 4) if still else 1)


Filling = Product | Written | Kept


def learnt_from(filling: Filling, trained: Trainable) -> bool:
    """Whether a model trained by this method has learnt to fill so. DDOT: with the same coupling, from such starts."""
    if isinstance(filling, Product):
        return isinstance(trained, DDOT | FixedLength | Outline)
    mine = filling.method
    if not isinstance(mine, DDOT):
        return isinstance(trained, type(mine))
    return (
        isinstance(trained, DDOT)
        and trained.couple is mine.couple
        and starts_of(mine.terminal) <= starts_of(trained.terminal)
    )


def guessed_lengths(model: Denoiser, items: Sequence[Prompted], keys: UInt64[np.ndarray, "B"], L: int) -> Lengths:
    """The mean length of a text; the missing part is divided evenly among the open gaps."""
    found = []
    for item in items:
        gap_length, places = np.zeros(len(item.prompt), np.int64), np.flatnonzero(item.prompt.is_open[1:])
        share, rest = divmod(max(len(places), item.guess - len(item.prompt)), len(places) or 1)
        gap_length[places] = share + (np.arange(len(places)) < rest)
        found.append(gap_length)
    return found


LENGTHS: dict[str, ChooseLengths] = {
    # Those that the network expects, those of the reference, and a guess.
    "planned": lambda model, items, keys, L: plan(model, [item.prompt for item in items], keys, mean_length, L),
    "true": lambda model, items, keys, L: [item.gap_lengths for item in items],
    "guessed": guessed_lengths,
}
