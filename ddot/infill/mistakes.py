"""Mistakes of users, explained in the terms of the interface they used: Python, JSON, or the command line."""

import json
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """How an interface writes the name of a setting, a value, a blank left `open` among fills, and a `free` text."""

    name: Callable[[str], str]
    spelt: Callable[[object], str]
    open: str
    free: str

    def value(self, value: object) -> str:
        """A value as it is quoted in an error."""
        text = self.spelt(value)
        return text if len(text) <= 40 else text[:37] + "…"


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


PYTHON = Dialect(str, repr, "None", "free=True")
JSON = Dialect(str, _as_json, "null", '"free" instead of "text"')
COMMAND_LINE = Dialect(_option, repr, "-", "--free")


class Mistake(ValueError):
    """A mistake whose message depends on the dialect; as a ValueError it has that of Python."""

    def __init__(self, tell: Callable[[Dialect], str]):
        super().__init__(tell(PYTHON))
        self.tell = tell

    def __reduce__(self) -> tuple[type[ValueError], tuple[str]]:
        return ValueError, (str(self),)  # a function cannot be sent to another process


def told(error: Exception, dialect: Dialect) -> str:
    """The message of an error in a dialect."""
    return error.tell(dialect) if isinstance(error, Mistake) else str(error)
