"""The public interface: `ddot.load()` returns a `Model`, and `Model.infill` fills blanks.

An answer is made of the template's own characters and the fills, so the literal text is kept whatever the network
predicts; `draft` keeps the bounds of fills, or `word_rules` for models that do not write. A CPU fills texts one by one,
on several threads; a GPU fills many together. An answer is the same alone and among others.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, Unpack, overload

import torch

from ddot.core.rng import fold, row_keys
from ddot.data.tokenizer import Tokenizer
from ddot.infill import answers
from ddot.infill.answers import Answer, Answers, Attempt, Infill
from ddot.infill.candidates import Candidate, candidates
from ddot.infill.engine import CPU, GPU, Engine, Shape, Step, Steps, Window
from ddot.infill.frames import Frame, frame_of
from ddot.infill.mistakes import Mistake
from ddot.infill.request import ROLLOUTS, Fills, Request, request, template_of, to_count, to_score
from ddot.infill.scheduler import chunks, inside, on_threads, one_thread, result_of
from ddot.infill.settings import PRECISIONS, Options, Settings, one_of, whole_number
from ddot.infill.view import SLOTS, View, excerpt, view
from ddot.network.denoiser import Denoiser, compile_blocks, halve_blocks
from ddot.network.devices import device_of
from ddot.network.folder import load_model
from ddot.network.int8 import available
from ddot.network.places import EMBEDDED_NAME, find, is_compressed, is_untrained

_CHUNK = 1024  # texts in progress on a GPU: enough for full batches, few enough to be finished after Ctrl-C

T = TypeVar("T")
R = TypeVar("R")


class Model:
    """A network with its tokenizer, ready to fill blanks. Made by `ddot.load`.

    `shape`: that of batches; the default suits the device.
    """

    def __init__(
        self, denoiser: Denoiser, tokenizer: Tokenizer, name: str = "", threads: int = 1, shape: Shape | None = None
    ):
        self.denoiser, self.tokenizer, self.name, self.threads = denoiser, tokenizer, name, threads
        self.engine = Engine(denoiser, tokenizer, shape or (GPU if denoiser.device.type == "cuda" else CPU))

    @property
    def device(self) -> torch.device:
        return self.denoiser.device

    @overload
    def infill(
        self, text: str, *, free: bool = False, fills: Fills | None = None, **settings: Unpack[Options]
    ) -> list[Infill]: ...

    @overload
    def infill(self, text: list[str], *, free: bool = False, **settings: Unpack[Options]) -> list[list[Infill]]: ...

    def infill(
        self, text: str | list[str], *, free: bool = False, fills: Fills | None = None, **settings: Unpack[Options]
    ) -> list[Infill] | list[list[Infill]]:
        """Up to n different ways to fill a text, best first; for a list of texts, such a list for each.

        `free`: the text is words that must appear in order, and the model decides where text goes. `fills` locks blanks
        of a single text: a string is kept, None is filled. The other arguments are the fields of `Settings`.
        """
        if isinstance(text, str):
            (result,) = self.answers([self.request(text, Settings.of(settings), free, fills)])
            return [answer.infill for answer in result.best]
        if not (isinstance(text, list) and all(isinstance(each, str) for each in text)):
            raise Mistake(lambda say: f"text is {say.value(text)}; wanted a string, or a list of strings")
        if fills is not None:
            raise ValueError("fills lock the blanks of one text; give one text, not a list")
        requests = [self.request(each, Settings.of(settings), free) for each in text]
        return [[answer.infill for answer in result.best] for result in self.answers(requests)]

    request = staticmethod(request)
    template = staticmethod(template_of)

    def answers(self, requests: Iterable[Request]) -> Iterator[Answers]:
        """The answers to many requests, in order, with a bounded number of them in progress at any time."""
        return self._in_order(requests, lambda chunk: answers.answer_requests(chunk, self.engine))

    def steps(self, request: Request) -> Steps[Answers]:
        """The steps to the answers to one request; the work stops when they are no longer read."""
        (result,) = yield from inside(self._computing, answers.answer_requests([request], self.engine))
        return result

    def watched(self, request: Request) -> Steps[Answers]:
        """As `steps`, with the states of everything that is filled."""
        (result,) = yield from inside(self._computing, answers.answer_requests([request], self.engine, watched=True))
        return result

    def located(self, request: Request) -> Steps[Request]:
        """A free text with only the gaps that will be filled as its blanks, if the model decides on them first."""
        if not self.engine.writes_left_to_right:
            return request
        (result,) = yield from inside(self._computing, answers.locate_gaps([request], self.engine))
        return result

    def stream(self, text: str, *, free: bool = False, **settings: Unpack[Options]) -> Iterator[Frame]:
        """The frames of filling a text, from all masked to done. Words move from a grid, unless `terminal` is None."""
        how = Settings.of({"terminal": "grid", **settings})
        template = self.template(text, free)
        seen = view(template, self.tokenizer, located=not free)
        if len(excerpt(template, [], self.tokenizer, not free).template.blanks) < len(template.blanks):
            raise ValueError(
                "the text has too many blanks, or too much between them, to be watched at once; shorten it"
            )
        if len(seen.prompt) > SLOTS // 2:
            raise ValueError(f"the text has {len(seen.prompt)} tokens; up to {SLOTS // 2} can be watched: shorten it")
        if self.engine.writes_left_to_right:
            return self._shown(self.watched(self.request(template, replace(how, n=1), free)), seen)
        key = fold(row_keys(how.seed, 1), 0)  # as for the first window in `infill`: the last frame shows its answer
        return self._frames(Window(seen, template.blanks, key, how))

    def _frames(self, watched: Window) -> Iterator[Frame]:
        def sampled() -> Steps[None]:
            chances = yield from self.engine.length_chances([watched])
            yield from self.engine.sample_tokens([watched], chances)

        steps: Iterable[Step] = inside(self._computing, sampled())
        if not self.engine.has_length_head or watched.settings.avoid:  # only the last sample is valid
            steps = list(steps)
            steps = [step for step in steps if step.samples is steps[-1].samples]
        return self._shown(steps, watched.view)

    def _shown(self, steps: Iterable[Step], seen: View) -> Iterator[Frame]:
        for step in steps:
            if step.state is not None:
                yield frame_of(step.state, seen, self.engine.alphabet, self.tokenizer.vocabulary)

    def lengths(self, text: str, seed: int = 0, rollouts: int = ROLLOUTS, steps: int = 4) -> list[dict[int, float]]:
        """For each blank, the share of each length in words among a few quick fillings with drawn lengths."""
        request = to_count(text, seed, rollouts, steps)
        counts: list[dict[int, float]] = [{} for _ in request.template.blanks]
        for answer in self._sampled(request, rollouts):
            for count, fill in zip(counts, answer.infill.fills, strict=True):
                words = len(fill.split())
                count[words] = count.get(words, 0.0) + 1 / rollouts
        return [dict(sorted(count.items())) for count in counts]

    def _sampled(self, request: Request, times: int) -> Iterable[Answer]:
        if self.engine.writes_left_to_right:
            return result_of(inside(self._computing, answers.sample_fillings(request, times, self.engine)))
        request = replace(request, settings=replace(request.settings, temperature=0.0))
        attempts = (Attempt(request, draw) for draw in range(1, times + 1))
        return self._in_order(attempts, lambda chunk: answers.fill_attempts(chunk, self.engine))

    def scored(self, text: str, fills: Sequence[str], *, steps: int = 16) -> Infill:
        """A text with your own fills, one for each blank, scored as by `infill`; `scores` has that of each."""
        request = to_score(text, fills, Settings(steps=steps))
        return result_of(inside(self._computing, answers.score_fills(request, fills, self.engine)))

    def score(self, text: str, fills: Sequence[str], *, steps: int = 16) -> float:
        """How likely your own fills are: comparable with the scores of `infill`."""
        return self.scored(text, fills, steps=steps).score

    def candidates(self, text: str, k: int = 10) -> list[Candidate]:
        """The k likeliest words for the one blank ___{1} of a text, with their probabilities."""
        whole_number("k", k, 1, 1000)
        request = self.request(text)
        if [(blank.least, blank.most) for blank in request.template.blanks] != [(1, 1)]:
            raise ValueError("candidates are words for a text with one blank of one word; write ___{1}, once")
        window = Attempt(request, 0).window(self.tokenizer)
        return result_of(inside(self._computing, candidates(window, k, self.engine)))

    def _in_order(self, items: Iterable[T], work: Callable[[list[T]], Steps[list[R]]]) -> Iterator[R]:
        """The results of items: one at a time on each thread of a CPU, or a chunk at a time on a GPU."""

        def run(chunk: list[T]) -> list[R]:
            return result_of(inside(self._computing, work(chunk)))

        one_row = self.engine.shape.rows == 1
        for results in on_threads(chunks(items, 1 if one_row else _CHUNK), run, self.threads if one_row else 1):
            yield from results

    def _computing(self) -> ExitStack:
        """The contexts in which everything is computed."""
        with ExitStack() as entered:
            for context in (torch.inference_mode(), one_thread, self.denoiser.half_precision()):
                entered.enter_context(context)
            return entered.pop_all()


def load(
    model: str | Path | None = None,
    device: str | None = None,
    precision: str = "auto",
    threads: int = 1,
    compile: bool = False,
) -> Model:
    """The embedded model, one in a folder, or one on the hub (owner/name), ready to fill blanks.

    `device`: cpu, cuda or mps; the default is cuda where available. `precision`: int8 or float32; "auto" is int8 on a
    CPU for weights stored so. `threads`: texts of a list filled at the same time on a CPU; a GPU fills many together.
    `compile`: takes a minute before the first answer, for long lists on a GPU.
    """
    whole_number("threads", threads, 1)
    if model is not None and not isinstance(model, str | Path):
        raise Mistake(lambda say: f"model is {say.value(model)}; wanted a folder, owner/name on the hub, or nothing")
    one_of("precision", precision, PRECISIONS)
    folder = find(model)
    where = device_of(device)
    has_int8 = where.type == "cpu" and available()
    if precision == "int8" and not has_int8:
        raise Mistake(
            lambda say: f"int8 runs on a CPU with oneDNN only, not on {where}; use float32 as {say.name('precision')}"
        )
    if compile and where.type != "cuda":
        raise Mistake(lambda say: f"compiling pays on a GPU only, not on {where}; leave out {say.name('compile')}")
    int8 = has_int8 and is_compressed(folder) if precision == "auto" else precision == "int8"
    if is_untrained(folder):
        warnings.warn(
            f"{model} was converted but not trained: it has not learnt to fill blanks; ddot finetune teaches it",
            stacklevel=2,
        )
    denoiser, tokenizer = load_model(folder, int8=int8)
    if where.type == "cuda":
        halve_blocks(denoiser)
    if compile:
        compile_blocks(denoiser)
    return Model(denoiser.to(where), tokenizer, EMBEDDED_NAME if model is None else str(model), threads)
