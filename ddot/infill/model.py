"""Infilling for people: templates in, texts out. `ddot.load()` gives a `Model`; `Model.infill` fills blanks.

An answer is made of the template's own characters and the fills, so the literal text survives whatever the network
says; that fills keep their bounds is `word_rules`' work. On a CPU texts are filled one by one, on several threads; on
a GPU many together. An answer is the same alone and among others.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt64
from torch import Tensor

from ddot.core import gap_lengths
from ddot.core.records import State, first_row
from ddot.core.rng import fold, row_keys, uniform
from ddot.data.tokenizer import Tokenizer
from ddot.infill.alphabet import Alphabet
from ddot.infill.engine import ALONE, GPU, Lengths, Looks, Network, Sample, Shape, Task
from ddot.infill.frames import Frame, frame_of
from ddot.infill.lengths import drawn_length, expected_gap_lengths, mean_length, rounded
from ddot.infill.scheduler import R, Step, Way, in_order, numbered, on_threads, one_thread, stepwise, together
from ddot.infill.scoring import Tokens, gap_chances
from ddot.infill.settings import STEPS, Choice
from ddot.infill.spacing import set_fills
from ddot.infill.template import Blank, Template, lock, parse
from ddot.infill.template import free as words_in_order
from ddot.infill.view import SLOTS, TOKENS_A_WORD, View, view, window
from ddot.network.denoiser import Denoiser, compile_blocks
from ddot.network.devices import device_of
from ddot.network.embedded import find, is_compressed
from ddot.network.folder import load_model
from ddot.network.int8 import available

_WARMER = (0.0, 0.5, 0.8, 1.1)  # temperatures tried in turn while alternatives are wanting
EMBEDDED_NAME = "ddot"  # of the model that ships
_AT_ONCE = 2048  # texts at work on a GPU: batches are full when many wait, and an interruption finishes them


# Tokens. In training every length up to 32 words was as common; the blanks people leave are mostly short.
_BREVITY = 10.0
_GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, are spread as evenly as any


@dataclass(frozen=True)
class Infill:
    """A filled text, and how likely the model finds what it filled in.

    `score` is the mean log-chance in nats of the fills' tokens (each seen with every second one hidden) and lengths:
    0 is certain, and fills of different lengths compare.
    """

    text: str
    fills: list[str]
    score: float


@dataclass(frozen=True)
class Filled:
    """The text of each blank as its tokens spell it, and the log-chances of tokens and lengths, in nats."""

    raw: list[str]
    log_chances: list[float]


def _brief(chances: Float[Tensor, "gaps classes"]) -> Float[Tensor, "gaps classes"]:
    """The chances of length classes, tilted towards short ones."""
    likely = chances * torch.exp(-gap_lengths.class_lengths() / _BREVITY)
    return likely / likely.sum(-1, keepdim=True)


class Filler:
    """A network and its tokenizer, filling windows: how long, with which tokens, how good.

    The way of one window, written as if it were alone: what it asks of the network it yields as a task, and is sent the
    answer. Whoever drives it may run the tasks of many windows together (see `scheduler`). Numbers come from the
    window's own key: its answer does not depend on what else is being filled.
    """

    def __init__(self, model: Denoiser, tokenizer: Tokenizer, shape: Shape = ALONE):
        self.model, self.tokenizer, self.alphabet = model, tokenizer, Alphabet(tokenizer)
        self.network = Network(model, self.alphabet, shape)

    def fill(
        self, view: View, blanks: Sequence[Blank], key: UInt64[np.ndarray, "1"], choice: Choice, draw: int = 0
    ) -> Generator[Task, Any, Filled]:
        """The blanks filled with the expected lengths, or, numbered from 1, with lengths drawn as the model says."""
        chances = (yield Lengths(view)) if self._tells_lengths else None
        lengths = self.lengths(view, blanks, chances, key, draw)
        sample = Sample(view, blanks, lengths, fold(key, draw) if draw else key, choice)
        found = yield sample
        again = self._within_bounds(sample, found)
        if again is not None:
            found = yield again
        log_chances = yield Looks(view, blanks, found)
        if chances is not None:
            log_chances += gap_chances(view, chances, found)
        return Filled([self.alphabet.spell(tokens) for tokens in found], log_chances)

    def states(
        self, view: View, blanks: Sequence[Blank], key: UInt64[np.ndarray, "1"], choice: Choice
    ) -> Iterator[State]:
        """The states that `fill` goes through; bounds hold in the last one."""
        planned = self.lengths(view, blanks, self.length_chances(view), key)
        sample = Sample(view, blanks, planned, key, choice)
        states: Iterator[State] = map(first_row, self.network.states([sample]))
        if planned is None:
            seen = list(states)
            again = self._within_bounds(sample, self.network.found([sample], seen[-1])[0])
            states = iter(seen) if again is None else map(first_row, self.network.states([again]))
        return states

    def _within_bounds(self, sample: Sample, found: Sequence[Tokens]) -> Sample | None:
        """The window with planned lengths, if slots that were free to go anywhere have not kept the blanks' bounds."""
        if sample.lengths is not None:
            return None
        if all(blank.holds(self.alphabet.spell(tokens)) for blank, tokens in zip(sample.blanks, found, strict=True)):
            return None
        return replace(sample, lengths=self.bounded(sample.view, sample.blanks, [len(tokens) for tokens in found]))

    @property
    def _tells_lengths(self) -> bool:
        return self.model.room_head is not None

    def length_chances(self, view: View) -> Float[Tensor, "n classes"] | None:
        """The chances of each length class of the gap after each prompt token; None if the network cannot tell."""
        return self.network.run([Lengths(view)])[0] if self._tells_lengths else None

    def lengths(
        self,
        view: View,
        blanks: Sequence[Blank],
        chances: Float[Tensor, "n classes"] | None,
        key: UInt64[np.ndarray, "1"],
        draw: int = 0,
    ) -> list[int] | None:
        """How many tokens each blank gets, within its bounds; None if the network cannot tell.

        The draws of one key are spread evenly over the chances of each blank, so that few of them agree; in which
        order, every blank has for itself.
        """
        if chances is None:
            return None
        begin, swap = uniform(fold(key, 0x9A9), 2 * len(chances)).reshape(2, -1)
        u = torch.from_numpy((begin + (draw ^ (8 * swap).astype(np.int64)) * _GOLDEN) % 1)
        choose = drawn_length if draw else mean_length
        if not view.prompt.free:
            chances = _brief(chances)
        whole = rounded(expected_gap_lengths(view.prompt, chances, u, choose))
        shares = np.bincount(view.after, minlength=len(whole))
        found = []
        for after in view.after:  # blanks with nothing between them share what their gap gets
            part = -(-int(whole[after]) // int(shares[after]))
            found.append(part)
            whole[after] -= part
            shares[after] -= 1
        return self.bounded(view, blanks, found)

    def bounded(self, view: View, blanks: Sequence[Blank], lengths: Sequence[int]) -> list[int]:
        """Lengths in tokens that can hold the words each blank asks for, within the slots there are."""
        least = [blank.least for blank in blanks]
        wanted = []
        for blank, length in zip(blanks, lengths, strict=True):
            # No more tokens than words: a slot that may not begin a word would be forced to be half of one.
            most = SLOTS if blank.most is None else blank.most
            wanted.append(min(max(length, round(TOKENS_A_WORD * blank.least)), most))
        left = max(SLOTS - len(view.prompt), sum(least)) - sum(least)
        beyond = np.array(wanted) - np.array(least)
        if beyond.sum() > left:
            beyond = rounded(beyond * (left / beyond.sum()))
        return [a + int(b) for a, b in zip(least, beyond, strict=True)]

    @property
    def device(self) -> torch.device:
        return self.model.device


class Model:
    """A network with its tokenizer, ready to fill blanks. Made by `ddot.load`.

    `shape` is that of the network's batches; without it the one that suits the device.
    """

    def __init__(
        self, denoiser: Denoiser, tokenizer: Tokenizer, name: str = "", threads: int = 1, shape: Shape | None = None
    ):
        self.denoiser, self.tokenizer, self.name, self.threads = denoiser, tokenizer, name, threads
        self.filler = Filler(denoiser, tokenizer, shape or (GPU if denoiser.device.type == "cuda" else ALONE))

    def infill(
        self,
        text: str | list[str],
        n: int = 1,
        seed: int = 0,
        steps: int = STEPS,
        temperature: float = 0.0,
        top_p: float = 1.0,
        free: bool = False,
        terminal: str | None = None,
        fills: Sequence[str | None] | None = None,
    ) -> list[Any]:
        """Up to n different `Infill`s of a text, best first; for a list of texts, such a list for each.

        `fills` locks blanks of a single text: a string stays, None is filled anew.
        """
        if not isinstance(text, str) and not (isinstance(text, list) and all(isinstance(t, str) for t in text)):
            raise ValueError(f"text is {_short(text)}; wanted a string, or a list of strings")
        if fills is not None and not isinstance(text, str):
            raise ValueError("fills lock the blanks of one text; give one text, not a list")
        settings = (n, seed, steps, temperature, top_p, free, terminal, fills)
        if isinstance(text, str):
            return self._alone(self.way(text, *settings))
        return list(self.answers([self.way(each, *settings) for each in text]))

    def way(
        self,
        text: str | Template,
        n: int = 1,
        seed: int = 0,
        steps: int = STEPS,
        temperature: float = 0.0,
        top_p: float = 1.0,
        free: bool = False,
        terminal: str | None = None,
        fills: Sequence[str | None] | None = None,
    ) -> Generator[Task, Any, list[Infill]]:
        """What `infill` does for one text, for `answers` or `stepwise` to drive. Mistakes are told at once."""
        choice = Choice(steps, temperature, top_p, terminal)
        _check_kinds(n=(n, int), seed=(seed, int))
        if not 1 <= n <= 100:
            raise ValueError(f"n is {n}; it must lie between 1 and 100")
        if isinstance(fills, str):
            raise ValueError(f"fills is the string {_short(fills)}; wanted a list with a string or None for each blank")
        template = self.template(text, free)
        locked = [None] * len(template.blanks) if fills is None else list(fills)
        return self._alternatives(lock(template, locked), locked, n, seed, choice, located=not free)

    def answers(self, ways: Iterable[Way[R]]) -> Iterator[R]:
        """The results of the ways of many texts, in order, with a bounded number of them at work at any time."""
        return in_order(self.finished(numbered(number, way) for number, way in enumerate(ways)))

    def finished(self, ways: Iterable[Way[R]]) -> Iterator[R]:
        """The same, as they are finished."""
        if self.filler.network.shape.rows == 1 and self.threads > 1:
            return on_threads(ways, self._alone, self.threads)
        at_once = 1 if self.filler.network.shape.rows == 1 else _AT_ONCE
        return together(ways, self.filler.network, at_once, self._calmly)

    def stepwise(self, way: Way[R], change: Callable[[Task], Task] = lambda task: task) -> Generator[Step, None, R]:
        """The steps to the result of one way; whoever stops reading stops the work."""
        return stepwise(way, self.filler.network, self._calmly, change)

    def _alone(self, way: Way[R]) -> R:
        return next(together([way], self.filler.network, 1, self._calmly))

    def _calmly(self) -> ExitStack:
        """A context for everything that is computed."""
        with ExitStack() as entered:
            for context in (torch.inference_mode(), one_thread, self.denoiser.quickly()):
                entered.enter_context(context)
            return entered.pop_all()

    def template(self, text: str | Template, free: bool = False) -> Template:
        """How a text is read: literals and blanks."""
        if isinstance(text, Template):
            return text
        return words_in_order(text) if free else parse(text)

    def stream(
        self,
        text: str,
        seed: int = 0,
        steps: int = STEPS,
        temperature: float = 0.0,
        top_p: float = 1.0,
        free: bool = False,
        terminal: str | None = "grid",
    ) -> Iterator[Frame]:
        """The frames of filling a text, from all masked to done. The words move, unless `terminal` is None."""
        choice = Choice(steps, temperature, top_p, terminal)
        _check_kinds(text=(text, str), seed=(seed, int))
        template = self.template(text, free)
        seen = view(template, self.tokenizer, located=not free)
        if len(window(template, [], self.tokenizer, not free).template.blanks) < len(template.blanks):
            raise ValueError(
                "the text has too many blanks, or too much between them, to be watched at once; shorten it"
            )
        if len(seen.prompt) > SLOTS // 2:
            raise ValueError(f"the text has {len(seen.prompt)} tokens; up to {SLOTS // 2} can be watched: shorten it")
        return self._frames(seen, template, seed, choice)

    def lengths(self, text: str, seed: int = 0, rollouts: int = 8, steps: int = 4) -> list[dict[int, float]]:
        """For each blank, the share of each length in words among a few quick fillings with drawn lengths."""
        if rollouts < 1:
            raise ValueError(f"rollouts is {rollouts}; at least 1 is needed")
        template = parse(text)
        counts: list[dict[int, float]] = [{} for _ in template.blanks]
        key, draws = row_keys(seed, 1), range(1, rollouts + 1)
        for filled in self.answers(self._candidate(template, key, Choice(steps=steps), draw, True) for draw in draws):
            for count, each in zip(counts, filled.fills, strict=True):
                words = len(each.split())
                count[words] = count.get(words, 0.0) + 1 / rollouts
        return [dict(sorted(count.items())) for count in counts]

    def _alternatives(
        self, left: Template, locked: Sequence[str | None], n: int, seed: int, choice: Choice, located: bool
    ) -> Generator[Task, Any, list[Infill]]:
        """The answers for the blanks that are left of a template when some are locked, best first.

        The answer that is given alone is always among them; the others are the best of twice as many, and leave no
        blank empty where there are enough that do not.
        """
        found: dict[str, Infill] = {}
        key = row_keys(seed, 1)
        tries = 2 * n if n > 1 and any(blank.most != 0 for blank in left.blanks) else 1
        for attempt in range(len(_WARMER) * tries if tries > 1 else 1):
            # The first has the expected lengths; the others draw theirs, then warm up while too few differ.
            full = sum("" not in each.fills for each in found.values())
            if full == tries or (attempt >= tries and full >= n):
                break
            warm = max(choice.temperature, _WARMER[attempt // tries])
            candidate = yield from self._candidate(left, key, replace(choice, temperature=warm), attempt, located)
            found.setdefault(candidate.text, candidate)
        first, *others = found.values()
        others.sort(key=lambda each: ("" in each.fills, -each.score))
        ranked = sorted([first, *others[: n - 1]], key=lambda each: -each.score)
        return [replace(each, fills=_put_back(locked, each.fills)) for each in ranked]

    def _candidate(
        self, template: Template, key: UInt64[np.ndarray, "1"], choice: Choice, draw: int, located: bool
    ) -> Generator[Task, Any, Infill]:
        """One filling of all blanks, window by window."""
        raw: list[str] = []
        log_chances: list[float] = []
        while len(raw) < len(template.blanks):
            part = window(template, set_fills(template, raw), self.tokenizer, located)
            seen = view(part.template, self.tokenizer, located, part.begins, part.ends)
            filled = yield from self.filler.fill(seen, part.template.blanks, fold(key, len(raw)), choice, draw)
            log_chances += filled.log_chances
            raw += filled.raw
        fills = set_fills(template, raw)
        return Infill(template.text(fills), fills, float(np.mean(log_chances)) if log_chances else 0.0)

    def _frames(self, seen: View, template: Template, seed: int, choice: Choice) -> Iterator[Frame]:
        key = fold(row_keys(seed, 1), 0)  # as `infill` gives to its first window: what is watched is what is got
        states: Iterator[State] | None = None
        while True:
            # Entered anew for each state: whoever reads the frames is not left in inference mode between them.
            with self._calmly():
                states = states or self.filler.states(seen, template.blanks, key, choice)
                state = next(states, None)
            if state is None:
                return
            yield frame_of(state, seen, self.filler.alphabet, self.tokenizer.vocabulary)


def load(
    model: str | Path | None = None,
    device: str | None = None,
    precision: str = "auto",
    threads: int = 1,
    compile: bool = False,
) -> Model:
    """The embedded model, one in a folder, or one on the hub (owner/name), ready to fill blanks.

    `device`: cpu, cuda or mps; without it cuda is taken when there is one. `precision`: int8 or float32; "auto" is
    int8 on a CPU for weights that are stored so. `threads`: texts of a list that are filled at the same time on a CPU;
    a GPU fills many together. `compile`: takes a minute before the first answer, for long lists on a GPU.
    """
    _check_kinds(threads=(threads, int))
    if model is not None and not isinstance(model, str | Path):
        raise ValueError(f"model is {_short(model)}; wanted a folder, owner/name on the hub, or nothing")
    if threads < 1:
        raise ValueError(f"threads is {threads}; at least 1 is needed")
    if precision not in ("auto", "int8", "float32"):
        raise ValueError(f"precision is '{precision}'; there are auto, int8 and float32")
    folder = find(model)
    where = device_of(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    can = where.type == "cpu" and available()
    if precision == "int8" and not can:
        raise ValueError(f"int8 runs on a CPU with oneDNN only, not on {where}; use precision='float32'")
    if compile and where.type != "cuda":
        raise ValueError(f"compiling pays on a GPU only, not on {where}; leave compile out")
    int8 = can and is_compressed(folder) if precision == "auto" else precision == "int8"
    denoiser, tokenizer = load_model(folder, int8=int8)
    if compile:
        compile_blocks(denoiser)
    return Model(denoiser.to(where), tokenizer, EMBEDDED_NAME if model is None else str(model), threads)


def _check_kinds(**given: tuple[object, type]) -> None:
    for name, (value, kind) in given.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            wanted = "a whole number" if kind is int else "a string"
            raise ValueError(f"{name} is {_short(value)}; wanted {wanted}")


def _short(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 40 else said[:37] + "…"


def _put_back(locked: Sequence[str | None], fills: Sequence[str]) -> list[str]:
    """The fills of all blanks: locked ones as they were, the others in order."""
    new = iter(fills)
    return [next(new) if each is None else each for each in locked]
