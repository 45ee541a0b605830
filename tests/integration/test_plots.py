"""Figures: every slot is a line, every word is written, and what is counted is what an independent count says."""

import re
import struct
import sys
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddot.core.codes import PAD, PROMPT, RESPONSE
from ddot.core.coupling import couple, couple_independently
from ddot.core.positions import grid
from ddot.figures.trajectories import (
    COLOURS,
    COUPLINGS,
    Sentence,
    coupled,
    crossings,
    marked_sentence,
    tracks,
    training_paths,
    trajectories,
)

places = st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 0.5])
SENTENCE = marked_sentence("Every morning [the small boat] leaves the harbour [long before] the sun is up.")


def plain_crossings(z_T, z_0):
    """Every pair whose order differs at the two ends."""
    return sum(
        (z_T[i] < z_T[j] and z_0[i] > z_0[j]) or (z_T[i] > z_T[j] and z_0[i] < z_0[j])
        for i in range(len(z_T))
        for j in range(i)
    )


class Drawing:
    """What an SVG holds."""

    def __init__(self, path):
        root = ElementTree.parse(path).getroot()
        self.names = Counter(re.sub(r"-slot-.*", "", e.get("id")) for e in root.iter() if "slot" in (e.get("id") or ""))
        elements = [e for e in root.iter() if e.tag.endswith("}text")]
        self.texts = ["".join(e.itertext()) for e in elements]
        colours = {COLOURS[kind].lower() for kind in (PROMPT, RESPONSE)}
        self.labels = [e for e in elements if any(colour in e.get("style", "") for colour in colours)]

    def has(self, part):
        return any(part in text for text in self.texts)


@given(st.lists(st.tuples(places, places), max_size=14))
def test_crossings_are_inversions(ends):
    z_T, z_0 = (np.array([pair[end] for pair in ends], float) for end in (0, 1))
    assert crossings(z_T, z_0) == plain_crossings(z_T, z_0)


def test_coupled_paths_do_not_cross_within_a_set():
    for seed in range(20):
        for coupling in (couple, couple_independently):
            found = coupled(SENTENCE, seed, coupling)
            assert len(found) == 19
            assert [track.kind == PROMPT for track in found[: len(SENTENCE.words)]] == SENTENCE.is_prompt
            for kind in (PROMPT, RESPONSE):
                z_T, z_0 = (np.array([t.places[end] for t in found if t.kind == kind]) for end in (0, -1))
                if coupling is couple:
                    assert plain_crossings(z_T, z_0) == 0
        # Both start from the same places.
        both = [sorted(t.places[0] for t in coupled(SENTENCE, seed, c)) for c in COUPLINGS.values()]
        assert both[0] == both[1]


def test_scaled_places_are_the_clean_grid_and_pads_run_level(with_pads):
    found = tracks(with_pads, scaled=True)
    assert len(found) == len(with_pads[0].pieces)
    words = [track for track in found if track.kind != PAD]
    assert [float(track.places[-1]) for track in words] == pytest.approx(grid(len(words)), abs=1e-6)
    for track in found:
        if track.kind == PAD:
            assert track.places == pytest.approx(np.full(len(with_pads), track.places[0]), abs=1e-6)


def test_unscaled_places_count_slots(with_pads):
    found = tracks(with_pads, scaled=False)
    words = np.array([track.places[-1] for track in found if track.kind != PAD])
    n = len(words)
    assert np.diff(words) == pytest.approx(np.full(n - 1, n / (n - 1)), abs=1e-5)
    assert words.mean() == pytest.approx(len(found) / 2, abs=1e-5)


def test_a_slot_is_known_when_its_piece_is(streamed):
    for slot, track in enumerate(tracks(streamed, scaled=True)):
        known = [frame.pieces[slot] is not None for frame in streamed]
        assert known == [step >= track.known for step in range(len(streamed))]
        assert (track.kind == PROMPT) == streamed[0].given[slot]


