"""POST /infill as llama.cpp's server answers it, for editors that support it (llama.vim, llama.vscode).

`content` is what goes between prefix and suffix, spaces included. Text of other files (`input_extra`) comes before the
prefix; the network reads what is nearest to the gap.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ddot.infill.engine import Steps
from ddot.infill.model import Model
from ddot.serve.fim import Middles, middles
from ddot.serve.replies import event
from ddot.serve.requests import EditorRequest


def filled(model: Model, asked: EditorRequest) -> Steps[Middles]:
    """The steps to what goes between prefix and suffix. Mistakes are raised at once."""
    if asked.input_prefix is None and asked.input_suffix is None and asked.prompt is None:
        raise ValueError('the request needs "input_prefix" and "input_suffix", strings; it has none')
    extra = "".join(chunk.text.rstrip("\n") + "\n" for chunk in asked.input_extra or [])
    before = extra + (asked.input_prefix or "") + (asked.prompt or "")
    most = None if asked.n_predict is None or asked.n_predict < 0 else asked.n_predict
    limit = asked.t_max_predict_ms
    seconds = limit / 1000 / asked.settings.n if limit is not None and limit > 0 else None
    return middles(model, before, asked.input_suffix or "", most, asked.settings, asked.stops, seconds)


def answer(model: Model, asked: EditorRequest, done: Middles) -> dict[str, Any] | list[dict[str, Any]]:
    """The reply, or the fields of it that were asked for; for several completions a list, as llama.cpp has it."""
    each = [_answer(model, asked, done, index) for index in range(asked.settings.n)]
    return each if len(each) > 1 else each[0]


def _answer(model: Model, asked: EditorRequest, done: Middles, index: int) -> dict[str, Any]:
    middle = done.found[index % len(done.found)]  # where fewer differ, the best are repeated
    whole = {
        "index": index, "content": middle.text, "stop": True, "model": model.name, "tokens_predicted": middle.tokens,
        "tokens_evaluated": done.read, "tokens_cached": done.read, "has_new_line": "\n" in middle.text,
        "generation_settings": {"n_predict": asked.n_predict, **asdict(asked.settings)},
        "truncated": not done.whole, "stop_type": middle.end, "stopping_word": middle.word,
        "timings": {**_pace("prompt", done.read, done.reading), **_pace("predicted", middle.tokens, done.writing)},
    }  # fmt: skip
    return nested(whole, asked.response_fields) if asked.response_fields else whole


def events(model: Model, asked: EditorRequest, done: Middles) -> Iterable[bytes]:
    """The content of a completion comes as one piece, then the rest of the reply."""
    for index in range(asked.settings.n):
        middle = done.found[index % len(done.found)]
        yield event({"index": index, "content": middle.text, "stop": False, "tokens_predicted": middle.tokens})
        yield event({**_answer(model, asked, done, index), "content": "", "stop": True})


def nested(whole: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The fields at these paths (`timings/predicted_n`) as flat keys; unknown ones are left out."""
    found = {}
    for path in paths:
        value: Any = whole
        for key in path.split("/"):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found


def _pace(what: str, tokens: int, seconds: float) -> dict[str, int | float]:
    return {
        f"{what}_n": tokens,
        f"{what}_ms": round(1000 * seconds, 3),
        f"{what}_per_token_ms": round(1000 * seconds / tokens, 3) if tokens else 0.0,
        f"{what}_per_second": round(tokens / seconds, 3) if seconds else 0.0,
    }
