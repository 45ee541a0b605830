"""Programs as benchmark items: what is shown, what is told, and that what is given comes back letter by letter."""

import json
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddot.core.codes import AFTER, BEFORE, GLUED, UNKNOWN
from ddot.data.forms import CODE_SLOTS
from ddot.data.tokenizer import learn_bpe
from ddot.evaluation.items import CODE_GAP, Program, read_items

LINES = [
    "def mean(values, weights=None):",
    '    """The mean, or the weighted one — with Σ."""',
    "    total = 0.0",
    "",
    "    for place, value in enumerate(values):",
    "\ttotal += value * (1 if weights is None else weights[place])",
    "    if not values: raise ValueError('nothing  here')",
    "    return total / len(values)",
]
TOKENIZER = learn_bpe(["\n".join(LINES)], 400)


def item(first, last, lines=LINES):
    """A program whose lines first … last − 1 are missing."""
    prefix, middle, suffix = (
        "".join(f"{line}\n" for line in some) for some in (lines[:first], lines[first:last], lines[last:])
    )
    return Program("a", (prefix, suffix), (middle,))


def nothing(prompted):
    return [np.zeros(0, np.int64) for _ in range(len(prompted.prompt) + 1)]


@given(
    first=st.integers(1, len(LINES)),
    length=st.integers(0, 4),
    fill=st.text(max_size=20),
    times=st.integers(1, 12),
    located=st.booleans(),
)
@settings(max_examples=60)
def test_what_is_given_comes_back_verbatim(first, length, fill, times, located):
    whole = item(first, min(len(LINES), first + length), LINES)
    long = Program("a", (whole.literals[0] * times, whole.literals[1] * (13 - times)), whole.fills)
    for program in (whole, long):
        (prefix, suffix), (missing,) = program.literals, program.fills
        prompted = program.prompted(TOKENIZER, located)
        assert prompted.filled(nothing(prompted), TOKENIZER) == prefix + suffix == program.unfilled
        gaps, middle = nothing(prompted), TOKENIZER.encode(fill)
        before = len(prompted.prompt) - 2 if not suffix else None
        gap = 1 + (int(np.flatnonzero(prompted.gap_lengths)[0]) if missing else before or 0)
        if missing or before:
            gaps[gap] = middle
            assert prompted.prompt.is_open[gap]
            assert prompted.filled(gaps, TOKENIZER) == prefix + fill + suffix
            tokens = prompted.prompt.example.tokens
            written = prompted.read(np.concatenate([tokens[:gap], middle, tokens[gap:]]), TOKENIZER)
            assert written == prefix + fill + suffix


def test_what_is_shown_lies_around_the_gap_and_leaves_room():
    sep, edge = TOKENIZER.vocabulary.sep, TOKENIZER.edge
    for before, after in ((1, 1), (40, 1), (1, 40), (40, 40), (12, 40), (40, 0)):
        part = item(3, 5)
        prefix, suffix = part.literals[0] * before, part.literals[1] * after
        program = Program("a", (prefix, suffix), part.fills)
        prompted = program.prompted(TOKENIZER, True)
        tokens = prompted.prompt.example.tokens
        start, stop = len(prompted.cut[0]), len(program.unfilled) - len(prompted.cut[1])
        shown = program.unfilled[start:stop]
        space = " " if start == 0 else ""  # as corpora have it in front
        assert TOKENIZER.decode(tokens[(tokens != sep) & (tokens != edge)]) == space + shown
        assert prefix.endswith(shown[: len(prefix) - start])
        assert suffix.startswith(shown[len(prefix) - start :])
        assert len(tokens) <= CODE_SLOTS - CODE_GAP
        assert (tokens[0] == sep) == (start > 0)
        assert (tokens[-1] == sep) == (stop < len(program.unfilled))
        if any(prompted.cut):
            assert len(tokens) == CODE_SLOTS - CODE_GAP


def test_located_and_free_by_hand():
    program = item(2, 4)
    middle = len(TOKENIZER.encode(program.fills[0]))
    located, free = (program.prompted(TOKENIZER, told) for told in (True, False))
    (gap,) = np.flatnonzero(located.prompt.is_open).tolist()
    assert located.gap_lengths.tolist() == [middle * (place == gap - 1) for place in range(len(located.prompt))]
    hint = located.prompt.example.hint.tolist()
    assert hint[gap - 1 : gap + 1] == [AFTER, BEFORE]
    assert set(hint[: gap - 1] + hint[gap + 1 :]) == {GLUED}
    assert (free.prompt.example.hint == UNKNOWN).all()
    # Free: text may go before any word and any line, and at the end; never inside a word.
    tokens = free.prompt.example.tokens
    for place in range(1, len(tokens)):
        here, there = (TOKENIZER.decode(tokens[place - 1 : place]), TOKENIZER.decode(tokens[place : place + 1]))
        begins = place in (1, len(tokens) - 1) or there[:1].isspace() or "\n" in here
        assert bool(free.prompt.is_open[place]) == begins
    assert free.guess > len(free.prompt)


def test_metrics_read_programs():
    program = item(2, 4)
    assert program.text == "\n".join(LINES) + "\n"
    assert program.words == program.text.split()
    rest = iter(program.words)
    assert all(word in rest for word in program.given)
    assert program.words[: program.missing.index(max(program.missing))] == program.literals[0].split()
    assert sum(program.missing) == len(program.fills[0].split()) == len(program.words) - len(program.given)


def test_files_hold_both_kinds(tmp_path):
    file = tmp_path / "some.test.jsonl"
    program = {"id": "1", "prefix": "def f():\n", "middle": "    x = '\u2028'\n", "suffix": "    return x"}
    sentence = {"id": "2", "words": ["a", "b"], "keep": [1]}
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in (program, sentence)) + "\n")
    first, second = read_items(file)
    assert first.text == "def f():\n    x = '\u2028'\n    return x"
    assert second.unfilled == "b"
    assert second.missing == [1, 0]
    for wrong in (
        '{"words": ["a", "b"], "keep": [2]}',
        '{"id": "1", "prefix": 3, "middle": "", "suffix": ""}',
        '{"id": "1", "prefix": ""}',
        '{"id": ["1"], "words": ["a"], "keep": [0]}',
        "[]",
        "no",
    ):
        file.write_text(wrong + "\n")
        with pytest.raises(ValueError, match="line 1: expected "):
            read_items(file)
    file.write_text('{"id": 7, "words": ["a"], "keep": [0]}\n{"id": "7", "words": ["b"], "keep": [0]}\n')
    with pytest.raises(ValueError, match=r"line 2: .*item 1 has the id '7'"):
        read_items(file)
    file.write_text("\n")
    with pytest.raises(ValueError, match=r"some\.test\.jsonl has no items"):
        read_items(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"some\.test\.jsonl is not UTF-8"):
        read_items(file)


def test_lines_end_with_their_breaks():
    text = textwrap.dedent("""
        one two

          three
        four""")
    tokens = TOKENIZER.encode(text)
    lines = TOKENIZER.lines(tokens)
    pieces = [TOKENIZER.decode(tokens[lines == line]) for line in range(int(lines[-1]) + 1)]
    assert "".join(pieces) == text
    assert all("\n" in piece for piece in pieces[:-1])
    assert pieces[-1] == "four"
