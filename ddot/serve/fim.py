"""What goes between two texts: the work behind llama.cpp's /infill and OpenAI's /v1/completions.

Both texts are literal, whatever they look like. A bound in tokens holds, because the blank never gets more slots; a
bound in time is kept by taking fewer steps.
"""

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddot.infill.engine import Lengths, Looks, Sample, Task
from ddot.infill.model import Infill, Model
from ddot.infill.scheduler import Step
from ddot.infill.template import Template, between
from ddot.infill.view import SLOTS, window
from ddot.serve.progress import Attempts


@dataclass(frozen=True)
class Middle:
    """A text, how many tokens it has, why it ends there: "eos" of itself, "limit" no room, "word" a stop string."""

    text: str
    tokens: int
    end: str = "eos"
    word: str = ""


@dataclass(frozen=True)
class Middles:
    """The likeliest middles, and how the work went: tokens read, whether all text was, seconds to read and to write."""

    found: list[Middle]
    read: int
    whole: bool
    reading: float
    writing: float


def middles(
    model: Model,
    before: str,
    after: str,
    most: int | None,
    stop: Sequence[str] = (),
    n: int = 1,
    seconds: float | None = None,
    **settings: Any,
) -> Generator[Step, None, Middles]:
    """Up to n different middles of at most `most` tokens. Mistakes are told at once.

    `seconds`: with a time limit there are as many steps as fit into it by the time the first look at the text took,
    and one answer, which is not judged.
    """
    bound = None if most is None or most >= SLOTS else most
    template = between(before, after, bound)
    way = model.way(template, n=n, **settings)
    return _steps(model, template, way, bound, stop, seconds)


def _steps(
    model: Model, template: Template, way: Any, bound: int | None, stop: Sequence[str], seconds: float | None
) -> Generator[Step, None, Middles]:
    part = window(template, [], model.tokenizer)
    clock = _Clock(Attempts(model, template), seconds)
    answers: list[Infill] = yield from model.stepwise(way, clock.change)
    found = []
    for each in answers:
        tokens = clock.attempts.of(each.text).tokens
        found.append(_cut(Middle(each.fills[0], tokens), bound, stop, model))
    reading, writing = clock.spent()
    return Middles(found, clock.read, part.begins and part.ends, reading, writing)


def _cut(middle: Middle, bound: int | None, stop: Sequence[str], model: Model) -> Middle:
    """The middle up to the first stop string, within its bound."""
    if bound is not None and middle.tokens >= bound:
        # A network that cannot plan lengths keeps bounds in words only.
        ends = model.tokenizer.ends(middle.text) if middle.tokens > bound else []
        middle = replace(
            middle, tokens=bound, end="limit", text=middle.text[: ends[bound - 1]] if ends else middle.text
        )
    places = [(middle.text.index(word), word) for word in stop if word and word in middle.text]
    if not places:
        return middle
    place, word = min(places)
    text = middle.text[:place]
    return Middle(text, min(middle.tokens, len(model.tokenizer.encode(text))), "word", word)


class _Clock:
    """Times the tasks of a text and, when time is short, changes them."""

    def __init__(self, attempts: Attempts, seconds: float | None):
        self.attempts, self.seconds = attempts, seconds
        self.read = 0
        self.begun = self.looked = time.perf_counter()

    def change(self, task: Task) -> Task:
        now = time.perf_counter()
        if isinstance(task, Lengths):
            if not self.read:
                self.begun = self.looked = now
            self.read = self.read or len(task.view.prompt)
        elif isinstance(task, Sample) and self.looked == self.begun:
            self.read, self.looked = len(task.view.prompt), now
        self.attempts.follow(task)
        return task if self.seconds is None else self._hurried(task, now)

    def _hurried(self, task: Task, now: float) -> Task:
        if isinstance(task, Looks):  # the score of an only answer: nothing to look at takes no time
            return replace(task, found=[np.zeros(0, np.int64) for _ in task.found])
        if isinstance(task, Sample) and self.looked > self.begun:
            a_look = self.looked - self.begun
            steps = int((self.begun + (self.seconds or 0) - now) / max(a_look, 1e-4))
            return replace(task, choice=replace(task.choice, steps=max(1, min(task.choice.steps, steps))))
        return task

    def spent(self) -> tuple[float, float]:
        """Seconds to read the text and to write what goes into it."""
        return self.looked - self.begun, time.perf_counter() - self.looked
