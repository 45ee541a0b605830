"""Request bodies and their validation; errors say what was wanted. Unknown fields are ignored."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ddot.infill.mistakes import JSON
from ddot.infill.settings import TERMINALS, Settings, whole_number
from ddot.serve.replies import HTTPError

MAX_CHARACTERS = 20_000
MAX_BLANKS = 64
MAX_N = 16
MAX_STEPS = 128
MAX_WORK = 8_192  # n × steps × blanks: many blanks or many alternatives only with few steps

_TEXT = f"a string of up to {MAX_CHARACTERS:,} characters"
_STOP = "a string, or a list of strings"

_LIMITS = {"n": MAX_N, "steps": MAX_STEPS}
# What `Settings` and `BaseRequest.settings` check, for readers of /openapi.json.
_BOUNDS: dict[str, dict[str, Any]] = {
    "temperature": {"minimum": 0, "maximum": 10},
    "top_p": {"exclusiveMinimum": 0, "maximum": 1},
    "terminal": {"enum": list(TERMINALS)},
    **{name: {"minimum": 1, "maximum": limit} for name, limit in _LIMITS.items()},
}


def _add_settings(schema: dict[str, Any]) -> None:
    """Add the settings, with the limits of this server; null means the default."""
    for name, field in TypeAdapter(Settings).json_schema()["properties"].items():
        types = field.pop("anyOf", [{"type": field.pop("type", "array")}])
        types[0] |= _BOUNDS.get(name, {})
        types = [*(schema_type for schema_type in types if schema_type != {"type": "null"}), {"type": "null"}]
        schema["properties"][name] = {**field, "anyOf": types}


class BaseRequest(BaseModel):
    """A field's description is what errors say was wanted. Settings are checked by `Settings` itself."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, json_schema_extra=_add_settings)

    stream: bool | None = Field(False, description="true or false")

    @property
    def settings(self) -> Settings:
        given = self.model_extra or {}
        for name, limit in _LIMITS.items():  # first, so that an error names the limits of this server
            if given.get(name) is not None:
                whole_number(name, given[name], 1, limit)
        return Settings().updated(given)


class InfillRequest(BaseRequest):
    """POST /v1/infill."""

    text: str | None = Field(None, max_length=MAX_CHARACTERS, description=_TEXT)
    free: Annotated[str, Field(max_length=MAX_CHARACTERS)] | bool | None = Field(
        None, description=f"{_TEXT}, or true for a text of words in order"
    )
    fills: list[str | None] | None = Field(None, description="a list with a string or null for each blank")


class Chunk(BaseModel):
    """A piece of another file; the model reads its text."""

    text: str
    filename: str | None = None


class MiddleRequest(BaseRequest):
    """A request for the text between two texts."""

    stop: str | list[str] | None = Field(None, description=_STOP)

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class EditorRequest(MiddleRequest):
    """POST /infill, as in llama.cpp's server."""

    input_prefix: str | None = Field(None, description="a string")
    input_suffix: str | None = Field(None, description="a string")
    input_extra: list[Chunk] | None = Field(None, description='a list of {"text": "…", "filename": "…"}')
    prompt: str | None = Field(None, description="a string")
    n_predict: int | None = Field(-1, description="a whole number, −1 for no limit")
    n_cmpl: int | None = Field(None, ge=1, le=MAX_N, description=f"a whole number from 1 to {MAX_N}; else n counts")
    t_max_predict_ms: float | None = Field(0, description="a number of milliseconds")
    response_fields: list[str] | None = Field(None, description="a list of strings")

    @property
    def settings(self) -> Settings:
        settings = super().settings
        return replace(settings, n=settings.n if self.n_cmpl is None else self.n_cmpl)


class StreamOptions(BaseModel):
    include_usage: bool | None = False


class CompletionRequest(MiddleRequest):
    """POST /v1/completions, as in OpenAI's API."""

    prompt: str | list[str] = Field(description=_STOP)
    suffix: str | None = Field(None, description="a string")
    max_tokens: int | None = Field(None, ge=0, description="a whole number, 0 or more")
    echo: bool | None = Field(False, description="true or false")
    stream_options: StreamOptions | None = Field(None, description='{"include_usage": true}')


REQUEST_TYPES: dict[str, type[BaseRequest]] = {
    "/v1/infill": InfillRequest, "/infill": EditorRequest, "/v1/completions": CompletionRequest
}  # fmt: skip


def validation_error(error: RequestValidationError, path: str) -> HTTPError:
    """What is wrong with a body that failed validation, and what was wanted."""
    first, given = error.errors()[0], error.body
    if first["type"] == "json_invalid":
        return HTTPError(400, f"the body is not JSON ({first['ctx']['error']}); wanted a JSON object", "bad_json")
    if len(first["loc"]) < 2:
        body = "empty" if given is None else JSON.value(given)
        return HTTPError(400, f"the body is {body}; wanted a JSON object", "bad_json")
    name = str(first["loc"][1])
    wanted = REQUEST_TYPES[path].model_fields[name].description
    if first["type"] == "string_unicode":
        sentence = f'"{name}" holds half a character (a lone surrogate); remove it or send the whole character'
    elif name not in given:
        sentence = f'"{name}" is missing; wanted {wanted}'
    else:
        sentence = f'"{name}" is {JSON.value(given[name])}; wanted {wanted}'
    return HTTPError(400, sentence, "bad_value")


def check_work(settings: Settings, blanks: int) -> None:
    """Refuse a request that is too much work."""
    work = settings.n * settings.steps * blanks
    if work > MAX_WORK:
        raise ValueError(
            f"n × steps × blanks is {settings.n} × {settings.steps} × {blanks} = {work:,}; at most {MAX_WORK:,} is "
            "allowed in one request: ask for less, or send several requests"
        )
