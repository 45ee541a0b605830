"""Passages with marked blanks: templates, prompts, and metrics of what was filled in, worked out by hand."""

import copy
import json

import numpy as np
import pytest
import torch

from ddot.core.codes import NOT_PROMPT, UNKNOWN_LENGTH
from ddot.core.records import State
from ddot.data.tokenizer import learn_bpe
from ddot.evaluation.filling import Continued, Loaded
from ddot.evaluation.items import Passage, Program, Sentence, read_items
from ddot.evaluation.metrics.fluency import Causal
from ddot.evaluation.metrics.scoring import OF_FILLS, score, usual
from ddot.evaluation.nats import before_only, both_sides, chosen, measure
from ddot.evaluation.rows import measured
from ddot.evaluation.run import generate
from ddot.infill.model import Model
from ddot.infill.template import parse
from ddot.methods.continuation import continuations
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig
from ddot.network.trunk import left_to_right

PEOPLE = "⟦Police are looking⟧ for a man who left ⟦by train⟧, they said."
STORY = {"prefix": "Mary had a party.", "middle": "She asked her friends.", "suffix": "They came."}
TOKENIZER = learn_bpe([PEOPLE, *STORY.values()], 320)


@pytest.fixture
def items(tmp_path):
    file = tmp_path / "people.dev.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in ({"id": "p", "text": PEOPLE}, {"id": "s", **STORY})))
    return read_items(file)


def test_passages_are_read_and_written_as_templates(items):
    people, story = items
    assert people == Passage("p", ("", " for a man who left ", ", they said."), ("Police are looking", "by train"))
    assert people.text == PEOPLE.replace("⟦", "").replace("⟧", "")
    assert people.template(told=False) == "___ for a man who left ___, they said."
    assert [blank.least for blank in parse(people.template(told=True)).blanks] == [3, 2]
    assert people.given == ["for", "a", "man", "who", "left", "they", "said."]
    assert story.text == "Mary had a party. She asked her friends. They came."
    assert story.template(told=False) == "Mary had a party. ___ They came."
    assert isinstance(chosen(items)[0], Passage)
    assert chosen(items) == [story]
    with pytest.raises(ValueError, match="located"):
        story.prompted(TOKENIZER, False)


def test_templates_keep_what_is_given_verbatim():
    sentence = Sentence.of("0", ("a", "___", "c", "d", "e"), (1, 4))
    assert parse(sentence.template(told=False)).literals == ("", " ___ ", " e")
    assert [blank.most for blank in parse(sentence.template(told=True)).blanks] == [1, 2]
    assert Sentence.of("0", ("a", "b"), (0, 1)).template(told=False) is None
    code = Program("0", ("x = '<mask>'\n", "z = 3\n"), ("y = 2\n",))
    assert parse(code.template(told=False)).literals == ("x = '<mask>'\n", "z = 3\n")


def test_prompts_hold_the_true_tokens(items):
    for item in (*items, Passage("g", ("", ", they came by ", "."), ("She said", "train"))):
        prompted = item.prompted(TOKENIZER, True)
        tokens, filled, left = prompted.prompt.example.tokens, [], prompted.missing
        gaps = [np.zeros(0, np.int64)]
        for token, length in zip(tokens, prompted.gap_lengths, strict=True):
            filled += [token, *left[:length]]
            gaps.append(left[:length])
            left = left[length:]
        assert TOKENIZER.decode(np.array(filled[1:-1])).strip() == item.text
        assert prompted.filled(gaps, TOKENIZER) == item.text
        assert prompted.prompt.is_open.sum() == len(item.fills)


def test_metrics_of_fills_by_hand(items):
    pytest.importorskip("rouge_score")
    texts = [
        "Police  for a man who left by the night train, they said.",
        "Mary had a party. She asked friends. They came.",
    ]
    assert items[0].fills_in(texts[0]) == ["Police ", "by the night train"]
    assert items[0].fills_in("something else") is None
    assert usual(items) == OF_FILLS
    found = score(items, texts, OF_FILLS, samples=20)
    # Words in common: 1 of 1 and 3, 2 of 4 and 2, 3 of 3 and 4; pairs: none, none, 1 of 2 and 3.
    assert found["rouge1"] == pytest.approx(100 * (1 / 2 + 2 / 3 + 6 / 7) / 3)
    assert found["rougeL"] == pytest.approx(found["rouge1"])
    assert found["rouge2"] == pytest.approx(100 * (0 + 0 + 2 / 5) / 3)
    assert found["fill_length_error"] == pytest.approx((-2 + 2 - 1) / 3)
    assert found["fill_length_error_abs"] == pytest.approx(5 / 3)
    assert found["fill_length_near"] == pytest.approx(100 / 3)
    assert found["fill_empty"] == 0
    assert found["intervals"]["fill_empty"] == [0, 0]
    lost = score(items, ["gone", "Mary had a party.  They came."], ["fill_empty"])
    assert lost["fill_empty"] == 100
    assert "marked" in score([Sentence.of("0", ("a",), ())], ["a"], ["rouge1"])["missing"]["rouge1"]


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    config = DenoiserConfig.extended(LlamaConfig(32, 1, 2, 1, 64, TOKENIZER.vocabulary.rows), TOKENIZER.vocabulary)
    return Denoiser(config).eval()


@pytest.fixture(scope="module")
def attentive(network):
    """A network in which all that is read matters, not mostly the last token."""
    found = copy.deepcopy(network)
    with torch.no_grad():
        for name, weights in found.trunk.named_parameters():
            if weights.ndim == 2 and "blocks" in name:
                weights *= 12
    return found


