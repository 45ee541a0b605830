"""Fill blanks of unknown length: tokens and continuous positions, denoised together.

`ddot.load().infill("We were so ___ wedding.", n=3)` gives three ways to fill it, best first.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddot.infill.frames import Frame
    from ddot.infill.model import Infill, Model, load

__version__ = "0.1.0"
__all__ = ["Frame", "Infill", "Model", "load"]


def __dir__() -> list[str]:
    return ["__version__", *__all__]


def __getattr__(name: str) -> Any:
    """The public names, imported when they are first asked for: `import ddot` alone stays quick."""
    if name not in __all__:
        raise AttributeError(f"ddot has no '{name}'; it has {', '.join(__all__)}")
    from ddot.infill import model

    return getattr(model, name)
