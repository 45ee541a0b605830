"""POST /v1/completions as OpenAI's: what goes between prompt and suffix; without a suffix, how the prompt goes on."""

import time
import uuid
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from ddot.infill.model import Model
from ddot.infill.scheduler import Step
from ddot.serve.fim import Middle, middles
from ddot.serve.replies import DONE, event
from ddot.serve.requests import MOST_N, CompletionRequest


@dataclass(frozen=True)
class Completions:
    """n middles for each prompt, and how many tokens the prompts and the suffix have."""

    prompts: list[str]
    found: list[list[Middle]]
    tokens: int
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))


def filled(model: Model, asked: CompletionRequest) -> Generator[Step, None, Completions]:
    """The steps to the completions. Mistakes are told at once."""
    prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    n, after = asked.n or 1, asked.suffix or ""
    if not 1 <= len(prompts) * n <= MOST_N:
        raise ValueError(f"{len(prompts)} prompts with n = {n} are asked for; from 1 to {MOST_N} answers are given")
    stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    ways = [middles(model, prompt, after, asked.max_tokens, stop, n, **asked.settings) for prompt in prompts]
    return _steps(model, asked, prompts, n, ways)


def _steps(
    model: Model, asked: CompletionRequest, prompts: list[str], n: int, ways: list[Any]
) -> Generator[Step, None, Completions]:
    tokens = [len(each) for each in model.tokenizer.encode_batch([*prompts, asked.suffix or ""])]
    found = []
    for way in ways:
        done = [Middle("", 0, "limit")] if asked.max_tokens == 0 else (yield from way).found
        # OpenAI's clients count on n choices; where fewer differ, the best come again.
        found.append([done[number % len(done)] for number in range(n)])
    return Completions(prompts, found, sum(tokens[:-1]) + tokens[-1] * len(prompts))


def answer(model: Model, asked: CompletionRequest, done: Completions) -> dict[str, Any]:
    """The reply."""
    choices = [_choice(index, text, reason) for index, text, reason in _texts(asked, done)]
    return {**_head(model, done), "choices": choices, "usage": _usage(done)}


def events(model: Model, asked: CompletionRequest, done: Completions) -> Iterable[bytes]:
    """Words are found in any order, so each choice comes as one piece."""
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
