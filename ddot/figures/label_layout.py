"""Labels: text that is fit to be shown, along a line where none covers another.

Knows nothing about what the labels stand for.
"""

import numpy as np
from jaxtyping import Float


def spread(
    starts: Float[np.ndarray, "n"], sizes: Float[np.ndarray, "n"], low: float, high: float, whole: bool = False
) -> Float[np.ndarray, "n"]:
    """Where labels begin that would like to begin at `starts`: in the order given, none over another, in [low, high].

    Moved as little as can be (least squares), then pushed inside. Labels that are too large in all begin at `low` and
    run past `high`. `whole` sizes and bounds give whole places, as the cells of a terminal are.
    """
    before = np.cumsum(sizes) - sizes  # the room that all earlier labels need
    packed = ascending(starts - before)
    if whole:
        packed = np.floor(packed + 0.5)
    return np.maximum(low, np.minimum(packed, high - sizes.sum())) + before


def ascending(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """The nearest numbers that never fall (least squares): neighbours out of order share their mean."""
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        blocks.append((mean, count))
    return np.repeat([mean for mean, _ in blocks], [count for _, count in blocks]).astype(values.dtype)


def printable(text: str) -> str:
    """Text without what would steer a terminal or break a line."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)
