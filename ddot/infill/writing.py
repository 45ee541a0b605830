"""Write blanks from left to right after an outline of the text, as `methods.outline` trains it.

A row reads `outline [sep] text`. In a gap the network predicts token after token until [sep] ends the gap; then the
given tokens up to the next gap are read (`passes`). A fill is scored by its log-probability and that of the text after.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ddot.core.chunks import in_chunks
from ddot.infill.draft import fluency
from ddot.infill.engine import MAX_RETRIES, Engine, Filled, Sample, Step, Steps, Window, grouped
from ddot.infill.passes import Candidate, Pruning, shared_work, split_by_blank, write_families
from ddot.infill.reading import AsyncCopy, Reader, Slot, pack
from ddot.infill.scheduler import chunks
from ddot.infill.scoring import Tokens
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser

TEMPERATURE_FACTORS = (1.0, 1.4, 1.8, 2.4)  # tried in turn while too few candidates differ
_TEXTS_PER_JOB = 6  # texts of a view that are scored as one job on a GPU: few of its candidates are left
LOOKAHEAD = 2  # number of given tokens after a fill that count for its score (docs/log.md)


def scores_of(window: Window, log_probs: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> list[float]:
    """The score of each fill: its fluency, and the log-probabilities of the given tokens after it."""
    fills = zip(log_probs, after, window.view.between_sentences[: window.n_filled], strict=True)
    return [fluency(own, is_sentence) + sum(lookahead) for own, lookahead, is_sentence in fills]


def write(windows: Sequence[Window], engine: Engine, scored: bool = True) -> Steps[dict[int, Filled]]:
    """Write each window as the candidate that its `draw` numbers. By index, without candidates that were pruned.

    Windows that share a view object share its prefill. Merely equal views do not: what else is in a batch must not
    change its shape, and with it the rounding.
    """
    first: dict[int, Candidate] = {}
    candidates: dict[int, Candidate] = {}
    for number, window in enumerate(windows):
        candidates[number] = Candidate(window, engine, sibling=first.get(id(window.view)))
        first.setdefault(id(window.view), candidates[number])
    if scored:
        _enable_pruning(candidates.values())
    prefill_seconds = yield from _write(candidates.values(), engine)
    candidates = {number: candidate for number, candidate in candidates.items() if not candidate.pruned}
    for _ in range(MAX_RETRIES):
        retries = {
            number: Candidate(candidate.window, engine, (*candidate.banned, *runs), candidate.start)
            for number, candidate in candidates.items()
            if (runs := engine.avoided_runs(candidate.window, candidate.by_blank()[0]))
        }
        if not retries:
            break
        yield from _write(retries.values(), engine)
        candidates |= retries
    fills = {number: candidate.by_blank() for number, candidate in candidates.items()}
    lookahead: list[list[list[float]]] = [[[] for _ in tokens] for tokens, _ in fills.values()]
    if scored:
        lookahead = yield from _lookahead(
            [windows[number] for number in fills], [tokens for tokens, _ in fills.values()], engine
        )
    return {
        number: Filled(
            tokens, scores_of(windows[number], log_probs, after), prefill_seconds, candidates[number].trailing
        )
        for (number, (tokens, log_probs)), after in zip(fills.items(), lookahead, strict=True)
    }


def _enable_pruning(candidates: Iterable[Candidate]) -> None:
    """Let candidates that write the same single place prune each other.

    Not where words are avoided, as the only one left might use them, nor under a deadline: then there is only one.
    """
    prunable = (
        candidate
        for candidate in candidates
        if candidate.draft.n_gaps == 1 and candidate.window.seconds is None and not candidate.window.settings.avoid
    )
    for family in grouped(prunable, lambda candidate: id(candidate.window.view)):
        pruning = Pruning()
        for candidate in family:
            candidate.pruning = pruning


def _write(candidates: Iterable[Candidate], engine: Engine) -> Steps[float]:
    """Write candidates to their end; returns the prefill seconds of the first."""
    unfinished = (candidate for candidate in candidates if not candidate.draft.done)
    families = grouped(unfinished, lambda candidate: id(candidate.window.view))
    yield from write_families(families, engine)
    return families[0][0].prefill_seconds if families else 0.0


def score_fills(windows: Sequence[Window], fills: Sequence[Sequence[Tokens]], engine: Engine) -> Steps[list[Filled]]:
    """Score given fills as if they had been written: one forward pass for each, and one for the text after them."""
    log_probs = []
    for window, of_window in zip(windows, fills, strict=True):
        log_probs.append((yield from fill_log_probs(window, of_window, engine)))
    lookahead = yield from _lookahead(windows, fills, engine)
    return [
        Filled(list(of_window), scores_of(window, own, after), 0.0)
        for window, of_window, own, after in zip(windows, fills, log_probs, lookahead, strict=True)
    ]


def fill_log_probs(window: Window, fills: Sequence[Tokens], engine: Engine) -> Steps[list[list[float]]]:
    """For each blank the log-probabilities of the tokens of its fill, and of its end."""
    candidate, sep = Candidate(window, engine), engine.model.vocabulary.sep
    slots, at, targets, parts = list(candidate.outline), [], [], []
    given, placed = candidate.draft.given, 0
    for gap in candidate.written_gaps:
        told = [*[candidate.draft.closed_length] * (gap.after - placed), gap.told]
        slots += [Slot(*values) for values in zip(given[placed : gap.after + 1], told, strict=True)]
        placed = gap.after + 1
        parts.append([fill.tolist() for fill, after in zip(fills, window.after, strict=True) if after == gap.after])
        tokens = [token for part in parts[-1] for token in part]
        at += list(range(len(slots) - 1, len(slots) + len(tokens)))
        targets += [*tokens, sep]
        slots += map(Slot, tokens)
    if not at:
        return [[] for _ in fills]
    hidden = Reader(engine.model, 1, False).read([slots], [0], len(slots))
    (log_probs,) = in_chunks(
        _token_log_probs(engine.model), engine.model.chunk, hidden[0, at], torch.tensor(targets, device=hidden.device)
    )
    yield Step()
    rest = iter(log_probs.tolist())
    by_gap = [[next(rest) for _ in range(sum(map(len, part)) + 1)] for part in parts]
    return split_by_blank(window, candidate.written_gaps, parts, by_gap)[1]


def _token_log_probs(model: Denoiser) -> Callable[[Tensor, Tensor], tuple[Tensor]]:
    def log_probs(hidden: Tensor, tokens: Tensor) -> tuple[Tensor]:
        logits = model.logits(hidden).float()
        return (logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(-1),)

    return log_probs


@dataclass(frozen=True)
class _FilledText:
    """A filled text up to the last given token that is scored: a prefix common to all candidates, then the rest."""

    view: int  # its id
    prefix: tuple[int, ...]
    rest: tuple[int, ...]
    targets: tuple[tuple[int, int, int], ...]  # (place in `rest`, the given token after it, the gap before it)


def _filled_text(window: Window, fills: Sequence[Tokens], sep: int) -> _FilledText:
    view, places = window.view, window.places
    given = view.prompt.example.tokens.tolist()
    prefix = given[: places[0]]
    rest: list[int] = []
    targets = []
    for number, place in enumerate(places):
        rest.append(given[place])
        for fill, after in zip(fills, window.after, strict=True):
            rest += fill.tolist() if after == place else []
        end = min((after for after in view.after if after > place), default=len(given) - 1)  # the next gap is unknown
        following = given[place + 1 : end + 1]
        scored = [token for token in following[:LOOKAHEAD] if token != sep]
        targets += [(len(rest) - 1 + distance, token, place) for distance, token in enumerate(scored)]
        rest += following[:-1] if number + 1 < len(places) else scored[:-1]
    return _FilledText(id(view), tuple(prefix), tuple(rest), tuple(targets))


def _lookahead(
    windows: Sequence[Window], fills: Sequence[Sequence[Tokens]], engine: Engine
) -> Steps[list[list[list[float]]]]:
    """For each blank the log-probabilities of the given tokens after it, without an outline; none under a deadline."""
    scored = [i for i, window in enumerate(windows) if window.seconds is None]
    texts = {i: _filled_text(windows[i], fills[i], engine.model.vocabulary.sep) for i in scored}
    families = grouped(dict.fromkeys(texts.values()), lambda text: text.view)
    if engine.shape.rows == 1:
        jobs = [_ScoringJob.of(family, engine) for family in families]
        for job in jobs:
            job.result = _score_texts([job.texts], job.size, engine)
            yield Step()
    else:
        jobs = [_ScoringJob.of(part, engine) for family in families for part in chunks(family, _TEXTS_PER_JOB)]
        yield from _score_jobs(jobs, engine)
    by_text = {text: after for job in jobs if job.result for text, after in job.result.by_text.items()}
    results: list[list[list[float]]] = [[[] for _ in of_window] for of_window in fills]
    for i, text in texts.items():
        for number, after in enumerate(windows[i].after):
            if after not in windows[i].after[number + 1 :]:  # of several blanks in a gap it counts for the last
                results[i][number] = by_text[text].get(after, [])
    return results


@dataclass(eq=False)
class _ScoringJob:
    """Texts of one view to be scored; on a GPU a few at a time, since jobs of the same size share passes.

    `size`: widths of prefix and rest, and the number of rows. `since`: the clock of `SharedWork` when it was created.
    """

    texts: list[_FilledText]
    size: tuple[int, int, int]
    since: int = 0
    result: "_TextScores | None" = None

    @classmethod
    def of(cls, texts: list[_FilledText], engine: Engine) -> "_ScoringJob":
        shape, rest = engine.shape, max(len(text.rest) for text in texts)
        rows = len(texts) if shape.rows == 1 else _TEXTS_PER_JOB
        size = shape.width(len(texts[0].prefix)), shape.width(rest, 2), rows
        return cls(texts, size, 0 if shape.rows == 1 else shared_work(engine).passes)


def _score_jobs(jobs: Sequence[_ScoringJob], engine: Engine) -> Steps[None]:
    """Run jobs in passes shared with all pending jobs of the same size."""
    shared, seen = shared_work(engine), -1
    with shared.lock:
        shared.pending += jobs
    try:
        yield Step()  # lets other requests that finished writing in the same pass add their jobs
        while True:
            with shared.lock:
                results = [job.result for job in jobs if job.result]
                if len(results) == len(jobs) and (not shared.busy or all(result.log_probs.ready for result in results)):
                    return  # otherwise others go on until the results have arrived
                passes = shared.passes
                if waiting := [job for job in jobs if job.result is None]:
                    _score_batch(waiting[0], engine, at_once=passes == seen)  # no pass since: no other job will come
            seen = passes
            yield Step()
    finally:
        with shared.lock:
            shared.pending = [job for job in shared.pending if job not in jobs]


def _score_batch(job: _ScoringJob, engine: Engine, at_once: bool) -> None:
    """Run a job together with others of its size, if there are enough or it is to run at once."""
    shared = shared_work(engine)
    others = [other for other in shared.pending if other.size == job.size and other is not job]
    batch = [job, *others][: engine.shape.prefill.rows]
    if not at_once and not shared.is_batch_ready(len(batch), min(each.since for each in batch)):
        return
    result = _score_texts([each.texts for each in batch], job.size, engine)
    for each in batch:
        each.result = result
    shared.pending = [other for other in shared.pending if other not in batch]


@dataclass(frozen=True, eq=False)
class _TextScores:
    """For each text the log-probabilities of the tokens after each gap. On a GPU they may not have arrived yet."""

    texts: list[_FilledText]
    log_probs: AsyncCopy

    @cached_property
    def by_text(self) -> dict[_FilledText, dict[int, list[float]]]:
        log_probs = iter(self.log_probs.tolist())
        result: dict[_FilledText, dict[int, list[float]]] = {}
        for text in self.texts:
            by_gap = result.setdefault(text, {})
            for _, _, gap in text.targets:
                by_gap.setdefault(gap, []).append(next(log_probs))
        return result


def _score_texts(families: Sequence[Sequence[_FilledText]], size: tuple[int, int, int], engine: Engine) -> _TextScores:
    """Score the targets of texts in two passes: the prefix of each family once, then the rest of each text."""
    model, shape, (prefix_width, rest_width, many) = engine.model, engine.shape, size

    def score(prefixes: Tensor, rests: Tensor, targets: Tensor) -> Tensor:
        reader = Reader(model, shape.prefill.rows, masked=shape.rows > 1)
        reader.forward(prefixes)
        reader.select(torch.arange(shape.prefill.rows, device=model.device)[:, None].expand(-1, many).flatten())
        row, slot, token = targets
        return in_chunks(_token_log_probs(model), model.chunk, reader.forward(rests)[row, slot], token)[0]

    texts = {many * number + place: text for number, family in enumerate(families) for place, text in enumerate(family)}
    rests = [list(map(Slot, texts[row].rest)) if row in texts else [] for row in range(shape.prefill.rows * many)]
    places = [len(texts[row].prefix) if row in texts else 0 for row in range(len(rests))]
    prefixes = shape.prefill.padded([list(map(Slot, family[0].prefix)) for family in families], [])
    pad = model.vocabulary.pad
    starts = {row: rest_width - len(text.rest) for row, text in texts.items()}
    targets = [(row, starts[row] + place, token) for row, text in texts.items() for place, token, _ in text.targets]
    if not targets:
        return _TextScores(list(texts.values()), AsyncCopy(torch.zeros(0)))
    targets += [(0, 0, 0)] * (-len(targets) % (model.chunk or 1))
    prefix_slots = pack(prefixes, [0] * shape.prefill.rows, prefix_width, pad)
    inputs = prefix_slots, pack(rests, places, rest_width, pad), torch.tensor(targets).T.contiguous()
    if shape.rows == 1:
        log_probs = score(*(tensor.to(model.device) for tensor in inputs))
    else:
        log_probs = shared_work(engine).graph((*size, len(targets)), score)(*inputs, device=model.device)
    return _TextScores(list(texts.values()), AsyncCopy(log_probs))


def replay(window: Window, fills: Sequence[Tokens], engine: Engine) -> Steps[None]:
    """A written window as states of the reverse process: slots that move, or fixed ones revealed from the left.

    Where slots move, the network decides how; the tokens are those that were written.
    """
    if window.settings.terminal is not None and any(map(len, fills)):
        yield from engine.moving_states(window, fills)
        return
    sample = Sample(window, [len(fill) for fill in fills], from_left=True)
    vocabulary = engine.model.vocabulary
    start = FixedLength().start([sample.example], engine.sample_slots(sample), window.key, vocabulary)
    samples = [sample]
    for number in range(sample.steps + 1):
        x = start.x.clone()
        for span, fill in zip(sample.spans, fills, strict=True):
            done = -(-len(fill) * number // sample.steps)
            x[0, span.start : span.start + done] = torch.from_numpy(fill[:done])
        yield Step(samples, replace(start, x=x, t=torch.full_like(start.t, 1 - number / sample.steps)), number)
