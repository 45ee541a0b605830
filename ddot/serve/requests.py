"""What clients send: read with a limit and checked; errors say what was wanted. Unknown fields are ignored."""

import asyncio
import json
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ddot.infill.settings import Settings, whole_number
from ddot.serve.replies import Refused

MOST_BYTES = 1 << 20
MOST_CHARACTERS = 20_000
MOST_BLANKS = 64
MOST_N = 16
MOST_STEPS = 128
_PATIENCE = 30.0  # seconds for a body to arrive
_DRAINED = 64 << 20  # bytes of a body that is too large are still read: a client cut off while sending sees no answer

_TEXT = f"a string of up to {MOST_CHARACTERS:,} characters"
_STOP = "a string, or a list of strings"


def _with_settings(schema: dict[str, Any]) -> None:
    schema["properties"] |= TypeAdapter(Settings).json_schema()["properties"]


class Asked(BaseModel):
    """A request. A field's description is what errors say was wanted. Settings are checked by `Settings` itself."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, json_schema_extra=_with_settings)

    stream: bool | None = Field(False, description="true or false")

    @property
    def settings(self) -> Settings:
        settings = Settings().updated(self.model_extra or {})
        whole_number("n", settings.n, 1, MOST_N)
        whole_number("steps", settings.steps, 1, MOST_STEPS)
        return settings


class InfillRequest(Asked):
    """POST /v1/infill."""

    text: str | None = Field(None, max_length=MOST_CHARACTERS, description=_TEXT)
    free: str | bool | None = Field(None, description=f"{_TEXT}, or true for a text of words in order")
    fills: list[str | None] | None = Field(None, description="a list with a string or null for each blank")


class Chunk(BaseModel):
    """A piece of another file."""

    text: str


class Between(Asked):
    """What goes between two texts."""

    stop: str | list[str] | None = Field(None, description=_STOP)

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class EditorRequest(Between):
    """POST /infill, as llama.cpp's server."""

    input_prefix: str | None = Field(None, description="a string")
    input_suffix: str | None = Field(None, description="a string")
    input_extra: list[Chunk] | None = Field(None, description='a list of {"text": "…", "filename": "…"}')
    prompt: str | None = Field(None, description="a string")
    n_predict: int | None = Field(-1, description="a whole number, −1 for no limit")
    t_max_predict_ms: float | None = Field(0, description="a number of milliseconds")
    response_fields: list[str] | None = Field(None, description="a list of strings")


class StreamOptions(BaseModel):
    include_usage: bool | None = False


class CompletionRequest(Between):
    """POST /v1/completions, as OpenAI's."""

    prompt: str | list[str] = Field(description=_STOP)
    suffix: str | None = Field(None, description="a string")
    max_tokens: int | None = Field(None, ge=0, description="a whole number, 0 or more")
    echo: bool | None = Field(False, description="true or false")
    stream_options: StreamOptions | None = Field(None, description='{"include_usage": true}')


A = TypeVar("A", bound=Asked)


async def read(request: Request, kind: type[A]) -> A:
    """The request in a body."""
    try:
        given = json.loads(await _body(request))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, numbers of thousands of digits
        raise Refused(400, f"the body is not JSON ({error})", "bad_json") from None
    if not isinstance(given, dict):
        raise Refused(400, f"the body is a JSON {type(given).__name__}; wanted an object", "bad_json")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise Refused(400, _sentence(error, kind, given), "bad_value") from None


def _sentence(error: ValidationError, kind: type[Asked], given: dict[str, Any]) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0])
    wanted = kind.model_fields[name].description
    if first["type"] == "string_unicode":
        return f'"{name}" holds half a character (a lone surrogate); take it out or write the whole one'
    if name not in given:
        return f'"{name}" is missing; wanted {wanted}'
    said = json.dumps(given[name], ensure_ascii=False)
    return f'"{name}" is {said if len(said) <= 60 else said[:59] + "…"}; wanted {wanted}'


async def _body(request: Request) -> bytes:
    """The body, if it is within the size limit and arrives in time."""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in request.stream():
                size += len(part)
                if size <= MOST_BYTES:
                    body += part
                elif size > _DRAINED:
                    break
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {_PATIENCE:.0f} seconds", "too_slow") from None
    if size > MOST_BYTES:
        raise Refused(413, f"the body is too large; up to {MOST_BYTES:,} bytes are read", "too_large")
    return bytes(body)
