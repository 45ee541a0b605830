"""Fill blanks of unknown length: tokens and continuous positions, denoised together.

`ddot.load().infill("We were so ___ wedding.", n=3)` gives three ways to fill it, best first.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddot.infill.answers import Infill
    from ddot.infill.candidates import Candidate
    from ddot.infill.frames import Frame
    from ddot.infill.model import Model, load
    from ddot.infill.on_ray import on_ray
    from ddot.infill.settings import Settings

__version__ = "0.1.0"
__all__ = ["Candidate", "Frame", "Infill", "Model", "Settings", "load", "on_ray"]


def __dir__() -> list[str]:
    return ["__version__", *__all__]


def __getattr__(name: str) -> object:
    """The public names, imported when first used: `import ddot` alone stays fast."""
    if name not in __all__:
        raise AttributeError(f"ddot has no '{name}'; it has {', '.join(__all__)}")
    from ddot.infill import model, on_ray

    return getattr(on_ray if name == "on_ray" else model, name)
