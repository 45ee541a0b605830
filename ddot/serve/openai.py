"""POST /v1/completions as OpenAI's: what goes between prompt and suffix, or after the prompt."""

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ddot.infill.engine import Steps
from ddot.infill.model import Model
from ddot.serve.fim import NOTHING, Middle, Middles, middles
from ddot.serve.replies import DONE, event
from ddot.serve.requests import MOST_N, CompletionRequest, check_work


@dataclass(frozen=True)
class Completions:
    """n middles for each prompt, and how many tokens of prompts and suffix were read."""

    prompts: list[str]
    found: list[list[Middle]]
    tokens: int
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))


def filled(model: Model, asked: CompletionRequest) -> Steps[Completions]:
    """The steps to the completions. Mistakes are raised at once."""
    prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    settings, after = asked.settings, asked.suffix or ""
    if not 1 <= len(prompts) * settings.n <= MOST_N:
        raise ValueError(f"{len(prompts)} prompts with n = {settings.n}; from 1 to {MOST_N} answers are allowed in all")
    work = [middles(model, prompt, after, asked.max_tokens, settings, asked.stops) for prompt in prompts]
    check_work(settings, len(prompts))
    return _steps(asked, prompts, settings.n, work)


def _steps(asked: CompletionRequest, prompts: list[str], n: int, work: list[Steps[Middles]]) -> Steps[Completions]:
    found, read = [], 0
    for steps in work:
        done = NOTHING if asked.max_tokens == 0 else (yield from steps)
        # OpenAI's clients expect n choices; where fewer differ, the best are repeated.
        found.append([done.found[number % len(done.found)] for number in range(n)])
        read += done.read
    return Completions(prompts, found, read)


def answer(model: Model, asked: CompletionRequest, done: Completions) -> dict[str, Any]:
    choices = [_choice(index, text, reason) for index, text, reason in _texts(asked, done)]
    return {**_head(model, done), "choices": choices, "usage": _usage(done)}


def events(model: Model, asked: CompletionRequest, done: Completions) -> Iterable[bytes]:
    """Each choice comes as one piece."""
    for index, text, reason in _texts(asked, done):
        yield event({**_head(model, done), "choices": [_choice(index, text, None)]})
        yield event({**_head(model, done), "choices": [_choice(index, "", reason)]})
    if asked.stream_options and asked.stream_options.include_usage:
        yield event({**_head(model, done), "choices": [], "usage": _usage(done)})
    yield DONE


def _texts(asked: CompletionRequest, done: Completions) -> Iterable[tuple[int, str, str]]:
    """(index, text, finish_reason) of all choices, those of the first prompt first."""
    index = 0
    for prompt, some in zip(done.prompts, done.found, strict=True):
        for middle in some:
            text = prompt + middle.text if asked.echo else middle.text
            yield index, text, "length" if middle.end == "limit" else "stop"
            index += 1


def _head(model: Model, done: Completions) -> dict[str, Any]:
    return {"id": done.id, "object": "text_completion", "created": done.created, "model": model.name}


def _choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def _usage(done: Completions) -> dict[str, int]:
    written = sum(middle.tokens for some in done.found for middle in some)
    return {"prompt_tokens": done.tokens, "completion_tokens": written, "total_tokens": done.tokens + written}
