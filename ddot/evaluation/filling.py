"""Fill benchmark items with the product, with a method's own sampler, or with a language model.

A filling yields {index of item: text}, batch by batch. The width and the random numbers of an item do not depend on
the rest of its batch.
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
from ddot.evaluation.items import Item, Prompted
from ddot.infill.engine import gap_tokens, prompt_projections
from ddot.infill.model import Model
from ddot.infill.planned_lengths import default_slots, mean_length, plan
from ddot.methods.continuation import continuations
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.methods.method import Method, Trainable
from ddot.methods.outline import Outline
from ddot.network.denoiser import Denoiser

_CHUNK = 64  # texts per call of the product and thread

Lengths = list[Int[np.ndarray, "_"]]
# Chooses the gap lengths that the network is conditioned on, for a batch of items.
ChooseLengths = Callable[[Denoiser, Sequence[Prompted], UInt64[np.ndarray, "B"], int], Lengths]
R = TypeVar("R")


@dataclass(frozen=True)
class Loaded:
    """A model under evaluation. `training` (see `network.places.training_of`) goes into its rows.

    Each thread of the model fills `batch` texts at a time, fewer if texts are longer than usual.
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
class Workload:
    """The items to fill (`at` these indices) and how. `located`: hints say where text is missing."""

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
        """Call `run(indices, L)` for each batch. Items of a batch have the same L: extra slots would change the text.

        Where gap lengths are known, L is rounded up to a `multiple`.
        """
        usual = self.model.denoiser.config.slots

        def width(i: int) -> int:
            prompt, gap_length = prompts[i], prompts[i].example.gap_length
            if gap_length is None:
                return default_slots(len(prompt), max(usual, self.items[i].slots))
            return -(-(len(prompt) + int(gap_length.sum())) // multiple) * multiple

        def run_batch(batch: tuple[list[int], int]) -> dict[int, R]:
            with torch.inference_mode(), self.model.denoiser.half_precision():
                return run(*batch)

        size = max(1, self.model.batch * usual // max([usual, *(item.slots for item in self.items)]))
        groups = [(list(rows), L) for L, rows in groupby(sorted(self.at, key=width), width)]
        batches = [(rows[k : k + size], L) for rows, L in groups for k in range(0, len(rows), size)]
        with ThreadPoolExecutor(self.model.model.threads) as pool:
            yield from pool.map(run_batch, batches)


@dataclass(frozen=True)
class Product:
    """`ddot infill` with its defaults. `told`: each blank asks for its true number of words, as in ___{7}."""

    told: bool = False

    def texts(self, work: Workload) -> Iterator[dict[int, str]]:
        model, items, located = work.model.model, work.items, work.located
        size = max(work.model.batch, _CHUNK * model.threads)
        for chunk in (work.at[first : first + size] for first in range(0, len(work.at), size)):
            texts = {i: items[i].template(self.told) if located else " ".join(items[i].given) or "___" for i in chunk}
            templates = {i: text for i, text in texts.items() if text is not None}
            answers = model.infill([*templates.values()], seed=work.seed, steps=work.steps, free=not located)
            filled = {i: best.text for i, (best, *_) in zip(templates, answers, strict=True)}
            yield {i: filled.get(i, items[i].unfilled) for i in chunk}  # texts without a blank stay as they are


@dataclass(frozen=True)
class Written:
    """The whole text as a method writes it; only the network keeps the prompt intact."""

    method: Method

    def texts(self, work: Workload) -> Iterator[dict[int, str]]:
        model, prompted = work.model, work.prompted

        def write(rows: list[int], L: int) -> dict[int, str]:
            examples = [prompted[i].prompt.example for i in rows]
            *_, last = self.method.sample(model.denoiser, examples, L, work.steps, work.keys[rows])
            texts = self.method.texts(last, model.denoiser.vocabulary)
            return {i: prompted[i].read(text, model.tokenizer) for i, text in zip(rows, texts, strict=True)}

        return work.batches({i: item.prompt for i, item in prompted.items()}, write)


@dataclass(frozen=True)
class Kept:
    """Text in the gaps only; projections keep the words of the prompt and their order.

    The network is conditioned on the gap lengths that `lengths` chooses; without it, pads decide.
    """

    method: DDOT | FixedLength
    lengths: ChooseLengths | None = None

    def texts(self, work: Workload) -> Iterator[dict[int, str]]:
        denoiser, tokenizer, prompted = work.model.denoiser, work.model.tokenizer, work.prompted
        prompts = {i: item.prompt for i, item in prompted.items()}
        if self.lengths is not None:
            choose = self.lengths

            def with_lengths(rows: list[int], L: int) -> dict[int, Prompt]:
                lengths = choose(denoiser, [prompted[i] for i in rows], work.keys[rows], L)
                return {i: prompts[i].with_gap_lengths(length) for i, length in zip(rows, lengths, strict=True)}

            for batch in list(work.batches(prompts, with_lengths)):
                prompts |= batch

        def fill(rows: list[int], L: int) -> dict[int, str]:
            batch, method = [prompts[i] for i in rows], self.method
            if isinstance(method, DDOT):
                method = replace(method, projections=prompt_projections(denoiser, batch, L))
            *_, last = method.sample(denoiser, [prompt.example for prompt in batch], L, work.steps, work.keys[rows])
            gaps = gap_tokens(last, batch, denoiser.vocabulary)
            return {i: prompted[i].filled(tokens, tokenizer) for i, tokens in zip(rows, gaps, strict=True)}

        # Still slots after the text hold [pad]s, so L can be rounded up to put more texts in a batch.
        still = isinstance(self.method, FixedLength)
        return work.batches(prompts, fill, max(1, denoiser.config.slots // 4) if still else 1)


@dataclass(frozen=True)
class Continued:
    """Gaps as a language model continues the text before each, one after the other, told their numbers of tokens."""

    def texts(self, work: Workload) -> Iterator[dict[int, str]]:
        model, prompted = work.model, work.prompted
        size = max(model.batch, _CHUNK)
        by_length = sorted(work.at, key=lambda i: len(prompted[i].prompt))
        for rows in (by_length[first : first + size] for first in range(0, len(by_length), size)):
            filled = {i: [np.zeros(0, np.int64)] * (len(prompted[i].prompt) + 1) for i in rows}
            gaps = {i: np.flatnonzero(prompted[i].gap_lengths).tolist() for i in rows}
            for number in range(max(map(len, gaps.values()))):
                open_here = [i for i in rows if number < len(gaps[i])]  # texts that have another gap
                lengths = [int(prompted[i].gap_lengths[gaps[i][number]]) for i in open_here]
                before = [_before(prompted[i], filled[i], gaps[i][number]) for i in open_here]
                with model.denoiser.half_precision():
                    written = continuations(model.denoiser, before, lengths, never=model.tokenizer.edge)
                for i, tokens in zip(open_here, written, strict=True):
                    filled[i][gaps[i][number] + 1] = tokens
            yield {i: prompted[i].filled(filled[i], model.tokenizer) for i in rows}


def _before(item: Prompted, gaps: Sequence[Int[np.ndarray, "_"]], end: int) -> Int[np.ndarray, "_"]:
    """The tokens up to the prompt's token `end`, with what is in the gaps between them."""
    given = item.prompt.example.tokens
    return np.concatenate([piece for k in range(end + 1) for piece in (gaps[k], given[k : k + 1])])


Filling = Product | Written | Kept | Continued


def learnt_from(filling: Filling, trained: Trainable) -> bool:
    """Whether training with this method teaches a model to fill so. DDOT needs the same coupling and terminals."""
    if isinstance(filling, Product):
        return isinstance(trained, DDOT | FixedLength | Outline)
    if isinstance(filling, Continued):  # a language model as it is
        return False
    method = filling.method
    if not isinstance(method, DDOT) or not isinstance(trained, DDOT):
        return isinstance(trained, type(method))
    return trained.couple is method.couple and starts_of(method.terminal) <= starts_of(trained.terminal)


def guessed_lengths(model: Denoiser, items: Sequence[Prompted], keys: UInt64[np.ndarray, "B"], L: int) -> Lengths:
    """Assume a text of mean length, with its missing tokens spread evenly over the open gaps."""
    lengths = []
    for item in items:
        gap_length, gaps = np.zeros(len(item.prompt), np.int64), np.flatnonzero(item.prompt.is_open[1:])
        share, rest = divmod(max(len(gaps), item.guess - len(item.prompt)), len(gaps) or 1)
        gap_length[gaps] = share + (np.arange(len(gaps)) < rest)
        lengths.append(gap_length)
    return lengths


LENGTHS: dict[str, ChooseLengths] = {
    # Predicted by the network, taken from the reference, guessed.
    "planned": lambda model, items, keys, L: plan(model, [item.prompt for item in items], keys, mean_length, L),
    "true": lambda model, items, keys, L: [item.gap_lengths for item in items],
    "guessed": guessed_lengths,
}
