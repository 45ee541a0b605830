"""POST /v1/infill: `Model.infill` over HTTP, and, streamed, every step of it."""

import time
from collections.abc import Generator, Iterable
from dataclasses import asdict
from typing import Any

from ddot.core.records import State
from ddot.infill.engine import Sample
from ddot.infill.frames import frame_of
from ddot.infill.model import Model
from ddot.infill.settings import STEPS
from ddot.infill.template import Template, lock
from ddot.serve.progress import Attempts
from ddot.serve.replies import event
from ddot.serve.requests import MOST_BLANKS, MOST_CHARACTERS, InfillRequest

_MOST_WORDS = 256  # in order, each with a gap on either side


def template_of(model: Model, asked: InfillRequest) -> Template:
    """What is to be filled, within the limits. Mistakes are told at once."""
    given = [each for each in (asked.text, asked.free) if isinstance(each, str)]
    if len(given) != 1:
        raise ValueError(f'the request wants either "text" or "free", a string; it has {"both" if given else "none"}')
    free = asked.free is not None and asked.free is not False
    if len(given[0]) > MOST_CHARACTERS:
        raise ValueError(f"the text has {len(given[0]):,} characters; up to {MOST_CHARACTERS:,} are filled")
    template = model.template(given[0], free)
    blanks, most = len(template.blanks) - free, _MOST_WORDS if free else MOST_BLANKS
    if blanks > most:
        raise ValueError(f"the text has {blanks} {'words' if free else 'blanks'}; up to {most} are filled: send less")
    return template


def filled(model: Model, asked: InfillRequest) -> Generator[dict[str, Any], None, dict[str, Any]]:
    """The frames of filling a text, and the reply. Mistakes are told at once."""
    template = template_of(model, asked)
    fills = [None] * len(template.blanks) if asked.fills is None else asked.fills
    left = lock(template, fills)
    way = model.way(
        template, n=asked.n or 1, free=template.apart, terminal=asked.terminal, fills=fills, **asked.settings
    )
    return _steps(model, asked, template, Attempts(model, left), way)


def _steps(
    model: Model, asked: InfillRequest, template: Template, attempts: Attempts, way: Any
) -> Generator[dict[str, Any], None, dict[str, Any]]:
    start = time.perf_counter()
    steps = model.stepwise(way, attempts.follow)
    number = 0
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            answers = end.value
            break
        number = number + 1 if step.state is not None and float(step.state.t[0]) < 1 else 0
        if step.state is None or not isinstance(step.task, Sample):
            yield {}  # nothing to see, but a place to stop at
            continue
        yield {**_frame(model, step.task, step.state), "attempt": attempts.number, "window": attempts.window,
               "step": number, "steps": step.task.steps}  # fmt: skip
    results = [{**asdict(each), "attempt": attempts.of(each.text).number} for each in answers]
    return {
        "results": results,
        "literals": list(template.literals),
        "blanks": [asdict(blank) for blank in template.blanks],
        "model": model.name,
        "steps": asked.settings.get("steps", STEPS),
        "seed": asked.settings.get("seed", 0),
        "seconds": round(time.perf_counter() - start, 3),
    }


def _frame(model: Model, task: Sample, state: State) -> dict[str, Any]:
    frame = frame_of(state, task.view, model.filler.alphabet, model.tokenizer.vocabulary)
    kinds = [
        "prompt" if given else "pad" if piece == "" else "response"
        for given, piece in zip(frame.given, frame.pieces, strict=True)
    ]
    places = [round(place, 5) for place in frame.positions]
    return {"t": frame.t, "tokens": frame.pieces, "positions": places, "kinds": kinds}


def said(frame: dict[str, Any]) -> Iterable[bytes]:
    """The event of a frame."""
    return [event({"type": "frame", **frame})] if frame else []


def closed(result: dict[str, Any]) -> Iterable[bytes]:
    """The event of the result."""
    return [event({"type": "result", **result})]