def test_every_slot_is_a_line_and_every_word_is_written(tmp_path, with_pads, without_pads, streamed):
    for frames, scaled, panels in [
        (with_pads, None, 2),
        (with_pads, True, 1),
        (with_pads, False, 1),
        (without_pads, None, 1),
        (streamed[:1], True, 1),
        (streamed, False, 1),
    ]:
        trajectories(frames, tmp_path / "a.svg", scaled)
        drawing = Drawing(tmp_path / "a.svg")
        assert drawing.names == {f"panel-{number}": len(frames[0].pieces) for number in range(panels)}
        for piece in filter(None, frames[-1].pieces):
            assert drawing.texts.count(piece.strip()) >= panels or piece.isspace()
        assert ("slots" in drawing.texts) == (scaled is not True)
        assert ("scaled" in drawing.texts) == (scaled is not False)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def test_labels_do_not_overlap(tmp_path, with_pads, without_pads):
    for frames, scaled in ((with_pads, True), (with_pads, False), (without_pads, None)):
        trajectories(frames, tmp_path / "a.svg", scaled)
        heights = sorted(float(label.get("y")) for label in Drawing(tmp_path / "a.svg").labels)
        assert len(heights) == sum(1 for piece in frames[-1].pieces if piece)
        assert min(np.diff(heights)) >= 9  # the size of the letters


def test_training_paths_count_what_they_draw(tmp_path):
    counts = training_paths(SENTENCE, tmp_path / "a.svg", seed=3)
    drawing = Drawing(tmp_path / "a.svg")
    assert drawing.names == {"panel-0": 19, "panel-1": 19}
    for name, coupling in COUPLINGS.items():
        found = coupled(SENTENCE, 3, coupling)
        for part, kind in (("prompt", PROMPT), ("response", RESPONSE)):
            members = [track.places for track in found if track.kind == kind]
            assert counts[name][part] == plain_crossings([m[0] for m in members], [m[-1] for m in members])
        assert drawing.has(name)
    assert counts["With optimal transport"] == {"prompt": 0, "response": 0}
    assert sum(counts["Without optimal transport"].values()) > 0
    for word in SENTENCE.words:
        assert drawing.texts.count(word) == 2 * SENTENCE.words.count(word)


def test_a_png_is_large_enough_to_read_and_the_same_each_time(tmp_path, with_pads):
    trajectories(with_pads, tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert 1200 < width < 4000
    assert 600 < height < 4000
    assert 20_000 < len(content) < 2_000_000
    trajectories(with_pads, tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes() == content


def test_what_cannot_be_drawn_is_refused(tmp_path, with_pads, monkeypatch):
    for name in ("a.pdf", "a", "a.png.txt"):
        with pytest.raises(ValueError, match=r"ends in neither \.png nor \.svg"):
            trajectories(with_pads, tmp_path / name)
        with pytest.raises(ValueError, match=r"ends in neither \.png nor \.svg"):
            training_paths(SENTENCE, tmp_path / name)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        trajectories(with_pads, tmp_path / "no" / "a.png")
    with pytest.raises(ValueError, match="there are no frames"):
        trajectories([], tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"pip install .*\[plots\]"):
        trajectories(with_pads, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_sentences_say_what_is_given():
    text = "Every morning the small boat leaves the harbour long before the sun is up."
    assert Sentence(text.split(), [True] * 2 + [False] * 3 + [True] * 3 + [False] * 2 + [True] * 4) == SENTENCE
    for seed in range(20):
        chosen = marked_sentence(text, seed)
        assert chosen.words == text.split()
        assert not all(chosen.is_prompt)
        assert chosen == marked_sentence(text, seed)
    with pytest.raises(ValueError, match="the text is empty"):
        marked_sentence(" [] ")
    for text in ("The [small boat leaves.", "The small] boat", "[The [small] boat]"):
        with pytest.raises(ValueError, match="unmatched bracket"):
            marked_sentence(text)
