"""Shared by all figures: a canvas that is saved as PNG or SVG, and labels that do not overlap."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ddot.files import check_place, write_whole
from ddot.version import extra


def check_picture(path: Path | str) -> None:
    """Refuse, before any work is done, a picture that could not be saved."""
    if Path(path).suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"'{path}' ends in neither .png nor .svg; use one of them")
    check_place(Path(path))
    with extra("plotting", "plots"):
        import matplotlib  # noqa: F401


@contextmanager
def canvas(path: Path | str, width: float, height: float) -> Iterator[Any]:
    """An empty figure, sized in inches; what the block draws is saved, as PNG or SVG by file name."""
    check_picture(path)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    form = Path(path).suffix.lower().removeprefix(".")
    settings: Any = {
        "font.family": "sans-serif",
        "font.size": 9.0,
        "svg.fonttype": "none",  # keep text as text, so that it can be searched and copied
        "svg.hashsalt": "ddot",  # reproducible files
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure
        image = io.BytesIO()
        figure.savefig(image, format=form, dpi=160, metadata={"Date": None} if form == "svg" else {})
    write_whole(path, image.getvalue())


def spread(
    starts: Float[np.ndarray, "n"], sizes: Float[np.ndarray, "n"], low: float, high: float, whole: bool = False
) -> Float[np.ndarray, "n"]:
    """Move labels from `starts` as little as possible (least squares) so that they do not overlap and stay in order.

    Then they are shifted into [low, high]; if they do not fit, they begin at `low` and run past `high`. `whole`: round
    to whole numbers, such as the cells of a terminal.
    """
    before = np.cumsum(sizes) - sizes  # space that earlier labels need
    packed = ascending(starts - before)
    if whole:
        packed = np.floor(packed + 0.5)
    return np.maximum(low, np.minimum(packed, high - sizes.sum())) + before


def ascending(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Isotonic regression: the nearest non-decreasing values."""
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        blocks.append((mean, count))
    return np.repeat([mean for mean, _ in blocks], [count for _, count in blocks]).astype(values.dtype)


def printable(text: str) -> str:
    """Text without control characters or line breaks."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)
