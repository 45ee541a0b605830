"""Masks and gap hints: what each promises, for all sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddot.core.codes import AFTER, BEFORE, BOTH, GLUED, NOT_PROMPT, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.gaps import gap_hints, missing_after, open_gaps
from ddot.core.rng import Weighted
from ddot.data.masks import (
    Block,
    Blocks,
    Independent,
    Keywords,
    Mix,
    Natural,
    Nothing,
    Telling,
    Units,
    by_unit,
    clause,
    phrase,
    sentence,
    word,
)


def spans(is_prompt):
    """Lengths of the runs of missing units."""
    text = "".join("." if given else "x" for given in is_prompt)
    return [len(run) for run in text.split(".") if run]


@given(st.integers(0, 40), st.integers(0, 10_000))
def test_every_mask_keeps_its_promise(n, seed):
    rng = np.random.default_rng(seed)
    units = Units.alike(n)
    assert min(1, n) <= Keywords(1, 6)(units, rng).sum() <= min(6, n)
    block = spans(Block(32)(units, rng))
    assert len(block) <= 1
    assert sum(block) <= 32
    blocks = spans(Blocks(2, 4, share=0.5)(units, rng))
    assert len(blocks) <= 4
    assert sum(blocks) <= n / 2
    assert not Nothing()(units, rng).any()
    assert Independent(1.0, 1.0)(units, rng).all()
    for mask in (Keywords(), Block(5), Blocks(), Independent(), Nothing(), Natural()):
        assert mask(units, rng).shape == (n,)


def test_block_lengths_and_places_are_spread_evenly():
    rng = np.random.default_rng(0)
    missing = np.array([~Block(32)(Units.alike(40), rng) for _ in range(6000)])
    counts = np.bincount(missing.sum(1), minlength=33)
    assert counts.min() > 120  # 6000 / 33 = 182 each
    assert counts.max() < 250


def test_keywords_prefer_heavy_words():
    rng = np.random.default_rng(0)
    weight = np.array([1.0, 10.0, 1.0, 10.0])
    units = Units(weight, np.zeros(4, bool), np.zeros(4, bool))
    kept = sum(Keywords(1, 1)(units, rng) for _ in range(4000))
    np.testing.assert_allclose(kept / 4000, weight / weight.sum(), atol=0.03)


def test_mix_uses_its_weights():
    rng = np.random.default_rng(0)
    mix = Mix((1.0, Nothing()), (3.0, Independent(1.0, 1.0)))
    assert np.mean([mix(Units.alike(3), rng).all() for _ in range(2000)]) == pytest.approx(0.75, abs=0.04)


def test_units_are_masked_whole_and_inherit_from_their_tokens():
    unit = np.array([0, 0, 1, 2, 2, 2, 3])
    tokens = Units(
        weight=np.array([1.0, 5.0, 2.0, 0.0, 7.0, 1.0, 3.0]),
        is_mark=np.array([True, False, True, False, False, True, False]),
        ends_sentence=np.array([False, False, True, True, False, False, False]),
    )
    grouped = tokens.grouped(unit)
    assert grouped.weight.tolist() == [5, 2, 7, 3]  # of the heaviest token
    assert grouped.is_mark.tolist() == [False, True, True, False]  # of the last token
    assert grouped.ends_sentence.tolist() == [False, True, True, False]  # of any token
    rng = np.random.default_rng(0)
    for _ in range(100):
        given = by_unit(Independent(), unit, tokens, rng)
        for which in range(4):
            assert len(set(given[unit == which])) == 1
    assert by_unit(Nothing(), np.zeros(0, int), Units.alike(0), rng).shape == (0,)


@st.composite
def texts(draw):
    """Units of a text: sentences of words, some followed by a comma, each closed by a mark; the last may be cut."""
    marks, ends = [], []
    for _ in range(draw(st.integers(0, 5))):
        for comma in draw(st.lists(st.booleans(), min_size=1, max_size=8)):
            marks += [False, True] if comma else [False]
        marks += [] if marks[-1] else [True]
        ends += [False] * (len(marks) - len(ends) - 1) + [True]
    tail = draw(st.integers(0, 4))
    marks, ends = marks + [False] * tail, ends + [False] * tail
    return Units(np.ones(len(marks)), np.array(marks, bool), np.array(ends, bool))


def blanks(given):
    """(start, stop) of every blank."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], given, [True]]).astype(int)))
    return [tuple(pair) for pair in edges.reshape(-1, 2).tolist()]


@given(texts(), st.integers(0, 10_000), st.floats(0.1, 0.9))
def test_natural_blanks_leave_a_share_of_the_text_and_begin_with_a_word(units, seed, share):
    given = Natural(share=share)(units, np.random.default_rng(seed))
    assert given.shape == (len(units),)
    assert (~given).sum() <= share * len(units)
    for start, _ in blanks(given):
        assert not units.is_mark[start]


