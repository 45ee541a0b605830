"""Rows of slots as methods lay them out: what is given and told reaches the network, in training as in sampling."""

import dataclasses

import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken
from ddot.core.codes import AFTER, BEFORE, BOTH, NOT_PROMPT, PAD, PROMPT, RESPONSE, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.positions import AsText, clean_positions, grid_terminal, random_terminal
from ddot.core.records import Example, Prediction, State, Vocabulary
from ddot.core.rng import row_keys, spread_times
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.methods.layout import Table, in_line, laid_out, only_prompt, with_placeholders
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig

V = Vocabulary(30)
L = 12
# "· · a · b c · ·": the tokens that are missing are 20 and more.
IS_PROMPT = np.array([False, False, True, False, True, True, False, False])
TOKENS = np.array([20, 21, 3, 22, 4, 5, 23, 24])
TEXT = Example(TOKENS, IS_PROMPT)
HINT = np.where(IS_PROMPT, [0, 0, BOTH, 0, BEFORE, AFTER, 0, 0], NOT_PROMPT)
TOLD = Example(TOKENS, IS_PROMPT, HINT, np.where(IS_PROMPT, [0, 0, 1, 0, 0, 2, 0, 0], UNKNOWN_LENGTH))


class Stub:
    """A network that wants one token after another, in this order, everywhere, and drifts to the right."""

    vocabulary, device = V, torch.device("cpu")

    def __init__(self, *favourites):
        self.favourites, self.seen = favourites, []

    def __call__(self, state):
        self.seen.append(state)
        at = state.x == V.mask
        score = torch.full((int(at.sum()), V.size), -30.0)
        for rank, token in enumerate(self.favourites):
            score[:, token] = -float(rank)
        return Prediction(at=at, log_score=score, velocity=torch.full_like(state.z, 0.25))


def sampled(method, model, examples, steps=4):
    wanted = type(method).sample
    return list(getattr(wanted, "__wrapped__", wanted)(method, model, examples, L, steps, row_keys(1, len(examples))))


def test_a_table_holds_tokens_kinds_hints_and_lengths():
    table = Table([TEXT, TOLD], L, V)
    for row, example in enumerate((TEXT, TOLD)):
        assert table.x_0[row].tolist() == [*TOKENS.tolist(), *[V.pad] * 4]
        kinds = [PROMPT if given else RESPONSE for given in IS_PROMPT] + [PAD] * 4
        assert table.kind[row].tolist() == kinds
        hints = HINT if example.hint is not None else np.where(IS_PROMPT, UNKNOWN, NOT_PROMPT)
        assert table.hint[row].tolist() == [*hints.tolist(), *[NOT_PROMPT] * 4]
    assert (table.gap_length[0] == UNKNOWN_LENGTH).all()
    assert table.gap_length[1].tolist() == [-1, -1, 1, -1, 0, 2, *[-1] * 6]


def test_only_the_prompt_is_kept_with_all_that_is_told_of_it():
    for example, hint, lengths in ((TEXT, [UNKNOWN] * 3, [-1] * 3), (TOLD, [BOTH, BEFORE, AFTER], [1, 0, 2])):
        found = only_prompt(example)
        assert found.tokens.tolist() == [3, 4, 5]
        assert found.is_prompt.all()
        assert found.hint.tolist() == hint
        assert found.gap_length.tolist() == lengths


def test_slots_in_a_line_are_one_unit_apart_in_the_middle():
    for width in (1, 2, 7, 40):
        z = in_line(np.zeros((2, width), bool), row_keys(0, 2)).astype(float) * width / 2
        np.testing.assert_allclose(np.diff(z), 1, atol=1e-5)
        np.testing.assert_allclose(z.sum(1), 0, atol=1e-4)


def test_still_slots_are_the_clean_text_and_then_pads():
    for n in range(9):
        z = Table([Example(np.zeros(n, np.int64), np.zeros(n, bool))], 8, V).still[0]
        np.testing.assert_allclose(z[:n], clean_positions(n, 8), atol=1e-6)
        assert (np.diff(z[max(0, n - 1) :]) > 0).all()  # pads come after, in order
        np.testing.assert_allclose(np.diff(z[n:]), 2 / 8, atol=1e-6)


