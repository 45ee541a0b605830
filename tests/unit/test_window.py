"""Windows of long texts: all blanks in turn, context kept whole, never more than the network takes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddot.data.tokenizer import learn_bpe
from ddot.infill.template import LONGEST, Blank, Template, free, parse
from ddot.infill.view import SLOTS, excerpt, head, slots_for, tail, view

SENTENCES = ["The lamp in the hall was lit, and somebody had left the door open for us.", "No one answered at first."]
TOKENIZER = learn_bpe(SENTENCES * 4, 360)
PIECES = ["the lamp ", "and ", "Ünïcödé ", "漢字漢字", "🙂🙂", "\n\n", "  ", "x" * 40, "a.b,c", " ", ""]


def windows(template, fill, located=True):
    """The windows of a template that is filled window by window, with the number of blanks filled before each."""
    fills = []
    while len(fills) < len(template.blanks):
        part = excerpt(template, fills, TOKENIZER, located)
        yield len(fills), part
        fills += [fill] * len(part.template.blanks)


@st.composite
def long_parts(draw):
    literals = draw(st.lists(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), min_size=2, max_size=12))
    least = draw(
        st.lists(st.sampled_from([0, 0, 0, 3, LONGEST]), min_size=len(literals) - 1, max_size=len(literals) - 1)
    )
    return literals, least


@given(long_parts(), st.sampled_from(["", "word", "two words", "漢字"]))
@settings(max_examples=150)
def test_windows_hold_every_blank_once_in_its_own_surroundings(parts, fill):
    literals, least = parts
    template = Template(tuple(literals), tuple(Blank(each, None) for each in least))
    seen = 0
    for first, part in windows(template, fill):
        assert first == seen
        inner = part.template
        seen += len(inner.blanks)
        assert inner.blanks == template.blanks[first:seen]
        assert inner.literals[1:-1] == template.literals[first + 1 : seen]
        # The text on the left ends as the text filled so far ends, the text on the right begins as the literal does.
        so_far = Template(template.literals[: first + 1], template.blanks[:first]).text([fill] * first)
        assert so_far.endswith(inner.literals[0])
        assert template.literals[seen].startswith(inner.literals[-1])
        assert part.begins == (inner.literals[0] == so_far)
        assert part.ends == (seen == len(template.blanks) and inner.literals[-1] == template.literals[-1])
        prompt = view(inner, TOKENIZER, True, part.begins, part.ends).prompt
        # A cut may take a token or two more than were counted: words are cut into tokens otherwise at a border.
        assert len(prompt) + sum(map(slots_for, inner.blanks)) <= SLOTS + 8
        assert len(prompt) + sum(blank.least for blank in inner.blanks) <= SLOTS
    assert seen == len(template.blanks)


def test_a_short_text_is_one_whole_window():
    template = parse("The lamp ___ in the hall ___{2,3} lit.")
    [(first, part)] = windows(template, "x")
    assert first == 0
    assert part.template == template
    assert part.begins
    assert part.ends


def test_many_words_in_free_order_share_a_window():
    # What the network is to decide is where text goes: it must see all the words at once.
    template = free("lamp hall door open first one lit left us and")
    [(_, part)] = windows(template, "x", located=False)
    assert part.template == template


@pytest.mark.parametrize("unit", ["the lamp ", "漢字", "🙂 ", "x"])
def test_a_blank_in_a_long_text_sees_both_sides(unit):
    before, after = unit * 3000, " " + unit * 3000
    part = excerpt(Template((before, after), (Blank(),)), [], TOKENIZER)
    left, right = (TOKENIZER.encode(text) for text in part.template.literals)
    assert not part.begins
    assert not part.ends
    assert min(len(left), len(right)) > SLOTS // 4
    # What one side does not need the other gets.
    part = excerpt(Template((before, " end"), (Blank(),)), [], TOKENIZER)
    assert len(TOKENIZER.encode(part.template.literals[0])) > SLOTS // 2
    assert part.ends


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(0, 30))
def test_heads_and_tails_keep_whole_characters_and_words(text, count):
    tokens = TOKENIZER.encode(text)
    if count > len(tokens):
        return
    start = head(text, count, TOKENIZER)
    assert text.startswith(start)
    assert len(start) <= len(TOKENIZER.decode(tokens[:count]))
    at = len(start)
    assert at in (0, len(text)) or text[at - 1].isspace() or text[at].isspace() or len(start.split()) <= 1
    if count:
        end = tail(text, count, TOKENIZER)
        assert text.endswith(end)
        cut = len(text) - len(end)
        # Either no word is cut in two or what is left is one word.
        assert cut in (0, len(text)) or text[cut - 1].isspace() or text[cut].isspace() or len(end.split()) <= 1


def test_where_tokens_end_is_where_their_text_ends():
    for text in ("the lamp in Ünïcödé", " 漢字 🙂é", "", "a \n\n\t b"):
        ends = TOKENIZER.ends(text)
        tokens = TOKENIZER.encode(text)
        assert len(ends) == len(tokens)
        for count, end in enumerate(ends, 1):
            spelled = TOKENIZER.decode(tokens[:count])
            assert spelled == text[:end] or "\ufffd" in spelled
        assert (np.diff([0, *ends]) >= 0).all()
        assert ends[-1:] == [len(text)][: len(ends)]
