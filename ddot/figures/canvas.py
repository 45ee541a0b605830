"""What all figures share: the form of the file, a canvas with the house's settings, the finished bytes."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def form_of(path: Path | str) -> str:
    """The form a figure is to have: png or svg. Asked before anything is worked out."""
    form = Path(path).suffix.lower().removeprefix(".")
    if form not in ("png", "svg"):
        raise ValueError(f"'{path}' ends in neither .png nor .svg; give a name that ends in one of them")
    return form


@contextmanager
def canvas(width: float, height: float) -> Iterator[Any]:
    """An empty figure, in inches; it is drawn and turned into bytes inside."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plots need the extra `plots`: pip install -e '.[plots]'") from None
    settings: Any = {
        "font.family": "sans-serif",
        "font.size": 9.0,
        "svg.fonttype": "none",  # words stay words, to be searched and copied
        "svg.hashsalt": "ddot",  # the same figure is the same file
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
