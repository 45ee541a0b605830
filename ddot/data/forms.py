"""Splits documents into sentences or functions, and tokenises sentences the way the benchmarks do."""

import ast
import re
import textwrap
import warnings
from collections.abc import Callable

CODE_SLOTS = 256  # L of programs, in training and in the benchmark

_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Sen|Rep|Gov|Lt|Col|Sgt|Capt|St|Jr|Sr|Inc|Corp|Ltd|Co|No|vs|etc|e\.g|i\.e|approx"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)|\b[A-Z]|\.[A-Za-z])\.$"
)
_END = re.compile(r"([.!?…]+[\"'”’)\]]*)\s+(?=[\"'“‘(\[]?[A-ZÀ-ÖØ-Þ0-9])")
_NO_SPACE = re.compile(r"([a-z][.!?][\"”]?)([A-Z][a-z])")


def sentences(text: str) -> list[str]:
    """The sentences of a text; abbreviations and initials do not end one."""
    text = _NO_SPACE.sub(r"\1 \2", " ".join(text.split()))
    parts, start = [], 0
    for match in _END.finditer(text):
        end = match.end(1)
        if not _ABBREVIATION.search(text, max(start, end - 12), end):
            parts.append(text[start:end])
            start = match.end()
    if start < len(text):
        parts.append(text[start:])
    return parts


_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "`": "'", "–": " -- ", "—": " -- ", "…": " ... "})
_DOUBLE = (re.compile(r"''"), '"')
_APART = [
    (re.compile(r"(\.{2,}|--+)"), r" \1 "),
    (re.compile(r"(?<!\d),|,(?!\d)"), " , "),
    (re.compile(r"([;:?!()\[\]{}\"$£€%&])"), r" \1 "),
    (re.compile(r"(?<=\w)'(?=\w)"), " '"),
]
_NEWS = [
    # A quote, not a clitic of already tokenised text ("won 't").
    (re.compile(r"(?<!\w)'(?!(?:s|t|m|d|re|ve|ll)\b)|'(?!\w)"), " ' "),
    (re.compile(r"([/#+@*=])"), r" \1 "),
]
# The final full stop, unless the word before it has letters and another one: "U.S.", "p.m.", "example.com." keep it.
_FULL_STOP = (re.compile(r"(?<!\S)([^\s.]+|[^\sA-Za-z]+)(?<!\.)\.(?=[\s\"')\]]*$)"), r"\1 . ")
_LAST_STOP = (re.compile(r"(?<!\.)\.(?=[\s\"')\]]*$)"), " . ")


def _spaced(sentence: str, rules: list[tuple[re.Pattern[str], str]]) -> str:
    sentence = sentence.translate(_QUOTES)
    for pattern, spaced in rules:
        sentence = pattern.sub(spaced, sentence)
    return " ".join(sentence.split())


def in_news_form(sentence: str) -> str:
    """A sentence tokenised as in One-Billion-Word: spaces around punctuation, "won 't", "Obama 's", plain quotes."""
    return _spaced(sentence, [_DOUBLE, *_NEWS, *_APART, _FULL_STOP])


def in_review_form(sentence: str) -> str:
    """A sentence tokenised and lower-cased as in the Yelp benchmark, with less punctuation split off than in news."""
    return _spaced(sentence.replace(" n't", "n't"), [_DOUBLE, *_APART, _LAST_STOP]).lower()


def functions(text: str) -> list[str]:
    """The functions and methods of a Python file, dedented; an empty list if it does not parse."""
    try:
        with warnings.catch_warnings(action="ignore"):
            module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines = re.split(r"\r\n|\r|\n", text)
    sources: list[str] = []
    bodies: list[list[ast.stmt]] = [module.body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.ClassDef):
                bodies.append(node.body)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                sources.append(textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno])))
    return sources


FORMS: dict[str, Callable[[str], str]] = {"natural": str, "news": in_news_form, "reviews": in_review_form}
SPLITS: dict[str, Callable[[str], list[str]]] = {
    "sentences": sentences,
    "lines": lambda text: [text],
    "functions": functions,
}
