"""Public entry point for the coupling: `from ddot.coupling import match, couple`."""

from ddot.core.coupling import couple, match

__all__ = ["couple", "match"]
