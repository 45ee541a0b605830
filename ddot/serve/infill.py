"""POST /v1/infill: `Model.infill` over HTTP, and, streamed, every step of it."""

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
from ddot.serve.requests import MOST_BLANKS, InfillRequest, check_work

_MOST_WORDS = 256  # in order, each with a gap on either side

Events = list[dict[str, Any]]
R = TypeVar("R")


def template_of(model: Model, asked: InfillRequest) -> Template:
    """The text to fill, within the limits. Mistakes are raised at once."""
    given = [each for each in (asked.text, asked.free) if isinstance(each, str)]
    if len(given) != 1:
        raise ValueError(f'the request needs either "text" or "free", a string; it has {"both" if given else "none"}')
    free = asked.free is not None and asked.free is not False
    template = model.template(given[0], free)
    blanks, most = len(template.blanks) - free, _MOST_WORDS if free else MOST_BLANKS
    if blanks > most:
        raise ValueError(f"the text has {blanks} {'words' if free else 'blanks'}; at most {most} are allowed")
    return template


def filled(model: Model, asked: InfillRequest) -> Generator[Events, None, dict[str, Any]]:
    """The events of filling a text, and the reply. Mistakes are raised at once."""
    template = template_of(model, asked)
    check_work(asked.settings, len(template.blanks))
    request = model.request(template, asked.settings, free=template.apart, fills=asked.fills)
    return _steps(model, template, request, bool(asked.stream))


def _steps(
    model: Model, template: Template, request: Request, watched: bool
) -> Generator[Events, None, dict[str, Any]]:
    frames = Frames(model)
    stepped = model.watched if watched else model.steps
    start = time.perf_counter()
    if watched:  # frames count the blanks of a free text that are filled, and so must its literals
        request = yield from _framed(model.located(request), None)
        yield [{"type": "start", "literals": request.template.literals, "locked": request.locked}]
    if watched and request.settings.n > 1:  # the answer of n = 1 is always among those of any n: show it first
        alone = replace(request, settings=replace(request.settings, n=1))
        first = yield from _framed(stepped(alone), frames)
        frames.done = {attempt for attempt, _ in frames.blanks}
        yield [{"type": "first", **_reply(model, template, request, first.best, time.perf_counter() - start)}]
    done = yield from _framed(stepped(request), frames if watched else None)
    return _reply(model, template, request, done.best, time.perf_counter() - start)


def _framed(steps: Steps[R], frames: "Frames | None") -> Generator[Events, None, R]:
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return end.value
        yield [] if frames is None else frames.of(step)


def _reply(model: Model, template: Template, request: Request, best: list[Answer], seconds: float) -> dict[str, Any]:
    return {
        "results": [{**asdict(each.infill), "attempt": each.attempt} for each in best],
        "literals": list(template.literals), "blanks": [asdict(blank) for blank in template.blanks],
        "model": model.name, "steps": request.settings.steps, "seed": request.settings.seed,
        "seconds": round(seconds, 3),
    }  # fmt: skip


class Frames:
    """The frames of a request: those of each attempt once, also where it is computed a second time."""

    def __init__(self, model: Model):
        self.model = model
        self.done: set[int] = set()  # attempts
        self.blanks: dict[tuple[int, int], int] = {}  # in each window of each attempt

    def of(self, step: Step) -> Events:
        """A frame for each sample of the step; none where nothing is sampled."""
        samples = enumerate(step.samples)
        return [self._frame(step, each, row) for row, each in samples if each.window.draw not in self.done]

    def _frame(self, step: Step, sample: Sample, row: int) -> dict[str, Any]:
        assert step.state is not None
        window = sample.window
        vocabulary = self.model.tokenizer.vocabulary
        frame = frame_of(step.state, window.view, self.model.engine.alphabet, vocabulary, row)
        kinds = [
            "prompt" if given else "pad" if piece == "" else "response"
            for given, piece in zip(frame.given, frame.pieces, strict=True)
        ]
        found: dict[str, Any] = {
            "type": "frame", "t": frame.t, "tokens": frame.pieces, "kinds": kinds, "attempt": window.draw,
            "positions": [round(place, 5) for place in frame.positions], "window": window.number,
            "step": step.number, "steps": sample.steps,
        }  # fmt: skip
        if step.number == 0:
            self.blanks[window.draw, window.number] = len(window.blanks)
            found["first_blank"] = sum(self.blanks[window.draw, earlier] for earlier in range(window.number))
            if sample.lengths is not None:
                found["slots"] = [list(range(span.start, span.stop)) for span in sample.spans]
        return found
