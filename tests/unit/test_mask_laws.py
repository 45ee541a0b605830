"""The laws of masks and of what is told, against exact enumeration and chi-square tests with fixed seeds."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from ddot.core.codes import BEFORE, BOTH, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.gaps import open_gaps
from ddot.data.masks import Block, Blocks, Keywords, Telling, Units, by_unit


def enumerated(n, longest):
    """Every outcome of a block of 0 … longest units among n and its chance: each length, then each place, alike."""
    longest = min(n, longest)
    for missing in range(longest + 1):
        for start in range(n - missing + 1):
            given = np.ones(n, bool)
            given[start : start + missing] = False
            yield tuple(given), 1 / (longest + 1) / (n - missing + 1)


@pytest.mark.parametrize(("n", "longest"), [(4, 2), (3, 9)])
def test_blocks_have_the_law_that_enumeration_says(n, longest):
    wanted = Counter()
    for given, chance in enumerated(n, longest):
        wanted[given] += chance
    rng, draws = np.random.default_rng(1), 6000
    found = Counter(tuple(Block(longest)(Units.alike(n), rng)) for _ in range(draws))
    assert set(found) == set(wanted)
    assert chisquare([found[each] for each in wanted], [draws * chance for chance in wanted.values()]).pvalue > 1e-4


def test_as_many_keywords_as_asked_for_each_number_alike():
    rng = np.random.default_rng(2)
    counts = np.bincount([int(Keywords(2, 5)(Units.alike(9), rng).sum()) for _ in range(4000)], minlength=6)
    assert counts[:2].tolist() == [0, 0]
    assert chisquare(counts[2:]).pvalue > 1e-4


def test_several_blocks_miss_up_to_their_share():
    rng = np.random.default_rng(3)
    missing = [int((~Blocks(2, 4, share=0.5)(Units.alike(20), rng)).sum()) for _ in range(4000)]
    assert chisquare(np.bincount(missing, minlength=11)).pvalue > 1e-4  # 0 … 10 alike, 11 never
    assert max(missing) == 10


def test_a_word_weighs_what_its_heaviest_token_does():
    rng = np.random.default_rng(4)
    words, weight = np.array([0, 0, 1, 2]), np.array([8.0, 1.0, 1.0, 1.0])
    tokens = Units(weight, np.zeros(4, bool), np.zeros(4, bool))
    first = np.mean([by_unit(Keywords(1, 1), words, tokens, rng)[0] for _ in range(4000)])
    assert first == pytest.approx(0.8, abs=0.03)  # of 8, 1 and 1


def told_of(is_prompt, draws=4000, **shares):
    """For each of many draws: (is anything located, decoys, lengths told out of those that could be)."""
    rng, closed = np.random.default_rng(5), ~open_gaps(is_prompt)
    rows = []
    for _ in range(draws):
        hint, gap_length = Telling(**shares)(is_prompt, rng)
        located = not (hint[is_prompt] == UNKNOWN).any()
        decoy = np.isin(hint, (BEFORE, BOTH))[is_prompt & closed[:-1]]
        told = (gap_length != UNKNOWN_LENGTH)[is_prompt]
        rows.append((located, decoy.mean() if located and len(decoy) else np.nan, told.mean()))
    return np.array(rows, float)


def test_what_is_told_has_the_shares_asked_for():
    is_prompt = np.array([True, True, False, True, True, True, False, True])
    rows = told_of(is_prompt, located=0.6, decoys=0.25, gap_lengths=0.3, some_gap_lengths=0.4)
    located = rows[:, 0] == 1
    assert located.mean() == pytest.approx(0.6, abs=0.03)
    assert np.nanmean(rows[:, 1]) == pytest.approx(0.25, abs=0.02)
    assert (rows[~located, 2] == 0).all()
    share = rows[located, 2]  # of the located ones 0.3 are told all, 0.4 each with chance one half, 0.3 nothing
    assert share.mean() == pytest.approx(0.3 + 0.4 / 2, abs=0.03)
    assert (share == 1).mean() == pytest.approx(0.3 + 0.4 / 2**6, abs=0.03)
    assert (share == 0).mean() == pytest.approx(0.3 + 0.4 / 2**6, abs=0.03)
