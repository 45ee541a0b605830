"""The reverse process against exact toy languages and the paper's definitions."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddot.core.annealing import Candidates, Tempered, greedy, greedy_words
from ddot.core.codes import NOT_PROMPT, UNKNOWN
from ddot.core.coupling import couple
from ddot.core.noise import LogLinear
from ddot.core.positions import grid_terminal, random_terminal
from ddot.core.projections import clamp_prompt, keep_prompt_order, keep_word_order, sort_within, without_echo
from ddot.core.records import Prediction, State, Vocabulary
from ddot.core.rng import row_keys
from ddot.core.sampling import Leap, MostCertainFirst, read_out, reverse, time_grid

V = Vocabulary(3)  # a, b, c, [mask], [pad], [sep]


def everything(chances, vocabulary):
    """No sharpening at all."""
    others = [i for i in range(vocabulary.size) if i != vocabulary.mask]
    order = torch.tensor([vocabulary.mask, *others]).expand(len(chances), vocabulary.size)
    return Candidates(order, chances.gather(1, order))


def all_masked(B, L):
    return State(
        x=torch.full((B, L), V.mask),
        z=torch.linspace(-1, 1, L).expand(B, L).clone(),
        hint=torch.full((B, L), NOT_PROMPT),
        gap_length=torch.full((B, L), -1),
        t=torch.ones(B),
    )


class ExactModel:
    """The true score of a language given as a table of texts (tokens and pads) and their chances."""

    def __init__(self, language):
        self.texts = torch.tensor(list(language))
        self.chances = torch.tensor(list(language.values()))
        self.noise = LogLinear()

    def __call__(self, state):
        at = state.x == V.mask
        fits = ((state.x[:, None] == self.texts) | at[:, None]).all(-1)  # (B, texts)
        posterior = fits * self.chances
        posterior = posterior / posterior.sum(-1, keepdim=True)
        marginal = torch.einsum("bn,nlv->blv", posterior, torch.nn.functional.one_hot(self.texts, V.size).float())
        sigma = self.noise.sigma(state.t)[:, None].expand_as(at)[at]
        log_score = torch.log(marginal[at].clamp(min=1e-30)) - torch.log(torch.expm1(sigma))[:, None]
        log_score[:, V.mask] = 0
        return Prediction(at=at, log_score=log_score, velocity=torch.zeros_like(state.z))


LANGUAGE = {
    (0, 1, 2): 0.3,
    (0, 1, V.pad): 0.2,
    (1, 0, 2): 0.2,
    (2, V.pad, V.pad): 0.15,
    (2, 2, 2): 0.1,
    (0, 0, V.pad): 0.05,
}


def frequencies(model, steps, reveal, B=6000):
    *_, last = reverse(model, all_masked(B, 3), time_grid(steps), V, row_keys(7, B), reveal)
    rows = [tuple(row) for row in last.x.tolist()]
    return {text: rows.count(text) / B for text in set(rows)}


def test_sampler_with_the_exact_score_reproduces_the_language():
    found = frequencies(ExactModel(LANGUAGE), 200, Leap(everything), B=3000)
    texts = set(LANGUAGE) | set(found)
    distance = sum(abs(found.get(text, 0) - LANGUAGE.get(text, 0)) for text in texts) / 2
    assert distance < 0.04  # noise of 3000 draws is about 0.02, of 200 steps about 0.01


def test_one_slot_at_a_time_is_exact_too():
    found = frequencies(ExactModel(LANGUAGE), 3, MostCertainFirst(everything))
    assert sum(found.get(text, 0) for text in LANGUAGE) == pytest.approx(1)  # never an impossible text


class Linear(LogLinear):
    """σ(t) = 2t. For the log-linear schedule Euler's step is the exact one; here the two differ."""

    def sigma(self, t):
        return 2 * t

    def dsigma(self, t):
        return torch.full_like(t, 2.0)


