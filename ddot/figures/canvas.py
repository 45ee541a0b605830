"""What all figures share: the file format, a canvas with common settings, the finished bytes."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def form_of(path: Path | str) -> str:
    """The format of a figure, png or svg; checked before any work."""
    form = Path(path).suffix.lower().removeprefix(".")
    if form not in ("png", "svg"):
        raise ValueError(f"'{path}' ends in neither .png nor .svg; give a name that ends in one of them")
    return form


@contextmanager
def canvas(width: float, height: float) -> Iterator[Any]:
    """An empty figure, in inches, to be drawn and saved inside."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plots need the extra `plots`: pip install -e '.[plots]'") from None
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
    """The finished file."""
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=160, metadata={"Date": None} if form == "svg" else {})
    return file.getvalue()
