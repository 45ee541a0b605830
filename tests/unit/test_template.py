"""What users write, against tables made by hand and a round trip through any text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddot.infill.template import LONGEST, Blank, Template, free, lock, parse, write

ANY = Blank()


@pytest.mark.parametrize(
    ("source", "literals", "blanks"),
    [
        ("We met ___ the sea.", ("We met ", " the sea."), (ANY,)),
        ("___", ("", ""), (ANY,)),
        ("________", ("", ""), (ANY,)),  # longer lines are one blank
        ("snake_case and __dunder__ ___", ("snake_case and __dunder__ ", ""), (ANY,)),
        ("___ ___", ("", " ", ""), (ANY, ANY)),
        ("___{1}___{2}", ("", "", ""), (Blank(1, 1), Blank(2, 2))),
        ("a ___{3,8} b ___{5} c", ("a ", " b ", " c"), (Blank(3, 8), Blank(5, 5))),
        ("___{3,}___{,8}", ("", "", ""), (Blank(3, None), Blank(0, 8))),
        ("___{ 3 , 8 }", ("", ""), (Blank(3, 8),)),
        ("___{0}", ("", ""), (Blank(0, 0),)),
        ("___{0,}", ("", ""), (Blank(0),)),
        (f"___{{007,{LONGEST}}}", ("", ""), (Blank(7, LONGEST),)),
        ("<mask> [MASK] [blank] <extra_id_0> <extra_id_12>", ("", " ", " ", " ", " ", ""), (ANY,) * 5),
        ("<mask>{2} [blank]{,1}", ("", " ", ""), (Blank(2, 2), Blank(0, 1))),
        ("[mask] <MASK> <extra_id_> ___", ("[mask] <MASK> <extra_id_> ", ""), (ANY,)),  # spelled otherwise: text
        (r"\___ ___", ("___ ", ""), (ANY,)),
        (r"\_____ ___", ("_____ ", ""), (ANY,)),
        (r"\<mask> \[MASK] \[blank] \<extra_id_3> ___", ("<mask> [MASK] [blank] <extra_id_3> ", ""), (ANY,)),
        (r"\\___", ("\\", ""), (ANY,)),
        (r"\\\___ ___", (r"\___ ", ""), (ANY,)),
        (r"\\\\___", (r"\\", ""), (ANY,)),
        (r"C:\new \_ \\ ___", (r"C:\new \_ \\ ", ""), (ANY,)),  # backslashes elsewhere are text
        (r"___\{3} ___\\{", ("", "{3} ", r"\\{"), (ANY, ANY)),
        ("___ {3}", ("", " {3}"), (ANY,)),
        ("{___}", ("{", "}"), (ANY,)),
        ("\n\t___\u00a0\r\n", ("\n\t", "\u00a0\r\n"), (ANY,)),
        ("naïve 漢字___🙂 שלום", ("naïve 漢字", "🙂 שלום"), (ANY,)),
    ],
)
def test_templates_are_read_as_the_manual_says(source, literals, blanks):
    assert parse(source) == Template(literals, blanks)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "the text is empty"),
        (" \n", "the text is empty"),
        ("all there", "no blank in 'all there'"),
        (r"only \___ here", "no blank"),
        ("a ___{3", "brace at character 6 .* not closed"),
        ("a ___{3 b ___ c", "brace at character 6 .* not closed"),
        ("a ___{few} b", r"'\{few\}' at character 6 .* are not numbers"),
        ("<mask>{-1}", "at character 7 .* are not numbers"),
        ("___{}", "character 4 .* are not numbers"),
        ("___{,}", "character 4 .* are not numbers"),
        ("___{1,2,3}", "character 4 .* are not numbers"),
        ("___{1 2}", "character 4 .* are not numbers"),
        ("___{1.5}", "character 4 .* are not numbers"),
        ("___{٣}", "character 4 .* are not numbers"),
        ("漢字 ___{2} ___{8,3}", "character 14 .* at least 8 and at most 3 words; swap them"),
        (f"___{{{LONGEST + 1}}}", f"character 4 .* too much; a blank holds up to {LONGEST} words"),
        ("___{2,100}", "character 4 .* too much"),
        ("___{" + "9" * 5000 + "}", "character 4 .* too much"),
        ("___{" + " " * 20_000 + "x}", "character 4 .* are not numbers"),
        ("half \ud83d ___", r"character 6 of the text is half a character \(\\ud83d"),
    ],
)
def test_mistakes_are_told_with_their_place(source, says):
    with pytest.raises(ValueError, match=says) as caught:
        parse(source)
    assert len(str(caught.value)) < 400  # one sentence, however long the text is


def test_a_mistake_far_into_a_text_is_shown_in_its_surroundings():
    with pytest.raises(ValueError, match=r"at character 1005 of '….*just here ___\{oops.*…'"):
        parse("a" * 990 + " just here ___{oops}" + "b" * 990)


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5))
def test_fills_come_where_blanks_were(fills):
    template = parse("start " + " | ".join(["___"] * len(fills)) + " end")
    assert template.text(fills) == "start " + " | ".join(fills) + " end"
    with pytest.raises(ValueError, match="zip"):
        template.text([*fills, "one more"])


# Texts that are hard to escape: all that a parser looks at, and anything else.
awkward = st.lists(
    st.one_of(
        st.sampled_from(
            ["_", "__", "___", "\\", "{", "}", "{2}", "\\{", "<mask>", "[MASK]", "[blank]", "<extra_id_7>"]
        ),
        st.text(max_size=4),
    ),
    max_size=6,
).map("".join)
# (least, most) of blanks, and pairs of a literal and the bounds of the blank after it.
bounds = st.one_of(
    st.just((0, None)),
    st.tuples(st.integers(0, LONGEST), st.none()),
    st.tuples(st.integers(0, LONGEST), st.integers(0, LONGEST)).map(lambda pair: tuple(sorted(pair))),
)
parts = st.lists(st.tuples(awkward, bounds), min_size=1, max_size=4)


def made_of(parts, end):
    return Template((*(literal for literal, _ in parts), end), tuple(Blank(*pair) for _, pair in parts))


@given(parts, awkward)
def test_any_literal_text_can_be_written_and_comes_back_verbatim(parts, end):
    assert parse(write(made_of(parts, end))) == made_of(parts, end)


@given(awkward)
def test_whatever_is_parsed_can_be_written_again(source):
    try:
        template = parse(source)
    except ValueError:
        return
    assert parse(write(template)) == template


def test_written_templates_look_like_what_people_write():
    for source in ["We met ___ the sea.", "___{2,3} or ___{4,} ___", r"a \___ b ___", "x_[blank]", "___{0,}___"]:
        assert write(parse(source)) == source


@given(awkward.filter(lambda text: text.split()))
def test_free_words_stand_in_order_with_blanks_around(source):
    template, words = free(source), source.split()
    assert template.blanks == (Blank(0),) * (len(words) + 1)
    assert template.text([""] * len(template.blanks)) == " ".join(words)
    assert [literal.strip() for literal in template.literals if literal] == words


@pytest.mark.parametrize("source", ["", "  \n"])
def test_free_wants_words(source):
    with pytest.raises(ValueError, match="give the words"):
        free(source)
    with pytest.raises(ValueError, match="half a character"):
        free("a \udc00")


@given(parts, awkward, st.data())
def test_locked_blanks_become_literal_text(parts, end, data):
    template = made_of(parts, end)
    fills = [" ".join(["word"] * least) for _, (least, _) in parts]
    is_locked = data.draw(st.lists(st.booleans(), min_size=len(fills), max_size=len(fills)))
    left = lock(template, [fill if locked else None for fill, locked in zip(fills, is_locked, strict=True)])
    assert left.blanks == tuple(b for b, locked in zip(template.blanks, is_locked, strict=True) if not locked)
    assert left.text([f for f, locked in zip(fills, is_locked, strict=True) if not locked]) == template.text(fills)


def test_locks_that_do_not_fit_are_refused():
    template = parse("a ___{2} b ___{1,3} c ___{1,}")
    with pytest.raises(ValueError, match="2 fills for 3 blanks"):
        lock(template, ["one two", None])
    for fills, says in [
        (["one", None, None], "'one' has 1 word, but blank 1 asks for exactly 2"),
        ([None, "a b c d", None], "has 4 words, but blank 2 asks for at least 1 and at most 3"),
        ([None, None, " "], "blank 3 asks for at least 1;"),
        ([None, None, "\ud800"], "half a character"),
    ]:
        with pytest.raises(ValueError, match=re.escape(says)):
            lock(template, fills)


@pytest.mark.parametrize("text", ["\\" * 100_000 + " ___", r"\___ " * 20_000 + "___", "___{0," + " " * 100_000 + "}"])
def test_odd_texts_take_no_more_time_than_long_ones(text):
    assert len(parse(text).blanks) == 1  # time that grows with the square of the length, or faster, would be minutes