@pytest.mark.parametrize("exact", [True, False])
def test_a_leap_takes_the_step_it_is_asked_for(exact):
    """Shares of the tokens after one step, over evenly spread numbers, against the two formulas."""
    B, t, s = 20_000, 0.8, 0.5
    score = torch.tensor([0.3, 0.2, 0.1, 1.0, 0.05, 0.0])  # a b c [mask] [pad] [sep]
    state = dataclasses.replace(all_masked(B, 1), t=torch.full((B,), t))
    prediction = Prediction(at=state.x == V.mask, log_score=score.log().expand(B, -1), velocity=torch.zeros(B, 1))
    u = ((torch.arange(B) + 0.5) / B)[:, None]
    x = Leap(everything, exact, Linear())(state, prediction, s, u, V)
    leave = score * ((np.exp(2 * (t - s)) - 1) if exact else 2 * (t - s))
    leave[V.mask] = 0
    leave[V.mask] = 1 - leave.sum()
    torch.testing.assert_close(torch.bincount(x[:, 0], minlength=V.size) / B, leave, atol=2e-4, rtol=0)


def test_the_last_leap_leaves_nothing_masked_whatever_the_scores_sum_to():
    B = 9000
    score = torch.tensor([0.03, 0.02, 0.01, 1.0, 0.03, 0.0])
    state = dataclasses.replace(all_masked(B, 1), t=torch.full((B,), 0.1))
    prediction = Prediction(at=state.x == V.mask, log_score=score.log().expand(B, -1), velocity=torch.zeros(B, 1))
    u = ((torch.arange(B) + 0.5) / B)[:, None]
    shares = torch.bincount(Leap(everything)(state, prediction, 0.0, u, V)[:, 0], minlength=V.size) / B
    torch.testing.assert_close(shares, torch.tensor([3, 2, 1, 0, 3, 0]) / 9, atol=3e-4, rtol=0)


def test_what_is_restricted_is_never_revealed():
    def no_b(state, prediction):
        return dataclasses.replace(prediction, log_score=prediction.log_score.index_fill(1, torch.tensor([1]), -1e9))

    args = (all_masked(300, 3), time_grid(4), V, row_keys(7, 300), Leap(everything))
    *_, free = reverse(ExactModel({(1, 1, 1): 0.5, (0, 2, 0): 0.5}), *args)
    *_, bound = reverse(ExactModel({(1, 1, 1): 0.5, (0, 2, 0): 0.5}), *args, restrictions=(no_b,))
    assert (free.x == 1).any()
    assert bound.x.unique().tolist() == [0, 2]


def test_steps_draw_independent_numbers():
    """A slot that stays masked with chance (T − s)/T in each of two steps leaves in the second one as often."""
    B = 8000
    language = {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.25, (1, 1): 0.25}
    args = (all_masked(B, 2), time_grid(2), V, row_keys(1, B), Leap(everything))
    _, second, last = reverse(ExactModel(language), *args)
    left_late = second.x == V.mask
    assert left_late.float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert last.x[left_late].float().mean().item() == pytest.approx(0.5, abs=0.03)  # whatever was drawn before


def test_greedy_leaps_stay_diverse_as_the_paper_says():
    # Whichever slot is revealed first decides: slot 0 says a (0.4), slot 1 says b (0.6). Both lead to a whole text.
    language = {(0, 2, V.pad): 0.4, (1, 1, V.pad): 0.35, (2, 1, V.pad): 0.25}
    found = frequencies(ExactModel(language), 100, Leap(greedy), B=3000)
    assert found[0, 2, V.pad] == pytest.approx(0.5, abs=0.04)
    assert found[1, 1, V.pad] == pytest.approx(0.5, abs=0.04)


def test_greedy_is_the_papers_annealing():
    chances = torch.tensor([[0.1, 0.2, 0.05, 0.35, 0.3, 0.0]])  # a b c [mask] [pad] [sep]
    candidates = greedy(chances, V)
    assert candidates.tokens.tolist() == [[V.mask, V.pad]]
    torch.testing.assert_close(candidates.chances, torch.tensor([[0.35, 0.65]]))
    candidates = greedy_words(chances, V)
    assert candidates.tokens.tolist() == [[V.mask, V.pad, 1]]
    torch.testing.assert_close(candidates.chances, torch.tensor([[0.35, 0.3, 0.35]]))


