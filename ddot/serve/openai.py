"""POST /v1/completions as in OpenAI's API: the text between prompt and suffix, or after the prompt."""

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ddot.infill.engine import Steps
from ddot.infill.model import Model
from ddot.serve.fim import EMPTY, Middle, Middles, fill_middle
from ddot.serve.replies import DONE, event
from ddot.serve.requests import MAX_N, CompletionRequest, check_work


@dataclass(frozen=True)
class Completions:
    """n middles for each prompt, and how many tokens of prompts and suffix were read."""

    prompts: list[str]
    middles: list[list[Middle]]
    tokens_read: int
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))


def fill(model: Model, body: CompletionRequest) -> Steps[Completions]:
    """The steps that lead to the completions. A bad request raises immediately."""
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    settings, suffix = body.settings, body.suffix or ""
    if not 1 <= len(prompts) * settings.n <= MAX_N:
        raise ValueError(f"{len(prompts)} prompts with n = {settings.n}; from 1 to {MAX_N} answers are allowed in all")
    jobs = [fill_middle(model, prompt, suffix, body.max_tokens, settings, body.stops) for prompt in prompts]
    check_work(settings, len(prompts))
    return _steps(body, prompts, settings.n, jobs)


def _steps(body: CompletionRequest, prompts: list[str], n: int, jobs: list[Steps[Middles]]) -> Steps[Completions]:
    middles, tokens_read = [], 0
    for steps in jobs:
        result = EMPTY if body.max_tokens == 0 else (yield from steps)
        middles.append(result.best(n))
        tokens_read += result.tokens_read
    return Completions(prompts, middles, tokens_read)


def reply(model: Model, body: CompletionRequest, completions: Completions) -> dict[str, Any]:
    choices = [_choice(index, text, reason) for index, text, reason in _texts(body, completions)]
    return {**_head(model, completions), "choices": choices, "usage": _usage(completions)}


def events(model: Model, body: CompletionRequest, completions: Completions) -> Iterable[bytes]:
    """Each choice comes in one piece."""
    head = _head(model, completions)
    for index, text, reason in _texts(body, completions):
        yield event({**head, "choices": [_choice(index, text, None)]})
        yield event({**head, "choices": [_choice(index, "", reason)]})
    if body.stream_options and body.stream_options.include_usage:
        yield event({**head, "choices": [], "usage": _usage(completions)})
    yield DONE


def _texts(body: CompletionRequest, completions: Completions) -> Iterable[tuple[int, str, str]]:
    """(index, text, finish_reason) of all choices, in the order of the prompts."""
    index = 0
    for prompt, middles in zip(completions.prompts, completions.middles, strict=True):
        for middle in middles:
            text = prompt + middle.text if body.echo else middle.text
            yield index, text, "length" if middle.stop_type == "limit" else "stop"
            index += 1


def _head(model: Model, completions: Completions) -> dict[str, Any]:
    return {"id": completions.id, "object": "text_completion", "created": completions.created, "model": model.name}


def _choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def _usage(completions: Completions) -> dict[str, int]:
    read, written = completions.tokens_read, sum(middle.tokens for group in completions.middles for middle in group)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