@given(texts(), st.integers(0, 10_000))
def test_natural_blanks_never_touch(units, seed):
    """Each blank that is placed is one that a span was drawn for: spans that touch would merge into another one."""
    drawn = []

    def noted(draw):
        def span(units, rng):
            drawn.append(draw(units, rng))
            return drawn[-1]

        return span

    spans = Weighted(*((1.0, noted(draw)) for draw in (word, phrase, clause, sentence)))
    given = Natural(dense=1.0, spans=spans)(units, np.random.default_rng(seed))
    assert set(blanks(given)) <= set(drawn)


@given(texts(), st.integers(0, 10_000))
def test_spans_are_what_they_are_called(units, seed):
    if not len(units):
        return
    rng = np.random.default_rng(seed)
    start, stop = word(units, rng)
    assert stop == start + 1
    start, stop = phrase(units, rng)
    assert 0 <= start < stop <= len(units)
    assert stop == start + 1 or not units.is_mark[stop - 1]  # marks at its end stay in the text
    start, stop = clause(units, rng)
    assert units.is_mark[start:stop].sum() <= 1  # only where it was drawn to begin at a mark
    assert stop == len(units) or units.is_mark[stop]  # up to the next mark
    start, stop = sentence(units, rng)
    if units.ends_sentence.any():
        assert start == 0 or units.ends_sentence[start - 1]
        assert units.ends_sentence[stop - 1]
        assert units.ends_sentence[start:stop].sum() in (1, 2)


def test_natural_uses_the_shares_of_its_kinds():
    """Chi-square of the kinds of spans drawn, and of how often two sentences are taken together."""
    counts = dict.fromkeys("wpcs", 0)

    def noted(name):
        def span(units, rng):
            counts[name] += 1
            return 0, 1

        return span

    shares = [weight for weight, _ in Natural().spans.weighted]
    mask = Natural(spans=Weighted(*zip(shares, map(noted, "wpcs"), strict=True)))
    rng = np.random.default_rng(0)
    for _ in range(1500):
        mask(Units.alike(30), rng)
    expected = np.array(shares) * sum(counts.values())
    assert (((np.array([*counts.values()]) - expected) ** 2) / expected).sum() < 11.3  # 1% of χ² with 3 degrees
    ends = np.zeros(30, bool)
    ends[[9, 19, 29]] = True
    units = Units(np.ones(30), ends, ends)
    lengths = [stop - start for start, stop in (sentence(units, rng) for _ in range(3000))]
    assert set(lengths) == {10, 20}
    assert np.mean([length == 20 for length in lengths]) == pytest.approx(0.15 * 2 / 3, abs=0.02)


def test_dense_texts_have_many_blanks_and_others_few():
    rng = np.random.default_rng(0)
    dense, sparse = (
        np.mean([len(blanks(Natural(dense=share)(Units.alike(60), rng))) for _ in range(300)]) for share in (1.0, 0.0)
    )
    assert 1 <= sparse <= 3
    assert dense > 1.5 * sparse


def test_hints_and_gap_lengths_by_hand():
    is_prompt = np.array([False, True, True, True, False, False, True])
    assert gap_hints(is_prompt, open_gaps(is_prompt)).tolist() == [
        NOT_PROMPT, BEFORE, GLUED, AFTER, NOT_PROMPT, NOT_PROMPT, BEFORE,
    ]  # fmt: skip
    assert missing_after(is_prompt).tolist() == [UNKNOWN_LENGTH, 0, 0, 2, UNKNOWN_LENGTH, UNKNOWN_LENGTH, 0]
    alone = np.array([False, True, False])
    assert gap_hints(alone, open_gaps(alone)).tolist() == [NOT_PROMPT, BOTH, NOT_PROMPT]


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 1000))
def test_told_hints_never_lie(flags, seed):
    is_prompt = np.array(flags)
    telling = Telling(located=1.0, decoys=0.2, gap_lengths=0.5, some_gap_lengths=0.3)
    hint, gap_length = telling(is_prompt, np.random.default_rng(seed))
    before, after = np.isin(hint, (BEFORE, BOTH)), np.isin(hint, (AFTER, BOTH))
    is_open = open_gaps(is_prompt)
    assert (before | ~is_open[:-1])[is_prompt].all()  # where text is missing the gap is called open
    assert (after | ~is_open[1:])[is_prompt].all()
    told = gap_length != UNKNOWN_LENGTH
    assert (gap_length[told] == missing_after(is_prompt)[told]).all()
    assert not told[~is_prompt].any()
    assert (hint[~is_prompt] == NOT_PROMPT).all()
    unknown, untold = Telling(located=0.0)(is_prompt, np.random.default_rng(seed))
    assert (unknown == np.where(is_prompt, UNKNOWN, NOT_PROMPT)).all()
    assert (untold == UNKNOWN_LENGTH).all()
