"""Masks and gap hints: what each promises, for all sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddot.core.gaps import gap_hints, missing_after, open_gaps
from ddot.core.records import AFTER, BEFORE, BOTH, GLUED, NOT_PROMPT, UNKNOWN, UNKNOWN_LENGTH
from ddot.data.masks import Block, Blocks, Independent, Keywords, Mix, Nothing, Telling, by_word


def spans(is_prompt):
    """Lengths of the runs of missing units."""
    text = "".join("." if given else "x" for given in is_prompt)
    return [len(run) for run in text.split(".") if run]


@given(st.integers(0, 40), st.integers(0, 10_000))
def test_every_mask_keeps_its_promise(n, seed):
    rng = np.random.default_rng(seed)
    weight = np.ones(n)
    assert min(1, n) <= Keywords(1, 6)(weight, rng).sum() <= min(6, n)
    block = spans(Block(32)(weight, rng))
    assert len(block) <= 1
    assert sum(block) <= 32
    blocks = spans(Blocks(2, 4, share=0.5)(weight, rng))
    assert len(blocks) <= 4
    assert sum(blocks) <= n / 2
    assert not Nothing()(weight, rng).any()
    assert Independent(1.0, 1.0)(weight, rng).all()
    for mask in (Keywords(), Block(5), Blocks(), Independent(), Nothing()):
        assert mask(weight, rng).shape == (n,)


def test_block_lengths_and_places_are_spread_evenly():
    rng = np.random.default_rng(0)
    missing = np.array([~Block(32)(np.ones(40), rng) for _ in range(6000)])
    counts = np.bincount(missing.sum(1), minlength=33)
    assert counts.min() > 120  # 6000 / 33 = 182 each
    assert counts.max() < 250


def test_keywords_prefer_heavy_words():
    rng = np.random.default_rng(0)
    weight = np.array([1.0, 10.0, 1.0, 10.0])
    kept = sum(Keywords(1, 1)(weight, rng) for _ in range(4000))
    np.testing.assert_allclose(kept / 4000, weight / weight.sum(), atol=0.03)


def test_mix_uses_its_weights():
    rng = np.random.default_rng(0)
    mix = Mix((1.0, Nothing()), (3.0, Independent(1.0, 1.0)))
    assert np.mean([mix(np.ones(3), rng).all() for _ in range(2000)]) == pytest.approx(0.75, abs=0.04)


def test_by_word_keeps_words_whole():
    words = np.array([0, 0, 1, 2, 2, 2, 3])
    rng = np.random.default_rng(0)
    for _ in range(100):
        given = by_word(Independent(), words, np.ones(7), rng)
        for word in range(4):
            assert len(set(given[words == word])) == 1
    assert by_word(Nothing(), np.zeros(0, int), np.zeros(0), rng).shape == (0,)


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
