"""Fill in the middle: what llama.cpp's /infill and OpenAI's /v1/completions share.

Prefix and suffix are literal: underscores in them are not blanks. A time or token limit makes the fill shorter. If the
prefix ends inside a word, that word is filled again so that it begins with the letters typed (token healing).
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
from ddot.infill.view import SLOTS, excerpt

_CONTEXT = 4_000  # characters on either side of the gap; the network reads fewer
_LAST_WORD = re.compile(r"(?<!\S)[^\W\d_]+\Z")
_MAX_HEALED = 4  # tokens of a word that is filled again: each takes a forward pass
# Complete words that are also prefixes of longer ones: no token healing after them.
_SHORT = "a i am an as at be by do go he if in is it me my no of oh ok on or so to up us we"
_COMPLETE = set(f"{_SHORT} {SMALL_WORDS}".split())


@dataclass(frozen=True)
class Middle:
    """A text, its number of tokens, and why it ends: "eos" by itself, "limit" of tokens, "word" at a stop string."""

    text: str
    tokens: int
    stop_type: str = "eos"
    stop_word: str = ""


@dataclass(frozen=True)
class Middles:
    """The most likely middles, best first; `is_truncated` if the network did not read all of the text."""

    middles: list[Middle]
    tokens_read: int
    is_truncated: bool
    reading_seconds: float
    writing_seconds: float

    def best(self, n: int) -> list[Middle]:
        """n of them, as clients expect: if fewer are different, the best are repeated."""
        return [self.middles[number % len(self.middles)] for number in range(n)]


EMPTY = Middles([Middle("", 0, "limit")], 0, False, 0.0, 0.0)


def fill_middle(
    model: Model,
    prefix: str,
    suffix: str,
    max_tokens: int | None,
    settings: Settings,
    stops: Sequence[str] = (),
    seconds: float | None = None,
) -> Steps[Middles]:
    """Up to n different middles, each cut at the first stop string. A bad request raises immediately.

    With a limit of `seconds` there are as many words as fit, judging by the first forward pass, and no score.
    """
    template = between(prefix[-_CONTEXT:], suffix[:_CONTEXT])
    is_cut = len(prefix) > _CONTEXT or len(suffix) > _CONTEXT
    limit = None if max_tokens is None or max_tokens >= SLOTS else max_tokens
    request = replace(model.request(template, settings, seconds=seconds), max_tokens=limit)
    return _steps(model, request, is_cut, stops)


def _steps(model: Model, request: Request, is_cut: bool, stops: Sequence[str]) -> Steps[Middles]:
    part = excerpt(request.template, [], model.tokenizer, slots=window_slots(request))
    letters = unfinished_word(model, *request.template.literals)
    answers = None
    if letters:
        start = time.perf_counter()
        answers = yield from _heal(model, request, letters)
        spent = time.perf_counter() - start
        request = replace(request, seconds=None if request.seconds is None else max(0.0, request.seconds - spent))
    if answers is None:
        letters, answers = "", (yield from model.steps(request))
    middles = []
    for answer in answers.best:
        text = answer.infill.fills[0][len(letters) :]
        middle = Middle(text, len(model.tokenizer.encode(text)) if letters else answer.tokens)
        middles.append(_cut(middle, request.max_tokens, stops, model))
    middles = middles or [Middle("", 0)]  # if every fill would hold an avoided word
    is_truncated = is_cut or not (part.begins and part.ends)
    return Middles(
        middles, answers.prompt_tokens, is_truncated, answers.prefill_seconds, answers.seconds - answers.prefill_seconds
    )


def unfinished_word(model: Model, prefix: str, suffix: str) -> str:
    """The word that the prefix may end inside of; none if the model does not write from left to right."""
    engine, match = model.engine, _LAST_WORD.search(prefix)
    if match is None or suffix[:1].isalnum() or not engine.writes_left_to_right:
        return ""
    letters = match[0]
    tokens = model.tokenizer.encode(" " + letters)
    known = all(engine.alphabet.pieces[token] in engine.alphabet.token_of for token in tokens)
    if letters.lower() in _COMPLETE or len(tokens) > _MAX_HEALED or not known:
        return ""
    pieces = [engine.alphabet.pieces[token] for token in engine.alphabet.beginning_with(" " + letters)]
    can_continue = any(piece[len(letters) + 1 :][:1].isalpha() for piece in pieces)
    return letters if len(tokens) > 1 or can_continue else ""


def _heal(model: Model, request: Request, letters: str) -> Steps[Answers | None]:
    """The answers with the last word of the prefix filled again; None if it cannot be spelt."""
    prefix, suffix = request.template.literals
    limit = None if request.max_tokens is None else request.max_tokens + len(model.tokenizer.encode(" " + letters))
    template = between(prefix.removesuffix(letters), suffix)
    answers = yield from model.steps(
        replace(request, template=template, whole=template, fill_prefix=letters, max_tokens=limit)
    )
    return answers if all(answer.infill.fills[0].startswith(letters) for answer in answers.best) else None


def _cut(middle: Middle, limit: int | None, stops: Sequence[str], model: Model) -> Middle:
    """The middle up to the first stop string, within the limit of tokens."""
    if limit is not None and middle.tokens >= limit:
        # A network that cannot plan lengths may exceed the limit.
        ends = model.tokenizer.ends(middle.text) if middle.tokens > limit else []
        text = middle.text[: ends[limit - 1]] if ends else middle.text
        middle = replace(middle, tokens=limit, stop_type="limit", text=text)
    matches = [(middle.text.index(word), word) for word in stops if word and word in middle.text]
    if not matches:
        return middle
    start, word = min(matches)
    text = middle.text[:start]
    return Middle(text, min(middle.tokens, len(model.tokenizer.encode(text))), "word", word)
