"""POST /v1/infill: `Model.infill` over HTTP; a stream also has a frame for every step."""

import time
from collections.abc import Generator
from dataclasses import asdict, replace
from typing import Any, TypeVar

from ddot.infill.answers import Answer
from ddot.infill.engine import Sample, Step, Steps
from ddot.infill.frames import frame_of
from ddot.infill.model import Model
from ddot.infill.request import Request
from ddot.infill.template import Template
from ddot.serve.requests import MAX_BLANKS, InfillRequest, check_work

_MAX_WORDS = 256  # of a free text; each has a gap on either side

Events = list[dict[str, Any]]
R = TypeVar("R")


def parse_text(model: Model, body: InfillRequest) -> Template:
    """The text to fill, within the limits. A bad request raises immediately."""
    texts = [text for text in (body.text, body.free) if isinstance(text, str)]
    if len(texts) != 1:
        found = "both" if texts else "neither"
        raise ValueError(f'the request needs either "text" or "free", a string; it has {found}')
    free = body.free is not None and body.free is not False
    template = model.template(texts[0], free)
    count, limit = len(template.blanks) - free, _MAX_WORDS if free else MAX_BLANKS
    if count > limit:
        raise ValueError(f"the text has {count} {'words' if free else 'blanks'}; at most {limit} are allowed")
    return template


def fill(model: Model, body: InfillRequest) -> Generator[Events, None, dict[str, Any]]:
    """Yields the events of filling a text, and returns the reply. A bad request raises immediately."""
    template = parse_text(model, body)
    check_work(body.settings, len(template.blanks))
    request = model.request(template, body.settings, free=template.apart, fills=body.fills)
    return (_stream if body.stream else _steps)(model, template, request)


def _steps(model: Model, template: Template, request: Request) -> Generator[Events, None, dict[str, Any]]:
    start = time.perf_counter()
    answers = yield from _events(model.steps(request), None)
    return _reply(model, template, request, answers.best, time.perf_counter() - start)


def _stream(model: Model, template: Template, request: Request) -> Generator[Events, None, dict[str, Any]]:
    frames, start = Frames(model), time.perf_counter()
    # Frames number only those gaps of a free text that are filled, and so must its literals.
    request = yield from _events(model.located(request), None)
    yield [{"type": "start", "literals": request.template.literals, "locked": request.locked}]
    if request.settings.n > 1:  # the answer for n = 1 is among those for any n: send it first
        single = replace(request, settings=replace(request.settings, n=1))
        first = yield from _events(model.watched(single), frames)
        frames.sent = {attempt for attempt, _ in frames.blanks}
        yield [{"type": "first", **_reply(model, template, request, first.best, time.perf_counter() - start)}]
    answers = yield from _events(model.watched(request), frames)
    return _reply(model, template, request, answers.best, time.perf_counter() - start)


def _events(steps: Steps[R], frames: "Frames | None") -> Generator[Events, None, R]:
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return end.value
        yield [] if frames is None else frames.events(step)


def _reply(model: Model, template: Template, request: Request, best: list[Answer], seconds: float) -> dict[str, Any]:
    return {
        "results": [{**asdict(answer.infill), "attempt": answer.attempt} for answer in best],
        "literals": list(template.literals), "blanks": [asdict(blank) for blank in template.blanks],
        "model": model.name, "steps": request.settings.steps, "seed": request.settings.seed,
        "seconds": round(seconds, 3),
    }  # fmt: skip


class Frames:
    """The frames of a request. Those of an attempt are sent once, even if it is computed twice."""

    def __init__(self, model: Model):
        self.model = model
        self.sent: set[int] = set()  # attempts
        self.blanks: dict[tuple[int, int], int] = {}  # number of blanks by attempt and window

    def events(self, step: Step) -> Events:
        """A frame for each sample of the step; none if nothing is sampled."""
        samples = enumerate(step.samples)
        return [self._frame(step, sample, row) for row, sample in samples if sample.window.draw not in self.sent]

    def _frame(self, step: Step, sample: Sample, row: int) -> dict[str, Any]:
        assert step.state is not None
        window = sample.window
        vocabulary = self.model.tokenizer.vocabulary
        frame = frame_of(step.state, window.view, self.model.engine.alphabet, vocabulary, row)
        kinds = [
            "prompt" if given else "pad" if piece == "" else "response"
            for given, piece in zip(frame.given, frame.pieces, strict=True)
        ]
        event: dict[str, Any] = {
            "type": "frame", "t": frame.t, "tokens": frame.pieces, "kinds": kinds, "attempt": window.draw,
            "positions": [round(position, 5) for position in frame.positions], "window": window.number,
            "step": step.number, "steps": sample.steps,
        }  # fmt: skip
        if step.number == 0:
            self.blanks[window.draw, window.number] = len(window.blanks)
            event["first_blank"] = sum(self.blanks[window.draw, earlier] for earlier in range(window.number))
            if sample.lengths is not None:
                event["slots"] = [list(range(span.start, span.stop)) for span in sample.spans]
        return event
