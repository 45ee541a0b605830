"""Gaps in position space, against loops written out."""

import dataclasses

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddot.core.codes import AFTER, BEFORE, BOTH, GLUED, NOT_PROMPT, UNKNOWN
from ddot.core.gaps import gap_of, gaps_open_by_hint
from ddot.core.projections import keep_in_gaps, keep_out_of_closed, keep_prompt_order
from ddot.core.records import State

rows = st.lists(
    st.tuples(
        st.one_of(st.floats(-1.25, 1.25, width=32), st.sampled_from([-1.0, 0.0, 0.5])),
        st.sampled_from([NOT_PROMPT, NOT_PROMPT, UNKNOWN, GLUED, BEFORE, AFTER, BOTH]),
    ),
    min_size=1,
    max_size=14,
)


def as_state(row):
    z, hint = torch.tensor([[v for v, _ in row]]), torch.tensor([[k for _, k in row]])
    return State(x=torch.zeros_like(hint), z=z, hint=hint, gap_length=torch.full_like(hint, -1), t=torch.ones(1))


def open_by_hand(hints):
    hints = [hint for hint in hints if hint != NOT_PROMPT]
    is_open = [True] * (len(hints) + 1)
    for i, hint in enumerate(hints):
        if hint in (GLUED, AFTER):
            is_open[i] = False
        if hint in (GLUED, BEFORE):
            is_open[i + 1] = False
    return is_open


@given(rows)
@settings(max_examples=300)
def test_nothing_ends_in_a_closed_gap_and_nothing_else_moves(row):
    state = keep_prompt_order(as_state(row))
    is_open = gaps_open_by_hint(state.hint)
    expected = open_by_hand(state.hint[0].tolist())
    assert is_open[0].tolist()[: len(expected)] == expected
    assert not is_open[0, len(expected) :].any()

    after = keep_out_of_closed(is_open)(state)
    prompt = state.is_prompt[0]
    gaps = gap_of(after.z, state.is_prompt)[0]
    for slot in range(len(row)):
        if prompt[slot]:
            assert after.z[0, slot] == state.z[0, slot]
        elif any(expected):
            assert expected[gaps[slot]]
        if expected[gap_of(state.z, state.is_prompt)[0, slot]]:
            assert after.z[0, slot] == state.z[0, slot]
    assert torch.equal(keep_out_of_closed(is_open)(after).z, after.z)


@given(rows, st.data())
def test_slots_end_in_the_gaps_they_are_meant_for_and_prompts_stay(row, data):
    state = keep_prompt_order(as_state(row))
    is_prompt = state.is_prompt
    gap = torch.tensor([[data.draw(st.integers(0, int(is_prompt.sum()))) for _ in row]])
    after = keep_in_gaps(gap)(state)
    assert torch.equal(after.z[is_prompt], state.z[is_prompt])
    assert torch.equal(gap_of(after.z, is_prompt)[~is_prompt], gap[~is_prompt])
    inside = ~is_prompt & (gap_of(state.z, is_prompt) == gap)
    border = (state.z[..., None] == state.z[is_prompt]).any(-1)  # at a prompt slot's own place: just beside it
    assert torch.equal(after.z[inside & ~border], state.z[inside & ~border])


@given(rows)
def test_gap_of_agrees_with_reading_order(row):
    state = as_state(row)
    prompt = state.is_prompt
    order = state.z.argsort(dim=-1, stable=True)[0].tolist()
    seen = 0
    for slot in order:
        assert gap_of(state.z, prompt)[0, slot] == seen
        seen += int(prompt[0, slot])


def test_slots_go_to_the_nearer_open_gap_and_keep_their_order():
    hint = torch.tensor([[AFTER, BEFORE, GLUED, AFTER, NOT_PROMPT, NOT_PROMPT, NOT_PROMPT]])
    z = torch.tensor([[-1.0, -0.5, 0.0, 0.5, -0.4, -0.3, 0.4]])
    state = dataclasses.replace(
        as_state([(0.0, NOT_PROMPT)]), z=z, hint=hint, x=torch.zeros_like(hint), gap_length=hint * 0 - 1
    )
    moved = keep_out_of_closed(gaps_open_by_hint(hint))(state).z[0]
    assert moved[4] < -0.5  # into the gap after the first token
    assert moved[5] < -0.5
    assert moved[6] > 0.5  # after the last token