def test_the_oracle_layout_has_every_missing_token():
    found = laid_out(TEXT)
    assert found.is_prompt.tolist() == IS_PROMPT.tolist()
    assert found.tokens[IS_PROMPT].tolist() == [3, 4, 5]
    assert not set(found.tokens.tolist()) & set(TOKENS[~IS_PROMPT].tolist())  # and none of their names
    assert (found.gap_length == UNKNOWN_LENGTH).all()
    nothing = laid_out(Example(TOKENS, np.zeros(8, bool)))
    assert len(nothing.tokens) == 8
    assert not nothing.is_prompt.any()


def test_told_lengths_are_laid_out_and_told():
    given = only_prompt(dataclasses.replace(TOLD, gap_length=np.where(IS_PROMPT, [0, 0, 3, 0, 0, 1, 0, 0], -1)))
    found = laid_out(given)  # a · · · b c ·
    assert found.is_prompt.tolist() == [True, False, False, False, True, True, False]
    assert found.tokens[found.is_prompt].tolist() == [3, 4, 5]
    assert found.hint.tolist() == [BOTH, 0, 0, 0, BEFORE, AFTER, 0]
    assert found.gap_length.tolist() == [3, -1, -1, -1, 0, 1, -1]
    with pytest.raises(ValueError, match="length of every gap"):
        laid_out(dataclasses.replace(given, gap_length=np.array([3, UNKNOWN_LENGTH, 1])))


def test_empty_gaps_lose_their_placeholders_where_they_do_not_fit():
    example = dataclasses.replace(TEXT, hint=np.where(IS_PROMPT, BOTH, NOT_PROMPT))  # 1, 0 and 2 tokens are missing
    assert with_placeholders(example, most=6).is_prompt.tolist() == [True, False, True, False, True, False]
    assert with_placeholders(example, most=5).is_prompt.tolist() == [True, False, True, True, False]


@pytest.mark.parametrize("method", [DDOT(), FixedLength(), PositionPrediction()], ids=lambda m: type(m).__name__)
def test_what_is_told_reaches_the_network_at_the_start(method):
    given = only_prompt(TOLD)
    start = method.start([given], L, row_keys(0, 1), V)
    known = start.is_prompt[0]
    assert start.x[0, known].tolist() == [3, 4, 5]
    assert start.hint[0, known].tolist() == [BOTH, BEFORE, AFTER]
    assert start.gap_length[0, known].tolist() == [1, 0, 2]
    assert (start.gap_length[0, ~known] == UNKNOWN_LENGTH).all()
    assert (start.t == 1).all()


def test_fixed_length_asks_for_what_is_missing_and_nothing_after_the_end():
    start = FixedLength().start([TEXT], L, row_keys(0, 1), V)
    assert start.x[0].tolist() == [V.mask, V.mask, 3, V.mask, 4, 5, V.mask, V.mask, *[V.pad] * 4]
    np.testing.assert_allclose(start.z[0, :8], clean_positions(8, L), atol=1e-6)


def test_fixed_length_never_masks_what_comes_after_the_end():
    slots = FixedLength().prepare([TEXT] * 50, L, np.ones(50, np.float32), row_keys(0, 50), V)
    masked = slots.u < 0.999  # all but one in a thousand at t = 1
    assert masked[slots.kind == RESPONSE].all()
    assert not masked[slots.kind == PAD].any()


def test_fixed_length_writes_words_alone_never_twice_in_a_row_and_nothing_moves():
    states = sampled(FixedLength(), Stub(V.pad, V.sep, 3, 4), [TEXT])
    found = states[-1].x[0].tolist()
    assert found[8:] == [V.pad] * 4
    assert [found[i] for i in (2, 4, 5)] == [3, 4, 5]
    assert (states[-1].x[0, :8] < V.base).all()
    assert found[1] == 4  # beside the given 3 its favourite would be an echo
    assert all(torch.equal(state.z, states[0].z) for state in states)


@pytest.mark.parametrize("terminal", [grid_terminal, random_terminal, AsText()], ids=["grid", "random", "text"])
def test_ddot_trains_from_the_terminal_it_samples_from(terminal):
    """Each set holds the terminal's own positions; where the prompt comes first, the same ones for the same key."""
    keys, text = row_keys(3, 40), Example(TOKENS, np.arange(8) < 3)
    method = DDOT(terminal=terminal)
    slots = method.prepare([text] * 40, L, spread_times(0, 40), keys, V)
    start = method.start([text] * 40, L, keys, V)
    given = slots.kind == PROMPT
    for row in range(40):
        for in_training, in_sampling in ((given, start.is_prompt), (~given, ~start.is_prompt)):
            a, b = (z[row][some[row]].sort().values for z, some in ((slots.z_T, in_training), (start.z, in_sampling)))
            torch.testing.assert_close(a, b)


