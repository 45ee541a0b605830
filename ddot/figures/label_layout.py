"""Labels along a line: printable, and without overlaps."""

import numpy as np
from jaxtyping import Float


def spread(
    starts: Float[np.ndarray, "n"], sizes: Float[np.ndarray, "n"], low: float, high: float, whole: bool = False
) -> Float[np.ndarray, "n"]:
    """Where labels begin that want to begin at `starts`: in order, without overlaps, in [low, high].

    Moved as little as possible (least squares), then pushed inside. Labels too large in total begin at `low` and run
    past `high`. `whole`: at whole numbers, such as the cells of a terminal.
    """
    before = np.cumsum(sizes) - sizes  # the space that all earlier labels need
    packed = ascending(starts - before)
    if whole:
        packed = np.floor(packed + 0.5)
    return np.maximum(low, np.minimum(packed, high - sizes.sum())) + before


def ascending(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Isotonic regression: the nearest non-decreasing numbers."""
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        blocks.append((mean, count))
    return np.repeat([mean for mean, _ in blocks], [count for _, count in blocks]).astype(values.dtype)


def printable(text: str) -> str:
    """Text without control characters and line breaks."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)
