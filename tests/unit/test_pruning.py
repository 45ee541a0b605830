"""GPT-2's two files, foreign tokenizers, and smaller vocabularies that still write every text."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Encoder

from ddot.data.tokenizer import Tokenizer, byte_level, learn_bpe, prune

TEXTS = [
    "The gardener waters the roses in the evening, and the roses lean towards the water.",
    "Every evening the gate is left open; every morning somebody has closed it.",
    "Water the garden, close the gate, open the letters.",
]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_bpe(TEXTS, 420)


def counts_of(tokenizer, texts):
    ids = np.concatenate([tokenizer.encode(text) for text in texts])
    return np.bincount(ids, minlength=tokenizer.vocabulary.base)


def check_rows(small, old, tokenizer):
    """New id → old id names the same token, all the way."""
    assert len(old) == small.vocabulary.base
    assert [small.encoder.id_to_token(i) for i in range(len(old))] == [
        tokenizer.encoder.id_to_token(int(i)) for i in old
    ]


@pytest.fixture(scope="module")
def pruned(tokenizer):
    return prune(tokenizer, counts_of(tokenizer, TEXTS[:1]), 2)


@given(text=st.text(max_size=40) | st.sampled_from(TEXTS))
def test_a_pruned_tokenizer_writes_every_text(pruned, text):
    small, _ = pruned
    assert small.decode(small.encode(text)) == text


def test_rows_follow_and_what_is_rare_goes(tokenizer, pruned):
    small, old = pruned
    check_rows(small, old, tokenizer)
    assert 256 < small.vocabulary.base < tokenizer.vocabulary.base
    counts = counts_of(tokenizer, TEXTS[:1])
    kept = set(old.tolist())
    assert set(np.flatnonzero(counts >= 2).tolist()) <= kept
    assert tokenizer.encoder.token_to_id("Ġletters") not in kept
    assert small.edge == small.encoder.token_to_id("<|endoftext|>")


@given(chosen=st.sets(st.sampled_from(TEXTS), min_size=1))
def test_counted_texts_are_encoded_as_before(tokenizer, chosen):
    small, old = prune(tokenizer, counts_of(tokenizer, chosen), 1)
    for text in chosen:
        assert old[small.encode(text)].tolist() == tokenizer.encode(text).tolist()


def test_a_token_that_can_be_cut_in_several_ways_keeps_the_way_it_is_made():
    """Some vocabularies list all cuts: abc is made as ab + c, xyz as xy + z; the other cuts are never used."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*letters, "ab", "bc", "abc", "xy", "yz", "xyz"])}
    merges = [("x", "yz"), ("a", "b"), ("ab", "c"), ("a", "bc"), ("x", "y"), ("xy", "z")]
    tokenizer = Tokenizer(byte_level(models.BPE(vocab, merges)))
    text = "abc xyz"
    assert len(tokenizer.encode(text)) == 3
    small, old = prune(tokenizer, counts_of(tokenizer, [text]), 1)
    assert old[small.encode(text)].tolist() == tokenizer.encode(text).tolist()
    check_rows(small, old, tokenizer)


def test_added_tokens_stay_and_follow(tokenizer):
    encoder = Encoder.from_str(tokenizer.encoder.to_str())
    encoder.add_special_tokens([AddedToken("<|one|>", special=True), AddedToken("<|two|>", special=True)])
    encoder.post_processor = processors.TemplateProcessing(
        single="<|one|> $A", special_tokens=[("<|one|>", encoder.token_to_id("<|one|>"))]
    )
    more = Tokenizer(encoder)
    small, old = prune(more, counts_of(more, TEXTS[1:2]), 1)
    check_rows(small, old, more)
    assert old[-2:].tolist() == [encoder.token_to_id("<|one|>"), encoder.token_to_id("<|two|>")]
    assert small.encoder.encode("open", add_special_tokens=True).ids == small.encode("open").tolist()


def spaces_and_bytes():
    """A BPE as Llama 1 and 2 have it: ▁ for a space, bytes as <0x..> for what has no token."""
    tokens = ["<unk>", "<s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", *"abcdeghlnoprstw"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("r", "o"), ("ro", "se"), ("s", "e"), ("▁", "rose")]
    tokens += ["".join(pair) for pair in merges]
    vocab = {token: i for i, token in enumerate(tokens)}
    encoder = Encoder(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    encoder.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    encoder.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(encoder)


@given(text=st.text(alphabet="abcdeghl nop rstw the rose ZÄ詩🦉\n", min_size=1, max_size=30))
def test_a_tokenizer_with_byte_tokens_can_be_pruned_too(text):
    tokenizer = spaces_and_bytes()
    small, old = prune(tokenizer, counts_of(tokenizer, ["the the"]), 1)
    check_rows(small, old, tokenizer)
    assert "▁rose" not in small.encoder.get_vocab()
    assert small.decode(small.encode(text)) == text


def test_only_bpe_can_be_pruned():
    words = Tokenizer(Encoder(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
    with pytest.raises(ValueError, match="only a BPE vocabulary can be pruned, this one is WordLevel"):
        prune(words, np.ones(2, int), 1)


def test_gpt2s_two_files(tokenizer, tmp_path):
    spec = json.loads(tokenizer.encoder.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(spec["vocab"]))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in spec["merges"])]
    (tmp_path / "merges.txt").write_text("\n".join(lines) + "\n")
    for loaded in (Tokenizer.from_bpe(tmp_path / "vocab.json", tmp_path / "merges.txt"), Tokenizer.load(tmp_path)):
        for text in [*TEXTS, "It's 12 o'clock\n\n  in <|endoftext|> Zürich 🦉"]:
            assert loaded.encode(text).tolist() == tokenizer.encode(text).tolist()
            assert loaded.decode(loaded.encode(text)) == text
        assert loaded.vocabulary == tokenizer.vocabulary
        assert loaded.edge == tokenizer.edge
    (tmp_path / "vocab.json").write_text("[]")
    with pytest.raises(ValueError, match="not the two files of a BPE"):
        Tokenizer.load(tmp_path)
