"""Fill in the middle: the work behind llama.cpp's /infill and OpenAI's /v1/completions.

Both texts are literal, whatever they look like. A time limit or a bound in tokens makes the fill shorter. A text before
the gap that ends inside a word is finished first: its last word is filled anew with the letters it has (token healing).
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddot.infill.alphabet import SMALL_WORDS
from ddot.infill.answers import Answers, window_slots
from ddot.infill.engine import Steps
from ddot.infill.model import Model
from ddot.infill.request import Request
from ddot.infill.settings import Settings
from ddot.infill.template import between
from ddot.infill.view import SLOTS, window

_NEAR = 4_000  # characters on either side of the gap; the network reads fewer
_OPEN_WORD = re.compile(r"(?<!\S)[^\W\d_]+\Z")
_LONGEST = 4  # tokens of a word that is filled again: each takes a forward pass
# Complete words that are also prefixes of longer ones: no token healing after them.
_SHORT = "a i am an as at be by do go he if in is it me my no of oh ok on or so to up us we"
_WHOLE = set(f"{_SHORT} {SMALL_WORDS}".split())


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


NOTHING = Middles([Middle("", 0, "limit")], 0, True, 0.0, 0.0)


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

    With a limit of `seconds` there are as many words as fit, judging by the first forward pass, and no score.
    """
    near = between(before[-_NEAR:], after[:_NEAR])
    whole = len(before) <= _NEAR and len(after) <= _NEAR
    bound = None if most is None or most >= SLOTS else most
    request = replace(model.request(near, settings, seconds=seconds), tokens=bound)
    return _steps(model, request, whole, stop)


def _steps(model: Model, request: Request, whole: bool, stop: Sequence[str]) -> Steps[Middles]:
    part = window(request.template, [], model.tokenizer, slots=window_slots(request))
    letters = open_word(model, *request.template.literals)
    done = None
    if letters:
        start = time.perf_counter()
        done = yield from _healed(model, request, letters)
        spent = time.perf_counter() - start
        request = replace(request, seconds=None if request.seconds is None else max(0.0, request.seconds - spent))
    if done is None:
        letters, done = "", (yield from model.steps(request))
    found = []
    for each in done.best:
        text = each.infill.fills[0][len(letters) :]
        middle = Middle(text, len(model.tokenizer.encode(text)) if letters else each.tokens)
        found.append(_cut(middle, request.tokens, stop, model))
    found = found or [Middle("", 0)]  # where nothing can be said without the words to avoid
    return Middles(
        found,
        done.prompt_tokens,
        whole and part.begins and part.ends,
        done.prefill_seconds,
        done.seconds - done.prefill_seconds,
    )


def open_word(model: Model, before: str, after: str) -> str:
    """The word that the text before the gap may end inside of; none where the model does not write from the left."""
    engine, found = model.engine, _OPEN_WORD.search(before)
    if found is None or after[:1].isalnum() or not engine.writes:
        return ""
    letters = found[0]
    tokens = model.tokenizer.encode(" " + letters)
    known = all(engine.alphabet.pieces[token] in engine.alphabet.token_of for token in tokens)
    if letters.lower() in _WHOLE or len(tokens) > _LONGEST or not known:
        return ""
    pieces = [engine.alphabet.pieces[token] for token in engine.alphabet.beginning_with(" " + letters)]
    longer = any(piece[len(letters) + 1 :][:1].isalpha() for piece in pieces)
    return letters if len(tokens) > 1 or longer else ""


def _healed(model: Model, request: Request, letters: str) -> Steps[Answers | None]:
    """The answers with the last word before the gap filled anew; None if it cannot be spelt."""
    before, after = request.template.literals
    most = None if request.tokens is None else request.tokens + len(model.tokenizer.encode(" " + letters))
    template = between(before.removesuffix(letters), after)
    done = yield from model.steps(replace(request, template=template, whole=template, fill_prefix=letters, tokens=most))
    return done if all(each.infill.fills[0].startswith(letters) for each in done.best) else None


def _cut(middle: Middle, bound: int | None, stop: Sequence[str], model: Model) -> Middle:
    """The middle up to the first stop string, within its bound."""
    if bound is not None and middle.tokens >= bound:
        # A network that cannot plan lengths does not keep a bound in tokens.
        ends = model.tokenizer.ends(middle.text) if middle.tokens > bound else []
        text = middle.text[: ends[bound - 1]] if ends else middle.text
        middle = replace(middle, tokens=bound, end="limit", text=text)
    places = [(middle.text.index(word), word) for word in stop if word and word in middle.text]
    if not places:
        return middle
    place, word = min(places)
    text = middle.text[:place]
    return Middle(text, min(middle.tokens, len(model.tokenizer.encode(text))), "word", word)
