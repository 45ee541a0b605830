"""What figures share: the file format, a canvas with common settings, labels that do not overlap."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ddot.version import extra


def form_of(path: Path | str) -> str:
    """The format of a figure, png or svg; checked before any work."""
    form = Path(path).suffix.lower().removeprefix(".")
    if form not in ("png", "svg"):
        raise ValueError(f"'{path}' ends in neither .png nor .svg; give a name that ends in one of them")
    return form


@contextmanager
def canvas(width: float, height: float) -> Iterator[Any]:
    """An empty figure, in inches, to be drawn and saved inside."""
    with extra("plotting", "plots"):
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    settings: Any = {
        "font.family": "sans-serif",
        "font.size": 9.0,
        "svg.fonttype": "none",  # text stays text, to be searched and copied
        "svg.hashsalt": "ddot",  # the same figure gives the same file
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure


def image(figure: Any, form: str) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=160, metadata={"Date": None} if form == "svg" else {})
    return file.getvalue()


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
