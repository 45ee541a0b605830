"""The losses against the paper's equations written out, and what a prepared batch must hold."""

import dataclasses

import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken, ScoreEntropy
from ddot.core.codes import AFTER, NOT_PROMPT, PAD, PROMPT, RESPONSE, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.coupling import couple_independently
from ddot.core.gaps import gaps_after, missing_after
from ddot.core.positions import random_terminal
from ddot.core.records import Example, Vocabulary
from ddot.core.rng import row_keys, spread_times
from ddot.methods.ddot import DDOT
from ddot.methods.losses import TokenUnitWeight, corrupted, denoising_losses, equal_weight, position_loss, total_loss
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig

V = Vocabulary(30)


def examples(count=12, seed=0):
    rng = np.random.default_rng(seed)
    for n in rng.integers(0, 11, count):
        is_prompt = rng.random(n) < 0.5
        yield Example(rng.integers(0, V.base, n), is_prompt, np.where(is_prompt, AFTER, UNKNOWN))


def batch(method=None, L=10, count=12):
    method = method or DDOT(terminal=random_terminal)
    return method.prepare(list(examples(count)), L, spread_times(1, count), row_keys(2, count), V)


def model(score=None, **changes):
    trunk = DiTConfig(width=16, blocks=1, heads=2, vocabulary=V.rows, condition_width=8)
    net = Denoiser(DenoiserConfig(trunk=trunk, vocabulary=V, score=score or ScoreEntropy(V.base + 1), **changes))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return net


def test_prepared_slots_hold_the_text_and_nothing_else():
    slots = batch()
    for row, example in enumerate(examples()):
        n = len(example.tokens)
        assert slots.x_0[row, :n].tolist() == example.tokens.tolist()
        assert (slots.x_0[row, n:] == V.pad).all()
        assert (slots.kind[row, :n] == torch.from_numpy(np.where(example.is_prompt, PROMPT, RESPONSE))).all()
        assert (slots.kind[row, n:] == PAD).all()
        told = slots.hint[row]
        assert (told[:n][torch.from_numpy(example.is_prompt)] == AFTER).all()
        assert (told[n:] == NOT_PROMPT).all()
    assert (slots.gap_length == UNKNOWN_LENGTH).all()


def test_corruption_never_touches_prompts_and_follows_the_paths():
    slots = batch()
    state = corrupted(slots, model().noise, V.mask)
    prompt = slots.kind == PROMPT
    assert (state.x[prompt] == slots.x_0[prompt]).all()
    changed = state.x != slots.x_0
    assert (state.x[changed] == V.mask).all()
    assert changed.any()
    t = slots.t[:, None]
    torch.testing.assert_close(state.z, (1 - t) * slots.z_0 + t * slots.z_T)


def test_position_loss_is_eq_lpos_over_all_slots():
    slots = batch()
    velocity = torch.randn_like(slots.z_0)
    by_hand = ((velocity - (slots.z_0 - slots.z_T)) ** 2).sum(-1).mean() / 10
    torch.testing.assert_close(position_loss(velocity, slots.z_0, slots.z_T, equal_weight(slots.t, 10)), by_hand)
    assert total_loss(torch.tensor(2.0), torch.tensor(3.0), 10.0).item() == 32


def test_token_unit_weight_is_the_error_in_tokens():
    weight = TokenUnitWeight(knee=0.3)
    assert weight(torch.tensor([1.0]), 64).item() == pytest.approx(32**2 / 1.09)
    small = torch.tensor([0.01])
    assert weight(small, 64).item() == pytest.approx((32 * 0.01 / 0.3) ** 2, rel=1e-2)


def test_long_rows_are_measured_as_if_they_were_shorter():
    t = torch.tensor([1.0, 0.1])
    short, capped = TokenUnitWeight(), TokenUnitWeight(at_most=64)
    torch.testing.assert_close(capped(t, 256), short(t, 64))
    torch.testing.assert_close(capped(t, 32), short(t, 32))


