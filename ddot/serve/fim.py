"""Fill in the middle: the work behind llama.cpp's /infill and OpenAI's /v1/completions.

Both texts are literal, whatever they look like. A bound in tokens holds because the blank never gets more slots; a
time limit is kept by taking fewer steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddot.infill.answers import Request
from ddot.infill.engine import Steps
from ddot.infill.model import Model
from ddot.infill.settings import Settings
from ddot.infill.template import between
from ddot.infill.view import SLOTS, window


@dataclass(frozen=True)
class Middle:
    """A text, its number of tokens, and why it ends: "eos" by itself, "limit" at its bound, "word" at a stop string."""

    text: str
    tokens: int
    end: str = "eos"
    word: str = ""


@dataclass(frozen=True)
class Middles:
    """The likeliest middles; tokens read, whether that was all of the text, seconds spent reading and writing."""

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
    settings: Settings,
    stop: Sequence[str] = (),
    seconds: float | None = None,
) -> Steps[Middles]:
    """Up to n different middles of at most `most` tokens. Mistakes are raised at once.

    With a limit of `seconds` there are as many steps as fit, judging by the first forward pass, and no score.
    """
    bound = None if most is None or most >= SLOTS else most
    return _steps(model, model.request(between(before, after, bound), settings, seconds=seconds), bound, stop)


def _steps(model: Model, request: Request, bound: int | None, stop: Sequence[str]) -> Steps[Middles]:
    part = window(request.template, [], model.tokenizer)
    done = yield from model.steps(request)
    found = [_cut(Middle(each.infill.fills[0], each.tokens), bound, stop, model) for each in done.best]
    return Middles(found, done.read, part.begins and part.ends, done.reading, done.seconds - done.reading)


def _cut(middle: Middle, bound: int | None, stop: Sequence[str], model: Model) -> Middle:
    """The middle up to the first stop string, within its bound."""
    if bound is not None and middle.tokens >= bound:
        # A network that cannot plan lengths keeps bounds in words only.
        ends = model.tokenizer.ends(middle.text) if middle.tokens > bound else []
        text = middle.text[: ends[bound - 1]] if ends else middle.text
        middle = replace(middle, tokens=bound, end="limit", text=text)
    places = [(middle.text.index(word), word) for word in stop if word and word in middle.text]
    if not places:
        return middle
    place, word = min(places)
    text = middle.text[:place]
    return Middle(text, min(middle.tokens, len(model.tokenizer.encode(text))), "word", word)
