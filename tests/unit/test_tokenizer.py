"""Text ↔ ids with a tokenizer trained here, and the rows that text cannot reach."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from ddot.core.records import Vocabulary
from ddot.data.tokenizer import Tokenizer, byte_level, learn_bpe


@pytest.fixture(scope="module")
def tokenizer():
    encoder = byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"]
    )
    encoder.train_from_iterator(["the cat sat on the mat, and the dog sat on the cat."] * 4, trainer)
    return Tokenizer(encoder)


@given(text=st.text(max_size=60))
def test_any_text_comes_back(tokenizer, text):
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    tokenizer.vocabulary.check(tokens)


def test_special_rows_follow_the_ordinary_ones(tokenizer):
    v = tokenizer.vocabulary
    assert (v.mask, v.pad, v.sep, v.size) == (v.base, v.base + 1, v.base + 2, v.base + 3)
    assert Vocabulary(50257).mask == 50257  # where SEDD has it
    assert tokenizer.decode([v.mask, *tokenizer.encode("cat").tolist(), v.pad, v.sep]) == "cat"


def test_end_of_text_cannot_be_typed(tokenizer):
    assert tokenizer.edge == 0
    assert 0 not in tokenizer.encode("a <|endoftext|> b")
    assert tokenizer.decode(tokenizer.encode("a <|endoftext|> b")) == "a <|endoftext|> b"


def test_words_follow_white_space(tokenizer):
    text = "the zebra sat on mats"
    tokens = tokenizer.encode(text)
    words = tokenizer.words(tokens)
    joined = ["".join(tokenizer.decode(tokens[words == i])).strip() for i in range(words[-1] + 1)]
    assert joined == text.split()


def test_save_and_load(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path)
    assert again.encode("the dog").tolist() == tokenizer.encode("the dog").tolist()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "nothing")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match="not a tokenizer"):
        Tokenizer.load(tmp_path / "bad.json")


@pytest.mark.parametrize("wrong", [-1, 10, 11, 13])
def test_ids_out_of_range_are_refused(wrong):
    Vocabulary(10).check(np.array([0, 9, 12]))
    with pytest.raises(ValueError, match="out of range"):
        Vocabulary(10).check(np.array([0, wrong]))


def test_closing_marks_are_units_of_their_own():
    text = 'She said (twice), "No." It\'s 3.5 km; really!?'
    tokenizer = learn_bpe([text], 257)  # a token for each byte
    tokens = tokenizer.encode(" " + text)
    units, words = tokenizer.units(tokens), tokenizer.words(tokens)
    pieces = ["".join(tokenizer.decode(tokens[units == unit])) for unit in range(units[-1] + 1)]
    assert "".join(pieces) == " " + text
    # Marks inside a word belong to it ("3.5", "It's"); marks that close one stand alone, each by itself.
    assert [piece.strip() for piece in pieces] == [
        "She", "said", "(twice", ")", ",", '"No', ".", '"', "It's", "3.5", "km", ";", "really", "!", "?",
    ]  # fmt: skip
    assert (np.diff(units) >= np.diff(words)).all()  # units are words, or parts of them
    assert tokenizer.units(tokens[:0]).shape == (0,)


def test_the_first_word_is_number_0_with_and_without_a_space_before_it(tokenizer):
    for text in ("the cat", " the cat"):
        words = tokenizer.words(tokenizer.encode(text))
        assert (words[0], words[-1]) == (0, 1)
