"""Paths of slots over time: those of a fill, and the training paths of a sentence. Data only, no drawing."""

import re
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ddot.core.codes import PAD, PROMPT, RESPONSE
from ddot.core.coupling import Coupling
from ddot.core.positions import Terminal
from ddot.core.rng import generator, row_keys
from ddot.data.masks import Blocks, Units
from ddot.figures.canvas import printable
from ddot.infill.frames import Frame

_LONGEST = 22  # characters of a label


@dataclass(frozen=True)
class Track:
    """The path of one slot: its place at each time. Its word is known from times[known] on."""

    kind: int  # PROMPT, RESPONSE, PAD
    label: str
    times: Float[np.ndarray, "steps"]
    places: Float[np.ndarray, "steps"]
    known: int


@dataclass(frozen=True)
class Sentence:
    """A text, its words or pieces in order, and which of them are given."""

    text: str
    words: list[str]
    is_prompt: list[bool]


def marked_sentence(text: str, seed: int = 0) -> Sentence:
    """A sentence with its [missing words] in brackets; without brackets, some are chosen as in training."""
    if re.search(r"[\[\]]", re.sub(r"\[[^\[\]]*\]", "", text)):
        raise ValueError(f"'{text}' has a bracket without its other half; write it as in 'She [opened the] door'")
    words, is_prompt = [], []
    for part in re.findall(r"\[[^\[\]]*\]|[^\[\]]+", text):
        missing = part.startswith("[")
        some = part.strip("[]").split()
        words += some
        is_prompt += [not missing] * len(some)
    if not words:
        raise ValueError("the text is empty; give a sentence, such as 'She [opened the] door'")
    if all(is_prompt) and len(words) > 1:
        rng, mask = generator(int(row_keys(seed, 1)[0])), Blocks(low=1, high=3)
        while all(is_prompt):
            is_prompt = mask(Units.alike(len(words)), rng).tolist()
    return Sentence(" ".join(words), words, is_prompt)


def tracks(frames: Sequence[Frame], scaled: bool) -> list[Track]:
    """The path of every slot, in slots, or scaled to undo the shrinking of eq. init_pos."""
    last, L = frames[-1], len(frames[-1].pieces)
    kinds = [
        PROMPT if given else PAD if piece == "" else RESPONSE
        for piece, given in zip(last.pieces, last.given, strict=True)
    ]
    times = np.array([frame.t for frame in frames])
    z = np.array([frame.positions for frame in frames])
    share = 1 - kinds.count(PAD) / L
    places = z / (times + (1 - times) * share)[:, None] if scaled else in_slots(z, L)
    found = []
    for slot, kind in enumerate(kinds):
        known = next((n for n, frame in enumerate(frames) if frame.pieces[slot] is not None), len(frames))
        label = _short(last.pieces[slot]) if kind != PAD else ""
        found.append(Track(kind, label, times, places[:, slot], known))
    return found


def coupled(sentence: Sentence, slots: int | None, seed: int, coupling: Coupling, terminal: Terminal) -> list[Track]:
    """The straight paths of a sentence's slots under a coupling (eq. train-paths)."""
    n = len(sentence.words)
    L = slots if slots is not None else n + -(-n // 3)
    if n > L:
        raise ValueError(f"{n} words do not fit into {L} slots; give at least {n}")
    is_prompt = np.zeros((1, L), bool)
    is_prompt[0, :n] = sentence.is_prompt
    keys = row_keys(seed, 1)
    z_0, z_T = coupling(is_prompt, np.array([n]), keys, terminal(is_prompt, keys))
    ends = np.array([1.0, 0.0])
    places = np.stack([z_T[0], z_0[0]], axis=1).astype(np.float64)
    kinds = [PROMPT if given else RESPONSE for given in sentence.is_prompt] + [PAD] * (L - n)
    labels = [_short(word) for word in sentence.words] + [""] * (L - n)
    return [Track(kinds[slot], labels[slot], ends, places[slot], 0) for slot in range(L)]


def crossings(z_T: Float[np.ndarray, "n"], z_0: Float[np.ndarray, "n"]) -> int:
    """The number of pairs of straight paths from z_T to z_0 that cross."""
    passed: list[float] = []  # ends of the paths that start before this one
    count = 0
    for place in np.lexsort((z_0, z_T)).tolist():
        count += len(passed) - bisect_right(passed, float(z_0[place]))
        insort(passed, float(z_0[place]))
    return count


def crossings_within(some: Sequence[Track], kind: int) -> int:
    """The number of pairs of slots of one kind that swap their order."""
    members = [track for track in some if track.kind == kind]
    return crossings(np.array([t.places[0] for t in members]), np.array([t.places[-1] for t in members]))


def in_slots(z: np.ndarray, L: int) -> np.ndarray:
    """Places in [-1, 1] as places in a context of L slots, where clean neighbours are about 1 apart."""
    return (z + 1) * (L / 2)


def from_slots(places: np.ndarray, L: int) -> np.ndarray:
    """Places in a context of L slots as places in [-1, 1]."""
    return places * (2 / L) - 1


def _short(piece: str | None) -> str:
    """The label of a piece; empty for a slot without a word."""
    if not piece:
        return ""
    shown = printable(piece).strip() or "␣"
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
