"""POST /v1/infill: `Model.infill` over HTTP, and, streamed, every step of it."""

from collections.abc import Generator, Iterable
from dataclasses import asdict
from typing import Any

from ddot.infill.answers import Request
from ddot.infill.engine import Step
from ddot.infill.frames import frame_of
from ddot.infill.model import Model
from ddot.infill.template import Template
from ddot.serve.replies import event
from ddot.serve.requests import MOST_BLANKS, MOST_CHARACTERS, InfillRequest, check_work

_MOST_WORDS = 256  # in order, each with a gap on either side

Frames = list[dict[str, Any]]


def template_of(model: Model, asked: InfillRequest) -> Template:
    """The text to fill, within the limits. Mistakes are raised at once."""
    given = [each for each in (asked.text, asked.free) if isinstance(each, str)]
    if len(given) != 1:
        raise ValueError(f'the request needs either "text" or "free", a string; it has {"both" if given else "none"}')
    free = asked.free is not None and asked.free is not False
    if len(given[0]) > MOST_CHARACTERS:
        raise ValueError(f"the text has {len(given[0]):,} characters; at most {MOST_CHARACTERS:,} are allowed")
    template = model.template(given[0], free)
    blanks, most = len(template.blanks) - free, _MOST_WORDS if free else MOST_BLANKS
    if blanks > most:
        raise ValueError(f"the text has {blanks} {'words' if free else 'blanks'}; at most {most} are allowed")
    return template


def filled(model: Model, asked: InfillRequest) -> Generator[Frames, None, dict[str, Any]]:
    """The frames of filling a text, and the reply. Mistakes are raised at once."""
    template = template_of(model, asked)
    check_work(asked.settings, len(template.blanks))
    request = model.request(template, asked.settings, free=template.apart, fills=asked.fills)
    return _steps(model, template, request)


def _steps(model: Model, template: Template, request: Request) -> Generator[Frames, None, dict[str, Any]]:
    steps = model.steps(request)
    while True:
        try:
            yield _frames(model, next(steps))
        except StopIteration as end:
            done = end.value
            break
    return {
        "results": [{**asdict(each.infill), "attempt": each.attempt} for each in done.best],
        "literals": list(template.literals),
        "blanks": [asdict(blank) for blank in template.blanks],
        "model": model.name,
        "steps": request.settings.steps,
        "seed": request.settings.seed,
        "seconds": round(done.seconds, 3),
    }


def _frames(model: Model, step: Step) -> Frames:
    """A frame for each sample of the step; none where nothing is sampled."""
    frames = []
    for row, sample in enumerate(step.samples):
        assert step.state is not None
        seen = sample.window
        frame = frame_of(step.state, seen.view, model.engine.alphabet, model.tokenizer.vocabulary, row)
        kinds = [
            "prompt" if given else "pad" if piece == "" else "response"
            for given, piece in zip(frame.given, frame.pieces, strict=True)
        ]
        places = [round(place, 5) for place in frame.positions]
        frames.append(
            {"t": frame.t, "tokens": frame.pieces, "positions": places, "kinds": kinds, "attempt": seen.draw,
             "window": seen.number, "step": step.number, "steps": sample.steps}
        )  # fmt: skip
    return frames


def queued(ahead: int) -> bytes:
    """The event of a request that waits for others."""
    return event({"type": "queued", "ahead": ahead})


def said(frames: Frames) -> Iterable[bytes]:
    """The events of a step."""
    return [event({"type": "frame", **frame}) for frame in frames]


def closed(result: dict[str, Any]) -> Iterable[bytes]:
    """The event of the result."""
    return [event({"type": "result", **result})]