def test_tempered_is_temperature_and_nucleus():
    chances = torch.tensor([[0.1, 0.2, 0.05, 0.35, 0.3, 0.0]])
    sharp = Tempered(temperature=0.5, pad_apart=True)(chances, V)
    p = torch.tensor([0.2, 0.1, 0.05]) ** 2
    torch.testing.assert_close(sharp.chances[0, :5], torch.cat([torch.tensor([0.35, 0.3]), 0.35 * p / p.sum()]))
    assert sharp.tokens[0, :5].tolist() == [V.mask, V.pad, 1, 0, 2]
    nucleus = Tempered(top_p=0.6)(chances, V)  # of 4/7, 2/7, 1/7 the first two are needed
    torch.testing.assert_close(nucleus.chances[0, 2:5], 0.35 * torch.tensor([2 / 3, 1 / 3, 0]))
    together = Tempered(pad_apart=False)(chances, V)
    assert together.tokens[0, 2].item() == V.pad
    for bad in ({"temperature": 0.0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Tempered(**bad)


def test_a_draw_never_takes_what_has_no_chance():
    candidates = Candidates(torch.tensor([[V.mask, 0, 1]]), torch.tensor([[0.4, 0.6 - 1e-6, 0.0]]))
    for u in (0.0, 0.5, 1 - 1e-7):  # the chances sum to less than the last one
        assert candidates.draw(torch.tensor([u])).item() in (V.mask, 0)


def test_draw_follows_the_chances():
    candidates = greedy_words(torch.tensor([[0.1, 0.2, 0.05, 0.35, 0.3, 0.0]]).expand(10_000, -1), V)
    drawn = candidates.draw((torch.arange(10_000) + 0.5) / 10_000)
    shares = torch.bincount(drawn, minlength=V.size) / 10_000
    torch.testing.assert_close(shares, torch.tensor([0, 0.35, 0, 0.35, 0.3, 0]), atol=2e-4, rtol=0)


@pytest.mark.parametrize("terminal", [grid_terminal, random_terminal])
@pytest.mark.parametrize("steps", [1, 2, 7, 64])
def test_straight_velocity_ends_at_the_clean_positions(terminal, steps):
    is_prompt = np.random.default_rng(0).random((5, 12)) < 0.4
    n_real = np.array([12, 9, 5, 1, 7])
    is_prompt &= np.arange(12) < n_real[:, None]
    keys = row_keys(0, 5)
    z_0, z_T = (torch.from_numpy(z) for z in couple(is_prompt, n_real, keys, terminal(is_prompt, keys)))
    hint = torch.from_numpy(np.where(is_prompt, UNKNOWN, NOT_PROMPT))
    start = dataclasses.replace(all_masked(5, 12), z=z_T, hint=hint)

    def model(state):
        at = state.x == V.mask
        return Prediction(at=at, log_score=torch.zeros(int(at.sum()), V.size), velocity=z_0 - z_T)

    states = list(reverse(model, start, time_grid(steps), V, keys, projections=(keep_prompt_order,)))
    assert len(states) == steps + 1
    torch.testing.assert_close(states[-1].z, z_0, atol=1e-5, rtol=0)
    for state in states:  # Algorithm 1's paths at every time
        torch.testing.assert_close(state.z, torch.lerp(z_0, z_T, state.t[:, None]), atol=1e-5, rtol=0)
    assert (states[-1].x != V.mask).all()


def test_rows_do_not_depend_on_the_batch():
    model, keys = ExactModel(LANGUAGE), row_keys(3, 8)
    for reveal in (Leap(everything), Leap(greedy), MostCertainFirst(greedy_words)):
        *_, whole = reverse(model, all_masked(8, 3), time_grid(6), V, keys, reveal)
        for row in range(8):
            *_, alone = reverse(model, all_masked(1, 3), time_grid(6), V, keys[row : row + 1], reveal)
            assert alone.x[0].tolist() == whole.x[row].tolist()


def test_most_certain_first_reveals_as_many_as_the_schedule_asks():
    states = list(
        reverse(ExactModel(LANGUAGE), all_masked(50, 3), time_grid(3), V, row_keys(0, 50), MostCertainFirst())
    )
    assert [int((state.x == V.mask).sum(-1).max()) for state in states] == [3, 2, 1, 0]
    assert [int((state.x == V.mask).sum(-1).min()) for state in states] == [3, 2, 1, 0]


@given(st.lists(st.tuples(st.floats(-1, 1, width=32), st.booleans()), min_size=1, max_size=20))
def test_sort_within_sorts_members_and_leaves_the_rest(rows):
    z = torch.tensor([[value for value, _ in rows]])
    member = torch.tensor([[flag for _, flag in rows]])
    out = sort_within(z, member)
    assert out[~member].tolist() == z[~member].tolist()
    assert out[member].tolist() == sorted(z[member].tolist())


def test_projections_keep_what_must_hold():
    B, L = 20, 9
    hint = torch.randint(NOT_PROMPT, UNKNOWN + 1, (B, L))
    start = dataclasses.replace(all_masked(B, L), hint=hint, x=torch.where(hint == UNKNOWN, 2, V.mask))

    def wild(state):
        at = torch.ones_like(state.x, dtype=torch.bool)  # scores even at prompt slots
        return Prediction(at=at, log_score=torch.randn(B * L, V.size), velocity=torch.randn(B, L) * 3)

    kept = (clamp_prompt(start), keep_prompt_order, keep_word_order(V))
    for state in itertools.islice(reverse(wild, start, time_grid(5), V, row_keys(0, B), projections=kept), 1, None):
        assert (state.x[hint == UNKNOWN] == 2).all()
        for row in range(B):
            assert (torch.diff(state.z[row, hint[row] == UNKNOWN]) >= 0).all()
    for row in range(B):  # words that are revealed on the way reach their order at the end
        words = (hint[row] == NOT_PROMPT) & (state.x[row] < V.mask)
        assert (torch.diff(state.z[row, words]) >= 0).all()


def test_words_beside_a_surer_one_wait():
    # Slots 0 … 3 in reading order; two can be revealed. 1 is surest, 0 and 2 stand beside it, so 3 comes before them.
    sure = torch.tensor([[0.8, 0.9, 0.7, 0.3]])
    start = dataclasses.replace(all_masked(1, 4), z=torch.tensor([[0.0, 0.1, 0.2, 0.3]]))

    def model(state):
        rest = (1 - sure[0]) / 2
        chances = torch.stack([sure[0], rest, rest, *(torch.full((4,), 1e-12),) * 3], -1)
        return Prediction(at=state.x == V.mask, log_score=chances.log(), velocity=torch.zeros_like(state.z))

    for apart, revealed in ((True, [1, 3]), (False, [0, 1])):
        state = list(reverse(model, start, [1.0, 0.5], V, row_keys(0, 1), MostCertainFirst(apart=apart)))[-1]
        assert torch.nonzero(state.x[0] != V.mask)[:, 0].tolist() == revealed


def test_neighbours_are_those_in_reading_order():
    # By place the slots read 2 0 3 1; 0 is surest, 2 and 3 stand beside it, so 1 comes before them.
    sure = torch.tensor([0.9, 0.3, 0.8, 0.7])
    start = dataclasses.replace(all_masked(1, 4), z=torch.tensor([[-0.5, 0.9, -0.9, 0.5]]))

    def model(state):
        rest = (1 - sure) / 2
        chances = torch.stack([sure, rest, rest, *(torch.full((4,), 1e-12),) * 3], -1)
        return Prediction(at=state.x == V.mask, log_score=chances.log(), velocity=torch.zeros_like(state.z))

    state = list(reverse(model, start, [1.0, 0.5], V, row_keys(0, 1), MostCertainFirst()))[-1]
    assert torch.nonzero(state.x[0] != V.mask)[:, 0].tolist() == [0, 1]


def test_pads_and_words_are_revealed_at_the_same_pace():
    """Four slots say [pad] and are sure of it, four say a word and are not: half of each comes in half the time."""
    start = all_masked(1, 8)

    def model(state):
        chances = torch.full((8, V.size), 1e-9)
        chances[::2, V.pad], chances[1::2, 0], chances[1::2, 1] = 1.0, 0.6, 0.4
        return Prediction(at=state.x == V.mask, log_score=chances.log(), velocity=torch.zeros_like(state.z))

    state = list(reverse(model, start, [1.0, 0.5], V, row_keys(0, 1), MostCertainFirst()))[-1]
    assert [int((state.x == token).sum()) for token in (V.pad, 0)] == [2, 2]


def test_prompt_slots_are_pushed_apart():
    state = dataclasses.replace(all_masked(1, 4), z=torch.tensor([[0.5, 0.5, 0.5, -1.0]]))
    state = dataclasses.replace(state, hint=torch.tensor([[UNKNOWN, UNKNOWN, NOT_PROMPT, UNKNOWN]]))
    first, second, word, third = keep_prompt_order(state).z[0].tolist()
    assert first == -1.0
    assert word == 0.5
    assert second < third  # there is room for text between any two
    assert third - second < 1e-3


def test_only_words_keep_their_order():
    state = dataclasses.replace(
        all_masked(1, 5), x=torch.tensor([[0, V.mask, 1, V.pad, 2]]), z=torch.tensor([[0.5, 0.45, 0.3, 0.9, -0.2]])
    )
    assert keep_word_order(V)(state).z[0].tolist() == pytest.approx([-0.2, 0.45, 0.3, 0.9, 0.5])


def test_no_echo_of_a_neighbour():
    state = dataclasses.replace(
        all_masked(1, 4), x=torch.tensor([[2, V.mask, 1, V.mask]]), z=torch.tensor([[0.2, 0.1, 0.0, 0.9]])
    )

    def model(state):
        at = state.x == V.mask
        return Prediction(at=at, log_score=torch.zeros(2, V.size), velocity=torch.zeros_like(state.z))

    score = without_echo(V)(state, model(state)).log_score
    assert torch.isneginf(score).nonzero().tolist() == [[0, 1], [0, 2], [1, 2]]  # slot 1 lies between tokens 1 and 2
    pads = dataclasses.replace(state, x=torch.tensor([[V.pad, V.mask, V.pad, V.mask]]))
    assert not torch.isneginf(without_echo(V)(pads, model(pads)).log_score).any()  # a [pad] may stand beside a [pad]


def test_read_out_sorts_by_position_and_drops_pads():
    state = dataclasses.replace(
        all_masked(1, 5), x=torch.tensor([[2, V.pad, 0, 1, 0]]), z=torch.tensor([[0.5, -1.0, 0.0, 0.0, -0.5]])
    )
    assert read_out(state, V)[0].tolist() == [0, 0, 1, 2]  # the tie at 0 goes to the earlier slot
    halfway = dataclasses.replace(state, x=torch.tensor([[V.mask, V.pad, 0, V.mask, 1]]))
    assert read_out(halfway, V)[0].tolist() == [1, 0]  # what is still masked is no word


def test_time_grid():
    assert time_grid(4) == time_grid(4, 0.2) == [1, 0.75, 0.5, 0.25, 0]
    assert time_grid(5, 0.5) == [1, 0.5, 0.375, 0.25, 0.125, 0]
    assert time_grid(1, 0.5) == [1, 0]
    with pytest.raises(ValueError, match="at least 1"):
        time_grid(0)


def test_given_pads_do_not_delay_the_surest():
    """A row of 8 masks takes 8 steps of one token each, however many given [pad]s stand after it."""

    def model(state):
        at = state.x == V.mask
        return Prediction(at=at, log_score=torch.randn(int(at.sum()), V.size), velocity=torch.zeros_like(state.z))

    for L in (8, 20, 40):
        start = all_masked(1, L)
        x = start.x.clone()
        x[0, 8:] = V.pad
        torch.manual_seed(0)
        states = reverse(model, dataclasses.replace(start, x=x), time_grid(8), V, row_keys(0, 1), MostCertainFirst())
        assert [int((state.x == V.mask).sum()) for state in states] == list(range(8, -1, -1))


def test_scores_that_are_no_numbers_end():
    start = all_masked(1, 6)

    def model(state):
        at = state.x == V.mask
        score = torch.full((int(at.sum()), V.size), torch.nan)
        return Prediction(at=at, log_score=score, velocity=torch.zeros_like(state.z))

    assert len(list(reverse(model, start, time_grid(3), V, row_keys(0, 1), MostCertainFirst()))) == 4
