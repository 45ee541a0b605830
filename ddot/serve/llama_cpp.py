"""POST /infill as llama.cpp's server answers it, for editors that support it (llama.vim, llama.vscode).

`content` is the text between prefix and suffix, spaces included. Text from other files (`input_extra`) goes before the
prefix; the network reads what is nearest to the gap.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ddot.infill.engine import Steps
from ddot.infill.model import Model
from ddot.serve.fim import Middle, Middles, fill_middle
from ddot.serve.replies import event
from ddot.serve.requests import EditorRequest


def fill(model: Model, body: EditorRequest) -> Steps[Middles]:
    """The steps that lead to the middles. A bad request raises immediately."""
    if body.input_prefix is None and body.input_suffix is None and body.prompt is None:
        raise ValueError('the request needs "input_prefix" and "input_suffix", strings; it has neither')
    extra = "".join(chunk.text.rstrip("\n") + "\n" for chunk in body.input_extra or [])
    prefix = extra + (body.input_prefix or "") + (body.prompt or "")
    max_tokens = None if body.n_predict is None or body.n_predict < 0 else body.n_predict
    limit = body.t_max_predict_ms
    seconds = limit / 1000 / body.settings.n if limit is not None and limit > 0 else None
    return fill_middle(model, prefix, body.input_suffix or "", max_tokens, body.settings, body.stops, seconds)


def reply(model: Model, body: EditorRequest, result: Middles) -> dict[str, Any] | list[dict[str, Any]]:
    """The reply, or the requested fields of it; a list of them for several completions, as in llama.cpp."""
    middles = enumerate(result.best(body.settings.n))
    replies = [_reply(model, body, result, index, middle) for index, middle in middles]
    return replies if len(replies) > 1 else replies[0]


def _reply(model: Model, body: EditorRequest, result: Middles, index: int, middle: Middle) -> dict[str, Any]:
    read = result.tokens_read
    timings = _timings("prompt", read, result.reading_seconds)
    timings |= _timings("predicted", middle.tokens, result.writing_seconds)
    fields = {
        "index": index, "content": middle.text, "stop": True, "model": model.name, "tokens_predicted": middle.tokens,
        "tokens_evaluated": read, "tokens_cached": read, "has_new_line": "\n" in middle.text,
        "generation_settings": {"n_predict": body.n_predict, **asdict(body.settings)},
        "truncated": result.is_truncated, "stop_type": middle.stop_type, "stopping_word": middle.stop_word,
        "timings": timings,
    }  # fmt: skip
    return select(fields, body.response_fields) if body.response_fields else fields


def events(model: Model, body: EditorRequest, result: Middles) -> Iterable[bytes]:
    """The content of a completion comes in one piece, then the rest of the reply."""
    for index, middle in enumerate(result.best(body.settings.n)):
        yield event({"index": index, "content": middle.text, "stop": False, "tokens_predicted": middle.tokens})
        yield event({**_reply(model, body, result, index, middle), "content": "", "stop": True})


def select(fields: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The fields at these paths (`timings/predicted_n`) as flat keys; unknown paths are left out."""
    selected = {}
    for path in paths:
        value: Any = fields
        for key in path.split("/"):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            selected[path] = value
    return selected


def _timings(phase: str, tokens: int, seconds: float) -> dict[str, int | float]:
    return {
        f"{phase}_n": tokens,
        f"{phase}_ms": round(1000 * seconds, 3),
        f"{phase}_per_token_ms": round(1000 * seconds / tokens, 3) if tokens else 0.0,
        f"{phase}_per_second": round(tokens / seconds, 3) if seconds else 0.0,
    }
