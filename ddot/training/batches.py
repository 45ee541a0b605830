"""Batches for training: passages from packed corpora, masked, told, coupled. Runs on the CPU, in worker processes.

Batch number `step` is a pure function of (seed, step): the loader's position is one number, and neither the count of
workers nor the count of processes changes what is trained on.
"""

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int
from torch.utils.data import DataLoader, Dataset

from ddot.core.records import Example, Slots
from ddot.core.rng import Weighted, fold, generator, row_keys, spread_times, uniform
from ddot.data.masks import Mask, Telling, by_word
from ddot.data.shards import Corpus, fingerprint
from ddot.data.tokenizer import Tokenizer
from ddot.methods.method import Method


@dataclass(frozen=True)
class Passage:
    """Tokens, and whether the text really begins and ends there."""

    tokens: Int[np.ndarray, "n"]
    begins: bool = True
    ends: bool = True


@runtime_checkable
class Cut(Protocol):
    """Draws a passage of at most `longest` tokens."""

    def __call__(self, corpus: Corpus, longest: int, rng: np.random.Generator) -> Passage: ...


@dataclass(frozen=True)
class WholeSentences:
    """One to `most` sentences in a row. Lengths are as they are in the corpus: too long ones are drawn again."""

    most: int = 1
    tries: int = 20

    def __call__(self, corpus: Corpus, longest: int, rng: np.random.Generator) -> Passage:
        for _ in range(self.tries):
            tokens, ends = corpus.passage(int(rng.integers(len(corpus))), longest)
            fitting = ends[: int(rng.integers(1, self.most + 1))]
            fitting = fitting[fitting <= len(tokens)]
            if len(fitting):
                return Passage(tokens[: fitting[-1]])
        return Passage(tokens, ends=False)


@dataclass(frozen=True)
class Windows:
    """Running text, cut without regard to sentences: between `low` · longest and `longest` tokens."""

    low: float = 0.6

    def __call__(self, corpus: Corpus, longest: int, rng: np.random.Generator) -> Passage:
        size = int(rng.integers(max(1, int(self.low * longest)), longest + 1))
        skip = int(rng.integers(0, longest)) if rng.random() < 0.5 else 0
        tokens, ends = corpus.passage(int(rng.integers(len(corpus))), skip + size)
        if len(tokens) <= skip:
            skip = 0
        stop = min(len(tokens), skip + size)
        return Passage(tokens[skip:stop], begins=skip == 0, ends=bool((ends == stop).any()))


@dataclass(frozen=True)
class EitherCut:
    """The first kind of passage with chance `share`, the second otherwise."""

    share: float
    first: Cut
    second: Cut

    def __call__(self, corpus: Corpus, longest: int, rng: np.random.Generator) -> Passage:
        return (self.first if rng.random() < self.share else self.second)(corpus, longest, rng)


# What is masked as a whole: for each token the number of the unit it belongs to.
Unit = Callable[[Tokenizer, Int[np.ndarray, "n"]], Int[np.ndarray, "n"]]


@dataclass(frozen=True)
class Plan:
    """One way to make a batch. A recipe mixes several."""

    method: Method
    mask: Mask
    cut: Cut = WholeSentences()
    telling: Telling = Telling(located=0.0)  # noqa: RUF009
    lengths: tuple[int, ...] = (64,)  # L, one drawn for each batch
    whole_words: float = 1.0  # share of rows masked by units; the others by tokens
    unit: Unit = Tokenizer.words
    full_noise: float = 0.0  # share of rows at t = 1, where sampling starts
    weight: float = 1.0
    sources: tuple[str, ...] = ()  # corpora by name; none: all that no other plan names. Left out where it has none