def test_nats_are_those_of_the_likelihood_of_each_next_word(network, items):
    """Against one forward pass per token, laid out by hand."""
    prompted, v, L = items[1].prompted(TOKENIZER, True), network.vocabulary, 32
    gap, missing = int(np.flatnonzero(prompted.gap_lengths)[0]), prompted.missing
    tokens, hints, n = prompted.prompt.example.tokens, prompted.prompt.example.hint, len(prompted.missing)
    real, total = len(tokens) + n, 0.0
    slots = [slot for slot in range(real) if not gap < slot <= gap + n]  # of the given tokens
    hint, gap_length = torch.full((1, L), NOT_PROMPT), torch.full((1, L), UNKNOWN_LENGTH)
    hint[0, slots], gap_length[0, slots] = torch.from_numpy(hints), torch.from_numpy(prompted.gap_lengths)
    z = torch.cat([torch.linspace(-1, 1, real) * (real / L), torch.zeros(L - real)])[None]
    z[0, real:] = FixedLength().start([_told(prompted)], L, np.zeros(1, np.uint64), v).z[0, real:]  # of pads
    for known in range(n):
        x = torch.full((1, L), v.pad)
        x[0, slots] = torch.from_numpy(tokens)
        x[0, gap + 1 : gap + 1 + n] = v.mask
        x[0, gap + 1 : gap + 1 + known] = torch.from_numpy(missing[:known])
        hidden, _ = network.read(State(x, z, hint, gap_length, torch.tensor([1 - known / n])))
        logits = network.logits(hidden[0, gap + 1 + known][None])[0, : v.base]
        total -= logits.log_softmax(-1)[missing[known]].item()
    assert both_sides(network, [prompted]) == (pytest.approx(total, rel=1e-4), n)


def _told(prompted):
    return prompted.prompt.with_gap_lengths(prompted.gap_lengths).example


def test_causal_nats_see_the_text_before_the_blank_alone(network, items):
    model = Causal(network, TOKENIZER)
    found = before_only(model, [items[1]])
    whole, _ = model([f" {STORY['prefix']} {STORY['middle']}"])
    before, _ = model([f" {STORY['prefix']}"])
    assert found[0] == pytest.approx((whole - before).item(), rel=1e-4)


def test_continuations_are_the_likeliest_next_tokens(attentive):
    """Against one whole forward pass per token, a text at a time: batches, padding and the cache change nothing."""
    texts = [TOKENIZER.encode(text) for text in ("Mary had", "They came. They", " for a man who left by train, they")]
    lengths, edge, trunk = [5, 2, 9], TOKENIZER.edge, attentive.trunk
    for before, length, found in zip(texts, lengths, continuations(attentive, texts, lengths, edge), strict=True):
        tokens = before.tolist()
        for _ in range(length):
            x, places = torch.tensor([tokens]), torch.arange(len(tokens), dtype=torch.float32)[None]
            logits = trunk.logits(trunk.hidden(trunk.embed(x), places, torch.ones(1), left_to_right)[:, -1])
            logits[0, [edge, *range(TOKENIZER.vocabulary.base, TOKENIZER.vocabulary.rows)]] = -torch.inf
            tokens.append(int(logits.argmax()))
        assert found.tolist() == tokens[len(before) :]
    first = int(continuations(attentive, texts[:1], [1], edge)[0][0])
    assert continuations(attentive, texts[:1], [1], never=first)[0][0] != first


def test_a_language_model_sees_the_text_before_each_gap_alone(attentive, items):
    """The text after a gap changes nothing; what it wrote itself does."""
    model = Loaded(Model(attentive, TOKENIZER), "tiny", batch=2)
    others = [Passage("p", (*people.literals[:2], " but they said."), people.fills) for people in items[:1]]
    others.append(Passage("s", ("Mary had a party. ", " It rains."), (STORY["middle"],)))
    fills = []
    for texts in (items, others):
        filled, _ = generate(model, texts, Continued(), located=True, steps=1)
        fills.append([item.fills_in(text) for item, text in zip(texts, filled, strict=True)])
    assert fills[0] == fills[1]
    assert list(map(len, fills[0])) == [2, 1]
    prompted = items[0].prompted(TOKENIZER, True)
    given, lengths = prompted.prompt.example.tokens, prompted.gap_lengths.tolist()
    one, two = np.flatnonzero(lengths)
    (first,) = continuations(attentive, [given[: one + 1]], [lengths[one]], TOKENIZER.edge)
    whole = np.concatenate([given[: one + 1], first, given[one + 1 : two + 1]])
    (second,) = continuations(attentive, [whole], [lengths[two]], TOKENIZER.edge)
    assert fills[0][0] == [TOKENIZER.decode(tokens).strip() for tokens in (first, second)]


def test_nats_of_a_bench(network, items, tmp_path):
    judge = Causal(network, TOKENIZER, name="judge")
    row, base = measure("mine", network, TOKENIZER, tmp_path, ["people"], language_model=judge)
    assert [(each.method, each.model) for each in measured([row, base])] == [("base", "judge")]
    assert (row["model"], row["items"], row["dataset"]) == ("mine", 1, "people")
    nats, tokens = both_sides(network, [items[1].prompted(TOKENIZER, True)])
    assert row["nats"] == nats / tokens
    nats, tokens = before_only(judge, [items[1]])
    assert base["nats"] == nats / tokens
    (tmp_path / "empty.dev.jsonl").write_text(json.dumps({"id": "p", "text": PEOPLE}))
    with pytest.raises(ValueError, match="one blank"):
        measure("mine", network, TOKENIZER, tmp_path, ["empty"])
