"""The tokens of a vocabulary as pieces of text, and which of them may stand where."""

import sys
from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property
from unicodedata import category

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ddot.data.tokenizer import Tokenizer
from ddot.infill.spacing import CLOSERS, MARKS

# Parts of words that stand apart in tokenised text: "won 't", "Obama 's".
_ENDINGS = {"'s", "'t", "n't", "'re", "'ve", "'ll", "'d", "'m", "’s", "’t", "’re", "’ve", "’ll", "’d", "’m"}

# Words of three letters and more that any sentence may hold twice.
SMALL_WORDS = (
    "all and any are but can did for get got had has her him his how its may nor not now off one our out own per put "
    "say see she the too two use was way who why yet you "
    "about after also because been before being both could does done down each even from have having here into just "
    "like made make many might more most much must never only other ours over said same says shall should since some "
    "still such than that their them then there these they this those through under until upon very well were what "
    "when where which while whom whose will with within without would your"
)

# What may stand at the first slot of a blank, and at the others.
FIRST_APART, FIRST_AFTER_WORD, FIRST_GLUED, LATER = range(4)


class Alphabet:
    """The tokens of a vocabulary as pieces of text: which begin a word, which go on with one, which are neither."""

    def __init__(self, tokenizer: Tokenizer):
        base, rows = tokenizer.vocabulary.base, tokenizer.vocabulary.rows
        self.base, self.encode = base, tokenizer.encode
        known = tokenizer.encode("a")[-1:].tolist()  # decoded after a letter, so that a leading space is not lost
        lead = len(tokenizer.decode(known))
        self.pieces = pieces = [
            text[lead:] for text in tokenizer.encoder.decode_batch([[*known, i] for i in range(base)])
        ]
        self.begins, self.goes_on, self.closes, self.word = (np.zeros(rows, bool) for _ in range(4))
        self.space, self.loose, self.mark = (np.zeros(rows, bool) for _ in range(3))
        for row, piece in enumerate(pieces):
            bare = piece.removeprefix(" ")
            if piece == " ":
                self.space[row] = True  # some vocabularies write numbers as a space and digits
            elif bare and bare.isprintable() and " " not in bare and "�" not in bare and not _is_marker(bare):
                self.begins[row] = bare != piece
                self.goes_on[row] = bare == piece
                self.loose[row] = bare != piece and (bare[0] in MARKS or bare.lower() in _ENDINGS)
                self.mark[row] = bare != piece and not any(c.isalnum() or category(c) == "Sc" for c in bare)
                self.closes[row] = bare == piece and bare[0] in CLOSERS
                self.word[row] = bare == piece and bare[0].isalnum()
        if not (self.begins & ~self.loose).any() or not self.word.any():
            raise ValueError("the tokenizer has no tokens that begin a word with a space; it cannot fill blanks")

    def spell(self, tokens: Int[np.ndarray, "n"]) -> str:
        """The text of tokens, with the leading space of the first one if it has one."""
        return "".join(self.pieces[token] for token in tokens.tolist())

    def spellings(self, word: str, encode: Callable[[str], Int[np.ndarray, "_"]]) -> list[tuple[int, ...]]:
        """The usual ways to write a word in tokens: in small letters and capitals, after a space or glued."""
        forms = {word, word.lower(), word.upper(), word.capitalize(), word.title()}
        ways = {tuple(encode(lead + form).tolist()) for form in forms for lead in (" ", "")}
        small = word.lower()
        return sorted(ways | {(row,) for row, piece in enumerate(self.pieces) if piece.strip().lower() == small})

    @cached_property
    def token_of(self) -> dict[str, int]:
        """The token of each piece of a word."""
        text = self.begins | self.goes_on
        return {piece: row for row, piece in enumerate(self.pieces) if text[row]}

    @cached_property
    def _in_order(self) -> list[str]:
        return sorted(self.token_of)

    def beginning_with(self, letters: str) -> list[int]:
        """The tokens whose text begins with these letters."""
        ends = bisect_left(self._in_order, letters), bisect_left(self._in_order, letters + chr(sys.maxunicode))
        return [self.token_of[piece] for piece in self._in_order[slice(*ends)]]

    def spelling_on(self, letters: str) -> list[int]:
        """The tokens that begin with these letters, or spell as many of them as the tokenizer would."""
        usual = self.pieces[int(self.encode(letters)[0])]
        parts = [usual] if letters.startswith(usual) and usual in self.token_of else self._prefixes(letters)
        return sorted({*self.beginning_with(letters), *(self.token_of[part] for part in parts)})

    def _prefixes(self, letters: str) -> list[str]:
        return [letters[:end] for end in range(1, len(letters)) if letters[:end] in self.token_of]

    @cached_property
    def says(self) -> Bool[np.ndarray, "V"]:
        """Tokens that are a word or a part of one, no mark."""
        return self.word | (self.begins & ~self.mark)

    @cached_property
    def no_text(self) -> tuple[int, ...]:
        """The ordinary tokens that may stand nowhere: white space, parts of characters, markers."""
        text = self.begins | self.goes_on | self.space
        return tuple(np.flatnonzero(~text[: self.base]).tolist())

    @cached_property
    def loose_marks(self) -> tuple[int, ...]:
        """Tokens that are a mark or an ending after a space, as only tokenised text has them."""
        return tuple(np.flatnonzero(self.loose).tolist())

    @cached_property
    def telling(self) -> Bool[Tensor, "V"]:
        """Tokens that begin a word which tells something: a reader notices when it comes twice."""
        bare = [piece.removeprefix(" ") for piece in self.pieces]
        small = set(SMALL_WORDS.split())
        tells = [len(word) >= 3 and word.isalpha() and word.lower() not in small for word in bare]
        return torch.from_numpy(self.begins & np.pad(tells, (0, len(self.begins) - len(tells))))

    @cached_property
    def allowed(self) -> Bool[Tensor, "rules V"]:
        """For each rule the tokens that may stand there: FIRST_APART … LATER, then the same where words are counted.

        There a mark after a space is not a word; in tokenised text, whose rules come third, it is. The last four are
        for a blank that must hold a word: it does not begin with a mark.
        """
        begin = self.begins | self.space
        rules = [begin, begin | self.closes, self.word, begin | self.goes_on]
        loose = [rule & ~self.space for rule in rules]
        words = [rule & ~self.mark for rule in rules]
        return torch.from_numpy(np.stack([*rules, *(rule & ~self.mark for rule in loose), *loose, *words]))


def _is_marker(piece: str) -> bool:
    """Markers of a language model's training, such as <|im_start|>, are no text; nor are blanks, or parts of one."""
    return (len(piece) > 2 and piece[0] == "<" and piece[-1] == ">") or set(piece) == {"_"}
