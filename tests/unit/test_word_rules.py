"""Rules of what may be revealed at blanks, for spans of any length; what tires, and in whose row."""

import itertools

import numpy as np
import pytest
import torch

from ddot.core.annealing import Tempered, greedy
from ddot.core.codes import GLUED, NOT_PROMPT
from ddot.core.records import Prediction, State
from ddot.core.rng import row_keys
from ddot.core.sampling import Leap, MostCertainFirst, reverse, time_grid
from ddot.data.tokenizer import learn_bpe
from ddot.infill.alphabet import FIRST_APART, FIRST_GLUED, LATER, Alphabet
from ddot.infill.template import Blank
from ddot.infill.view import Span
from ddot.infill.word_rules import Pieces, RepetitionPenalty, WithinWords

TOKENIZER = learn_bpe(["The ferry left at 7.40, half empty, and nobody waved from the old pier."] * 4, 400)
ALPHABET = Alphabet(TOKENIZER)
V = TOKENIZER.vocabulary
BEGIN, GO_ON = np.flatnonzero(ALPHABET.begins & ~ALPHABET.mark), np.flatnonzero(ALPHABET.word)


def start(spans, L):
    x, hint = torch.full((len(spans), L), 5), torch.full((len(spans), L), GLUED)
    for row, some in enumerate(spans):
        for span in some:
            x[row, span.start : span.stop], hint[row, span.start : span.stop] = V.mask, NOT_PROMPT
    return State(x, torch.linspace(-1, 1, L).expand(len(spans), L), hint, torch.full_like(x, -1), torch.ones(len(x)))


class Wants:
    """Scores that favour some tokens, each slot another one."""

    def __init__(self, tokens, seed=0):
        self.tokens, self.rng = torch.as_tensor(tokens), torch.Generator().manual_seed(seed)

    def __call__(self, state):
        at = state.x == V.mask
        score = torch.full((int(at.sum()), V.rows), -20.0)
        score[:, self.tokens] = torch.randn(len(score), len(self.tokens), generator=self.rng)
        return Prediction(at, score, torch.zeros_like(state.z))


def filled(spans, L, reveal, model, steps=3, seed=0):
    within, rules = WithinWords(reveal, ALPHABET, spans), (Pieces(ALPHABET, spans, L),)
    times = time_grid(steps)
    return list(reverse(model, start(spans, L), times, V, row_keys(seed, len(spans)), within, restrictions=rules))


@pytest.mark.parametrize("reveal", [MostCertainFirst(greedy), MostCertainFirst(Tempered(2.0)), Leap(Tempered(1.0))])
@pytest.mark.parametrize("wanted", [BEGIN, GO_ON, np.concatenate([BEGIN, GO_ON])], ids=["words", "parts", "both"])
def test_bounds_hold_in_spans_of_more_slots_than_words(reveal, wanted):
    """Eight slots may hold any number of words; the rules see to it that they hold as many as are asked for."""
    bounds = [(least, most) for most in range(1, 8) for least in range(most + 1)] + [(n, None) for n in range(9)]
    spans = [[Span(1, 9, FIRST_APART, Blank(*pair))] for pair in bounds]
    for seed, steps in itertools.product(range(2), (1, 3, 8)):
        last = filled(spans, 10, reveal, Wants(wanted, seed), steps, seed)[-1]
        for (least, most), x in zip(bounds, last.x[:, 1:9].numpy(), strict=True):
            words = ALPHABET.spell(x).split()
            assert least <= len(words) <= (8 if most is None else most), (least, most, words)


def test_bounds_bind_only_where_they_must():
    """A network that wants words gets as many as may be, one that goes on with them as few."""
    for wanted, bound in ((BEGIN, 5), (GO_ON, 2)):
        spans = [[Span(0, 8, FIRST_APART, Blank(2, 5))]]
        last = filled(spans, 8, MostCertainFirst(), Wants(wanted), steps=8)[-1]
        assert len(ALPHABET.spell(last.x[0].numpy()).split()) == bound


def test_the_surest_words_are_the_ones_that_stay():
    """Three words are allowed: the first token and the two slots the network is surest of begin one."""
    spans = [[Span(0, 6, FIRST_APART, Blank(0, 3))]]
    sure = {1: 1.0, 2: 5.0, 3: 2.0, 4: 6.0, 5: 3.0}

    def model(state):
        at = state.x == V.mask
        score = torch.full((int(at.sum()), V.rows), -20.0)
        slots = at[0].nonzero()[:, 0].tolist()
        for row, slot in enumerate(slots):
            score[row, BEGIN[slot]] = sure.get(slot, 9.0)
        return Prediction(at, score, torch.zeros_like(state.z))

    last = filled(spans, 6, Leap(), model, steps=1)[-1]
    assert np.flatnonzero(ALPHABET.begins[last.x[0].numpy()]).tolist() == [0, 2, 4]


def test_the_first_slot_of_a_blank_has_a_rule_of_its_own():
    for first, blank in itertools.product((FIRST_APART, FIRST_GLUED), (Blank(), Blank(1, 3))):
        pieces = Pieces(ALPHABET, [[Span(1, 4, first, blank)]], 5)
        state = start([[Span(1, 4, first, blank)]], 5)
        score = pieces(state, Wants(np.arange(V.base))(state)).log_score
        shift = 4 * blank.counted
        for row, rule in enumerate([first, LATER, LATER]):
            assert torch.equal(~torch.isneginf(score[row]), ALPHABET.allowed[rule + shift])


def test_words_that_stand_there_tire_in_their_own_row():
    """Three nats for a content word of the same row, nothing for others."""
    word = int(np.flatnonzero(ALPHABET.content.numpy())[0])
    x = torch.full((2, 4), V.mask)
    x[0, 0] = word
    state = State(x, torch.zeros(2, 4), torch.zeros_like(x), x * 0 - 1, torch.ones(2))
    before = Wants(np.arange(V.base))(state)
    change = before.log_score - RepetitionPenalty(ALPHABET)(state, before).log_score
    wanted = torch.zeros_like(change)
    wanted[:3, word] = 3.0  # the first three masked slots are those of row 0
    torch.testing.assert_close(change, wanted)


@pytest.mark.parametrize("letters", ["", " ", " the", "e", "x", "…"])
def test_tokens_that_begin_with_letters(letters):
    text = ALPHABET.begins | ALPHABET.continues
    wanted = {piece for row, piece in enumerate(ALPHABET.pieces) if text[row] and piece.startswith(letters)}
    assert {ALPHABET.pieces[token] for token in ALPHABET.beginning_with(letters)} == wanted