@pytest.mark.parametrize("score", [ScoreEntropy(V.base + 1), CleanToken(), CleanToken(elbo=False)])
def test_losses_are_the_sum_over_masked_slots(score):
    net, slots = model(score), batch()
    losses = denoising_losses(net, slots, 7.0)
    state = corrupted(slots, net.noise, V.mask)
    prediction = net(state)
    at = prediction.at
    t = slots.t[:, None].expand_as(slots.u)[at]
    logits = net.logits(net.read(state)[0][at])
    per_slot = score.loss(logits, slots.x_0[at], net.noise.sigma(t), net.noise.dsigma(t), V.mask)
    torch.testing.assert_close(losses.token, per_slot.sum().detach() / slots.u.numel())
    position = position_loss(prediction.velocity, slots.z_0, slots.z_T, equal_weight(slots.t, 10))
    torch.testing.assert_close(losses.total, (losses.token + 7 * position))
    losses.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_the_weight_of_positions_is_that_of_each_rows_time():
    net, slots, weight = model(), batch(), TokenUnitWeight(knee=0.4)
    velocity = net(corrupted(slots, net.noise, V.mask)).velocity
    square = ((velocity - (slots.z_0 - slots.z_T)) ** 2).mean(-1)
    by_hand = (square * 25 * slots.t**2 / (slots.t**2 + 0.16)).mean()  # (L/2)² t²/(t² + knee²)
    losses = denoising_losses(net, slots, 3.0, weight)
    torch.testing.assert_close(losses.position, by_hand.detach())
    torch.testing.assert_close(losses.total.detach(), losses.token + 3 * losses.position)


def test_halves_of_a_batch_average_to_the_whole():
    net, slots = model(gap_lengths=True), batch()
    half = [type(slots)(**{f.name: getattr(slots, f.name)[i::2] for f in dataclasses.fields(slots)}) for i in (0, 1)]
    whole = denoising_losses(net, slots, 3.0, TokenUnitWeight(), gap_length_factor=0.5).total
    parts = [denoising_losses(net, part, 3.0, TokenUnitWeight(), gap_length_factor=0.5).total for part in half]
    torch.testing.assert_close(whole, (parts[0] + parts[1]) / 2)


def test_gap_lengths_of_slots_are_those_of_the_text():
    slots = batch()
    gaps = gaps_after(slots)
    for row, example in enumerate(examples()):
        n = len(example.tokens)
        assert gaps[row, :n][torch.from_numpy(example.is_prompt)].tolist() == [
            length for length in missing_after(example.is_prompt) if length != UNKNOWN_LENGTH
        ]
    with pytest.raises(ValueError, match="no length head"):
        denoising_losses(model(), slots, 1.0, gap_length_factor=0.1)


def test_ablation_has_the_same_batch_but_for_positions():
    with_ot, without = batch(), batch(DDOT(terminal=random_terminal, couple=couple_independently))
    assert (with_ot.x_0 == without.x_0).all()
    assert not torch.equal(with_ot.z_T, without.z_T)


def test_start_reads_only_the_prompt():
    method = DDOT()
    prompts = list(examples())
    start = method.start(prompts, 10, row_keys(0, 12), V)
    hidden = [Example(np.where(p.is_prompt, p.tokens, 0), p.is_prompt, p.hint) for p in prompts]
    again = method.start(hidden, 10, row_keys(0, 12), V)
    for field in dataclasses.fields(start):
        assert torch.equal(getattr(start, field.name), getattr(again, field.name))
    for row, prompt in enumerate(prompts):
        given = start.is_prompt[row]
        assert start.x[row, given].tolist() == prompt.tokens[prompt.is_prompt].tolist()
        assert (start.x[row, ~given] == V.mask).all()


def test_what_does_not_fit_is_refused():
    long = [Example(np.zeros(11, np.int64), np.ones(11, bool))]
    with pytest.raises(ValueError, match="does not fit into L = 10"):
        DDOT().prepare(long, 10, spread_times(0, 1), row_keys(0, 1), V)
    with pytest.raises(ValueError, match="raise L"):
        DDOT().start(long, 10, row_keys(0, 1), V)
    wrong = [Example(np.array([3, V.mask]), np.ones(2, bool))]
    with pytest.raises(ValueError, match="out of range"):
        DDOT().prepare(wrong, 10, spread_times(0, 1), row_keys(0, 1), V)