class Batches(Dataset[tuple[int, Slots]]):
    """The batches of a run, by number. An item is (which plan, slots); a process sees its own rows only.

    `slots` is the size B · L of the global batch. `edges` puts a token at both ends of a passage that says whether the
    text really begins and ends there.
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
                    f"model's ({tokenizer.vocabulary.base}); pack it again with the model's tokenizer.json"
                )
        for L in {L for plan in plans for L in plan.lengths}:
            if 2 * edges >= L:
                raise ValueError(f"rows of {L} slots hold no text{' between two edges' * edges}; raise L")
            if slots % L or slots // L % world:
                raise ValueError(f"a batch of {slots} slots does not divide into rows of {L} over {world} processes")
        self.plans, self.tokenizer, self.slots, self.seed, self.edges = plans, tokenizer, slots, seed, edges
        self.mine = slice(rank, None, world)
        opened = [(weight, (corpus, corpus.rarity())) for weight, corpus in corpora]
        named = {name for plan in plans for name in plan.sources}
        self.sources: dict[int, Weighted[tuple[Corpus, np.ndarray]]] = {}
        for index, plan in enumerate(plans):
            names = [corpus.folder.name for _, corpus in corpora]
            fits = [name in plan.sources if plan.sources else name not in named for name in names]
            if own := [source for source, ours in zip(opened, fits, strict=True) if ours]:
                self.sources[index] = Weighted(*own)
        if not self.sources:
            raise ValueError(f"no plan draws from {', '.join(corpus.folder.name for _, corpus in corpora)}")
        self.choice = Weighted(*((plans[index].weight, index) for index in self.sources))

    def __getitem__(self, step: int) -> tuple[int, Slots]:
        key = row_keys(self.seed, 1, first=step)
        which, length = uniform(fold(key, 1), 2)[0]
        index = self.choice.pick(float(which))
        plan = self.plans[index]
        L = plan.lengths[int(length * len(plan.lengths))]
        rows = self.slots // L
        keys = row_keys(int(fold(key, 2)[0]), rows)[self.mine]
        t = spread_times(int(fold(key, 3)[0]), rows)[self.mine]
        t = np.where(uniform(fold(keys, 4), 1)[:, 0] < plan.full_noise, np.float32(1), t)
        examples = [self._example(index, L, generator(k)) for k in fold(keys, 5).tolist()]
        return index, plan.method.prepare(examples, L, t, fold(keys, 6), self.tokenizer.vocabulary)

    def _example(self, index: int, L: int, rng: np.random.Generator) -> Example:
        plan, (corpus, rarity) = self.plans[index], self.sources[index].pick(rng.random())
        passage = plan.cut(corpus, L - 2 * self.edges, rng)
        tokens = passage.tokens
        words = plan.unit(self.tokenizer, tokens) if rng.random() < plan.whole_words else np.arange(len(tokens))
        is_prompt = by_word(plan.mask, words, rarity[tokens], rng)
        if self.edges:
            tokens, is_prompt = with_edges(tokens, is_prompt, passage.begins, passage.ends, self.tokenizer)
        hint, gap_length = plan.telling(is_prompt, rng)
        return Example(tokens, is_prompt, hint, gap_length)

    def stream(self, start: int, stop: int, workers: int) -> Iterator[tuple[int, Slots]]:
        """Batches start … stop − 1 in order, made ahead of time by `workers` processes (0: in this one)."""
        ahead = 4 if workers else None
        batches = DataLoader(
            self,
            batch_size=None,
            sampler=range(start, stop),
            num_workers=workers,
            prefetch_factor=ahead,
            worker_init_fn=_leave_interrupts_to_the_main_process,
        )
        return _ahead(iter(batches)) if workers else iter(batches)


_AHEAD = "ddot-batches-ahead"


def _leave_interrupts_to_the_main_process(worker: int) -> None:
    # Ctrl-C reaches all processes of a terminal; a run that saves itself then still waits for its last batch.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ahead(batches: Iterator[tuple[int, Slots]]) -> Iterator[tuple[int, Slots]]:
    """The same, taken over from the workers by a thread: receiving a batch takes milliseconds the device would idle."""
    taken: queue.Queue[tuple[int, Slots] | BaseException | None] = queue.Queue(2)
    closed = threading.Event()

    def take() -> None:
        try:
            for batch in batches:
                taken.put(batch)
                if closed.is_set():
                    return
            taken.put(None)
        except BaseException as error:  # handed to the one who asks for the batch, with what the worker said in it
            taken.put(error.with_traceback(None))

    thread = threading.Thread(target=take, name=_AHEAD, daemon=True)
    thread.start()
    try:
        while (batch := taken.get()) is not None:
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        closed.set()
        while thread.is_alive():  # it may wait for room in the queue
            with suppress(queue.Empty):
                taken.get(timeout=0.05)
        del batches  # ends the workers now; left to an exception's traceback they would linger


def with_edges(
    tokens: Int[np.ndarray, "n"], is_prompt: Bool[np.ndarray, "n"], begins: bool, ends: bool, tokenizer: Tokenizer
) -> tuple[Int[np.ndarray, "m"], Bool[np.ndarray, "m"]]:
    """The text between two given tokens: the edge token where it really begins or ends, [sep] where it was cut."""
    marks = [tokenizer.edge if real else tokenizer.vocabulary.sep for real in (begins, ends)]
    return np.array([marks[0], *tokens, marks[1]], np.int64), np.array([True, *is_prompt, True], bool)