def test_ddot_samples_with_its_projections_restrictions_and_reveal():
    heard = []

    def project(state):
        heard.append("project")
        return dataclasses.replace(state, x=torch.where(state.is_prompt, 9, state.x))  # does not last: clamped first

    def restrict(state, prediction):
        heard.append("restrict")
        return dataclasses.replace(prediction, log_score=prediction.log_score.index_fill(1, torch.tensor([7]), -1e9))

    method = DDOT(projections=(project,), restrictions=(restrict,))
    states = sampled(method, Stub(7, 8), [TOLD])
    assert heard == ["restrict", "project"] * 4
    assert set(states[-1].x[~states[-1].is_prompt].tolist()) == {8}
    plain = sampled(DDOT(), Stub(7, 8), [TOLD])
    assert plain[-1].x[plain[-1].is_prompt].tolist() == [3, 4, 5]
    assert (torch.diff(plain[-1].z[plain[-1].is_prompt]) > 0).all()


def test_ddot_clamps_prompt_tokens_even_where_scores_are_given_for_them():
    class Wild(Stub):
        def __call__(self, state):
            at = torch.ones_like(state.x, dtype=torch.bool)
            score = torch.full((at.numel(), V.size), -30.0)
            score[:, 17] = 0.0
            return Prediction(at=at, log_score=score, velocity=torch.zeros_like(state.z))

    last = sampled(DDOT(), Wild(), [TOLD])[-1]
    assert last.x[last.is_prompt].tolist() == [3, 4, 5]
    assert (last.x[~last.is_prompt] == 17).all()


def network():
    trunk = DiTConfig(width=16, blocks=1, heads=2, vocabulary=V.rows, condition_width=8)
    net = Denoiser(DenoiserConfig(trunk, V, CleanToken(elbo=False), surroundings=True, gap_lengths=True))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return net.eval()


@pytest.mark.parametrize("method", [DDOT(gap_length_factor=0.5), FixedLength(gap_length_factor=0.5)])
def test_the_length_head_learns_the_gap_after_each_token_that_is_not_told(method):
    """Cross entropy written out: of "a", "b", "c" with 1, 0 and 2 tokens missing after them, the first two told."""
    some = dataclasses.replace(TOLD, gap_length=np.where(IS_PROMPT, [0, 0, 1, 0, 0, -1, 0, 0], UNKNOWN_LENGTH))
    net = network()
    for example, asked in ((TEXT, {2: 1, 4: 0, 5: 2}), (some, {5: 2}), (TOLD, {})):
        slots = method.prepare([example], L, np.array([0.7], np.float32), row_keys(2, 1), V)
        losses = method.loss(net, slots, 0.0)
        masked = (slots.u < net.noise.masked_share(slots.t)[:, None]) & (slots.kind != PROMPT)
        x = torch.where(masked, V.mask, slots.x_0)
        z = 0.3 * slots.z_0 + 0.7 * slots.z_T
        seen = State(x, z, slots.hint, slots.gap_length, slots.t)
        log_p = torch.log_softmax(net.gap_length_logits(seen)[0], -1)
        by_hand = -sum(log_p[slot, length] for slot, length in asked.items()) / L
        torch.testing.assert_close(losses.gap_length, torch.as_tensor(by_hand).detach())
        torch.testing.assert_close(losses.total.detach(), losses.token + 0.5 * losses.gap_length)


@pytest.mark.parametrize("method", [DDOT(), FixedLength(), PositionPrediction()], ids=lambda m: type(m).__name__)
def test_training_shows_the_network_what_is_told(method):
    net, seen = network(), []
    read = net.read
    net.read = lambda state, *more: seen.append(state) or read(state, *more)
    slots = method.prepare([TOLD], L, np.array([0.5], np.float32), row_keys(2, 1), V)
    method.loss(net, slots, 1.0)
    for state in seen:
        assert state.hint[0].tolist() == [*HINT.tolist(), *[NOT_PROMPT] * 4]
        assert state.gap_length[0].tolist() == [-1, -1, 1, -1, 0, 2, *[-1] * 6]
