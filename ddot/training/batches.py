"""Training batches: passages from packed corpora, masked, hinted and coupled on the CPU, in worker processes.

A batch is a pure function of (seed, step): the loader's state is a single number, and batches do not depend on the
number of workers or processes.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from torch.utils.data import DataLoader, Dataset

from ddot.core.records import Example, Slots
from ddot.core.rng import Weighted, fold, generator, row_keys, spread_times, uniform
from ddot.data.masks import Mask, Telling, Units, by_unit
from ddot.data.shards import Corpus, fingerprint
from ddot.data.tokenizer import Tokenizer
from ddot.methods.method import Trainable


@dataclass(frozen=True)
class Passage:
    """Tokens of a text, whether it begins and ends with them, and the number of tokens up to each sentence end."""

    tokens: Int[np.ndarray, "n"]
    begins: bool = True
    ends: bool = True
    sentences: Int[np.ndarray, "m"] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def ends_sentence(self) -> Bool[np.ndarray, "n"]:
        """Whether each token ends a sentence."""
        ends = np.zeros(len(self.tokens), bool)
        ends[self.sentences - 1] = True
        return ends


# Draws a passage from (corpus, maximum number of tokens, rng).
Cut = Callable[[Corpus, int, np.random.Generator], Passage]


@dataclass(frozen=True)
class WholeSentences:
    """One to `most` consecutive sentences, redrawn if none fits."""

    most: int = 1
    tries: int = 20

    def __call__(self, corpus: Corpus, longest: int, rng: np.random.Generator) -> Passage:
        for _ in range(self.tries):
            tokens, ends = corpus.passage(int(rng.integers(len(corpus))), longest)
            stops = ends[: int(rng.integers(1, self.most + 1))]
            stops = stops[stops <= len(tokens)]
            if len(stops):
                return Passage(tokens[: stops[-1]], sentences=stops)
        return Passage(tokens, ends=False)


@dataclass(frozen=True)
class ManySentences:
    """Consecutive whole sentences with a total of `low` · longest to `longest` tokens.

    Shorter texts are redrawn; after `tries` draws the longest one is used.
    """

    low: float = 0.6
    tries: int = 20

    def __call__(self, corpus: Corpus, longest: int, rng: np.random.Generator) -> Passage:
        best: Passage | None = None
        for _ in range(self.tries):
            tokens, ends = corpus.passage(int(rng.integers(len(corpus))), longest)
            stops = ends[ends >= self.low * longest]
            if len(stops):
                stop = stops[int(rng.integers(len(stops)))]
                return Passage(tokens[:stop], sentences=ends[ends <= stop])
            if len(ends) and (best is None or ends[-1] > len(best.tokens)):
                best = Passage(tokens[: ends[-1]], sentences=ends)
        return best or Passage(tokens, ends=False)


@dataclass(frozen=True)
class Windows:
    """Running text of `low` · longest to `longest` tokens, cut regardless of sentences."""

    low: float = 0.6

    def __call__(self, corpus: Corpus, longest: int, rng: np.random.Generator) -> Passage:
        size = int(rng.integers(max(1, int(self.low * longest)), longest + 1))
        skip = int(rng.integers(0, longest)) if rng.random() < 0.5 else 0
        tokens, ends = corpus.passage(int(rng.integers(len(corpus))), skip + size)
        if len(tokens) <= skip:
            skip = 0
        stop = min(len(tokens), skip + size)
        sentences = ends[(ends > skip) & (ends <= stop)] - skip
        return Passage(tokens[skip:stop], begins=skip == 0, ends=bool((ends == stop).any()), sentences=sentences)


@dataclass(frozen=True)
class EitherCut:
    """The first cut with probability `share`, otherwise the second."""

    share: float
    first: Cut
    second: Cut

    def __call__(self, corpus: Corpus, longest: int, rng: np.random.Generator) -> Passage:
        return (self.first if rng.random() < self.share else self.second)(corpus, longest, rng)


# The index of each token's unit; units are masked as a whole.
Unit = Callable[[Tokenizer, Int[np.ndarray, "n"]], Int[np.ndarray, "n"]]


@dataclass(frozen=True)
class Plan:
    """One way of making batches. A recipe mixes several."""

    method: Trainable
    mask: Mask
    cut: Cut = WholeSentences()
    telling: Telling = Telling(located=0.0)  # noqa: RUF009
    lengths: tuple[int, ...] = (64,)  # L, one drawn per batch
    whole_words: float = 1.0  # share of rows masked by unit, the others by token
    unit: Unit = Tokenizer.words
    full_noise: float = 0.0  # share of rows at t = 1, where sampling starts
    least_noise: float = 1e-3  # t of the other rows is drawn from U(least_noise, 1)
    weight: float = 1.0
    # Names of corpora; empty: all that no other plan names. A plan without a corpus is dropped.
    sources: tuple[str, ...] = ()


class Batches(Dataset[tuple[int, Slots]]):
    """The batches of a run by number: (index of the plan, slots), with this process's rows only.

    `slots`: B · L of the global batch. `edges` adds a token at both ends of a passage that says whether the text begins
    and ends there.
    """

    def __init__(
        self,
        corpora: Sequence[tuple[float, Corpus]],
        plans: Sequence[Plan],
        tokenizer: Tokenizer,
        slots: int,
        seed: int,
        edges: bool = True,
        rank: int = 0,
        world: int = 1,
    ):
        for _, corpus in corpora:
            if corpus.tokenizer != fingerprint(tokenizer):
                raise ValueError(
                    f"{corpus.folder} was packed with another tokenizer ({corpus.meta['vocabulary']} tokens) than the "
                    f"model's ({tokenizer.vocabulary.base}); pack it again"
                )
        for L in {L for plan in plans for L in plan.lengths}:
            if 2 * edges >= L:
                raise ValueError(f"rows of {L} slots have no space for text{' between two edges' * edges}; raise L")
            if slots % L or slots // L % world:
                raise ValueError(f"a batch of {slots} slots does not divide into rows of {L} over {world} processes")
        self.plans, self.tokenizer, self.slots, self.seed, self.edges = plans, tokenizer, slots, seed, edges
        self.own_rows = slice(rank, None, world)
        sources = [(corpus.folder.name, (weight, (corpus, corpus.rarity()))) for weight, corpus in corpora]
        unnamed = {name for name, _ in sources} - {name for plan in plans for name in plan.sources}
        self.sources: dict[int, Weighted[tuple[Corpus, np.ndarray]]] = {}
        for index, plan in enumerate(plans):
            names = plan.sources or unnamed
            if chosen := [source for name, source in sources if name in names]:
                self.sources[index] = Weighted(*chosen)
        if not self.sources:
            raise ValueError(f"no plan draws from {', '.join(name for name, _ in sources)}")
        self.choice = Weighted(*((plans[index].weight, index) for index in self.sources))

    def __getitem__(self, step: int) -> tuple[int, Slots]:
        key = row_keys(self.seed, 1, first=step)
        which, length = uniform(fold(key, 1), 2)[0]
        index = self.choice.pick(float(which))
        plan = self.plans[index]
        L = plan.lengths[int(length * len(plan.lengths))]
        rows = self.slots // L
        keys = row_keys(int(fold(key, 2)[0]), rows)[self.own_rows]
        t = spread_times(int(fold(key, 3)[0]), rows, plan.least_noise)[self.own_rows]
        t = np.where(uniform(fold(keys, 4), 1)[:, 0] < plan.full_noise, np.float32(1), t)
        examples = [self.example(index, L, generator(k)) for k in fold(keys, 5).tolist()]
        slots = plan.method.prepare(examples, L, t, fold(keys, 6), self.tokenizer.vocabulary)
        return index, slots

    def example(self, index: int, L: int, rng: np.random.Generator) -> Example:
        plan, (corpus, rarity) = self.plans[index], self.sources[index].pick(rng.random())
        passage = plan.cut(corpus, L - 2 * self.edges, rng)
        tokens = passage.tokens
        unit = plan.unit(self.tokenizer, tokens) if rng.random() < plan.whole_words else np.arange(len(tokens))
        units = Units(rarity[tokens], self.tokenizer.is_mark[tokens], passage.ends_sentence)
        is_prompt = by_unit(plan.mask, unit, units, rng)
        if self.edges:
            tokens, is_prompt = with_edges(tokens, is_prompt, passage.begins, passage.ends, self.tokenizer)
        hint, gap_length = plan.telling(is_prompt, rng)
        return Example(tokens, is_prompt, hint, gap_length)

    def stream(self, start: int, stop: int, workers: int) -> Iterator[tuple[int, Slots]]:
        """Batches start … stop − 1 in order, prefetched by `workers` processes (0: made in this one)."""
        prefetched, prepare = 4 if workers else None, _ignore_interrupts
        options = {"num_workers": workers, "prefetch_factor": prefetched, "worker_init_fn": prepare}
        batches: Any = DataLoader(self, batch_size=None, sampler=range(start, stop), **options)  # type: ignore[arg-type]
        return _received_in_a_thread(iter(batches)) if workers else iter(batches)


def _ignore_interrupts(worker: int) -> None:
    # Ctrl-C reaches every process of the terminal, but the run still needs its last batch before it saves.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _received_in_a_thread(batches: Iterator[tuple[int, Slots]]) -> Iterator[tuple[int, Slots]]:
    """The same batches: unpickling one takes milliseconds, in which the device would idle."""
    try:
        with ThreadPoolExecutor(1, "ddot-batches-ahead") as thread:
            future = thread.submit(next, batches, None)
            while (batch := future.result()) is not None:
                future = thread.submit(next, batches, None)
                yield batch
    except Exception as error:
        raise error.with_traceback(None) from None  # its frames would keep the workers alive
    finally:
        del batches  # ends the workers


def with_edges(
    tokens: Int[np.ndarray, "n"], is_prompt: Bool[np.ndarray, "n"], begins: bool, ends: bool, tokenizer: Tokenizer
) -> tuple[Int[np.ndarray, "m"], Bool[np.ndarray, "m"]]:
    """The text between two given tokens: the edge token where it begins or ends, [sep] where it is cut."""
    first, last = (tokenizer.edge if complete else tokenizer.vocabulary.sep for complete in (begins, ends))
    return np.array([first, *tokens, last], np.int64), np.array([True, *is_prompt, True], bool)
