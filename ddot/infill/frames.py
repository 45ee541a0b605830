"""Filling as people see it: one frame for each state, and frames kept in a file to be watched or plotted later.

{"text": "We were so ___ wedding.", "settings": {"seed": 0, "steps": 16}, "frames": [
{"t": 1.0, "pieces": [" We", null, …], "positions": [-1.0, -0.5, …], "given": [true, false, …]},
…
]}
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddot.core.records import State, Vocabulary
from ddot.files import write_whole
from ddot.infill.alphabet import Alphabet
from ddot.infill.view import View

MASKED = "░"


@dataclass(frozen=True)
class Frame:
    """One moment of filling. For each slot: its piece of text (None: masked; "": no word), its place, was it given."""

    t: float
    pieces: list[str | None]
    positions: list[float]
    given: list[bool]

    @property
    def text(self) -> str:
        """How the text reads now, with ░ for what is still masked."""
        order = sorted(range(len(self.pieces)), key=lambda i: (self.positions[i], i))
        return "".join(f" {MASKED}" if self.pieces[i] is None else str(self.pieces[i]) for i in order).strip()


def frame_of(state: State, seen: View, alphabet: Alphabet, vocabulary: Vocabulary, row: int = 0) -> Frame:
    """How a row of a state looks while this view of a text is filled."""
    given = state.is_prompt[row].tolist()
    prompt = iter(seen.pieces)  # given slots are in the order of the text
    pieces: list[str | None] = []
    for token, is_given in zip(state.x[row].tolist(), given, strict=True):
        if is_given:
            pieces.append(next(prompt))
        elif token == vocabulary.mask:
            pieces.append(None)
        else:
            pieces.append(alphabet.pieces[token] if token < vocabulary.base else "")
    return Frame(float(state.t[row]), pieces, state.z[row].tolist(), given)


_PARTS = {"text": str, "settings": dict, "frames": list}


@dataclass(frozen=True)
class Trace:
    """What was filled, how, and every moment of it."""

    text: str
    settings: dict[str, Any]
    frames: list[Frame]


def save_trace(path: Path | str, text: str, settings: dict[str, Any], frames: Sequence[Frame]) -> None:
    """Write a trace. The file is either the whole new one or what was there before."""
    head = json.dumps({"text": text, "settings": settings}, ensure_ascii=False, allow_nan=False)
    lines = [json.dumps(asdict(frame), ensure_ascii=False, allow_nan=False) for frame in frames]
    body = ",\n".join(lines)
    write_whole(path, f'{head[:-1]}, "frames": [\n{body}\n]}}\n'.encode())


def load_trace(path: Path | str) -> Trace:
    """The trace in a file. A damaged one is refused with what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no trace at {path}; make one with ddot infill … --trace {path}")
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:  # bad JSON and bad UTF-8 alike
        raise _damaged(path, f"it is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise _damaged(path, f"it holds a {type(found).__name__}, not an object with {', '.join(_PARTS)}")
    for name, kind in _PARTS.items():
        if not isinstance(found.get(name), kind):
            raise _damaged(path, f'"{name}" is missing or no {kind.__name__}')
    if not found["frames"]:
        raise _damaged(path, "it has no frames")
    frames: list[Frame] = []
    for number, each in enumerate(found["frames"], 1):
        wrong = _wrong_with(each, frames[-1] if frames else None)
        if wrong:
            raise _damaged(path, f"in frame {number} {wrong}")
        frames.append(Frame(float(each["t"]), each["pieces"], [float(p) for p in each["positions"]], each["given"]))
    return Trace(found["text"], found["settings"], frames)


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} is no whole trace: {what}; write it again with ddot infill … --trace {path}")


def _wrong_with(frame: Any, before: Frame | None) -> str:
    """What is wrong with a frame that was read; empty if nothing."""
    if not isinstance(frame, dict) or set(frame) != {"t", "pieces", "positions", "given"}:
        return "there is not just t, pieces, positions and given"
    if not (_is_number(frame["t"]) and 0 <= frame["t"] <= 1):
        return f"t is {frame['t']!r}, not a number from 0 to 1"
    checks = {
        "pieces": (lambda each: each is None or isinstance(each, str), "texts or null"),
        "positions": (_is_number, "finite numbers"),
        "given": (lambda each: isinstance(each, bool), "true or false"),
    }
    for name, (is_right, wanted) in checks.items():
        if not (isinstance(frame[name], list) and all(map(is_right, frame[name]))):
            return f"{name} is no list of {wanted}"
    sizes = {name: len(frame[name]) for name in checks}
    slots = len(before.pieces) if before else sizes["pieces"]
    if set(sizes.values()) != {slots}:
        return f"there are {', '.join(f'{size} {name}' for name, size in sizes.items())}; {slots} of each were wanted"
    if not slots:
        return "there are no slots"
    if before and frame["given"] != before.given:
        return "other slots are given than in the frame before"
    if before and frame["t"] > before.t:
        return f"t rises from {before.t} to {frame['t']}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
