"""The tokens of a vocabulary as pieces of text, and where each may appear in a fill."""

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

# Clitics, which tokenised text sets off with a space: "won 't", "Obama 's".
_ENDINGS = {"'s", "'t", "n't", "'re", "'ve", "'ll", "'d", "'m", "’s", "’t", "’re", "’ve", "’ll", "’d", "’m"}

# Function words of three letters and more: repeating them in a sentence is normal.
SMALL_WORDS = (
    "all and any are but can did for get got had has her him his how its may nor not now off one our out own per put "
    "say see she the too two use was way who why yet you "
    "about after also because been before being both could does done down each even from have having here into just "
    "like made make many might more most much must never only other ours over said same says shall should since some "
    "still such than that their them then there these they this those through under until upon very well were what "
    "when where which while whom whose will with within without would your"
)

# Rules for the first token of a blank (after a space, after a word, attached to an opening mark), and for later ones.
FIRST_APART, FIRST_AFTER_WORD, FIRST_GLUED, LATER = range(4)


class Alphabet:
    """The tokens of a vocabulary as pieces of text: which begin a word, which continue one, which do neither.

    `mark`: punctuation after a space; `detached`: what only tokenised text sets off with a space (" ,", " 's");
    `closes`: attached closing punctuation; `word`: letters and digits that continue a word.
    """

    def __init__(self, tokenizer: Tokenizer):
        base, rows = tokenizer.vocabulary.base, tokenizer.vocabulary.rows
        self.base, self.encode = base, tokenizer.encode
        known = tokenizer.encode("a")[-1:].tolist()  # decoded after a letter, so that a leading space is not lost
        lead = len(tokenizer.decode(known))
        self.pieces = pieces = [
            text[lead:] for text in tokenizer.encoder.decode_batch([[*known, i] for i in range(base)])
        ]
        self.begins, self.continues, self.closes, self.word = (np.zeros(rows, bool) for _ in range(4))
        self.space, self.detached, self.mark = (np.zeros(rows, bool) for _ in range(3))
        for row, piece in enumerate(pieces):
            bare = piece.removeprefix(" ")
            if piece == " ":
                self.space[row] = True  # some vocabularies encode a number as a space and its digits
            elif bare and bare.isprintable() and " " not in bare and "�" not in bare and not _is_marker(bare):
                self.begins[row] = bare != piece
                self.continues[row] = bare == piece
                self.detached[row] = bare != piece and (bare[0] in MARKS or bare.lower() in _ENDINGS or bare in "'’")
                self.mark[row] = bare != piece and not any(c.isalnum() or category(c) == "Sc" for c in bare)
                self.closes[row] = bare == piece and bare[0] in CLOSERS
                self.word[row] = bare == piece and bare[0].isalnum()
        if not (self.begins & ~self.detached).any() or not self.word.any():
            raise ValueError("the tokenizer has no tokens that begin a word with a space; it cannot fill blanks")

    def spell(self, tokens: Int[np.ndarray, "n"]) -> str:
        """The text of the tokens, including a leading space."""
        return "".join(self.pieces[token] for token in tokens.tolist())

    def spellings(self, word: str, encode: Callable[[str], Int[np.ndarray, "_"]]) -> list[tuple[int, ...]]:
        """The usual encodings of a word: in any case, with and without a space before it."""
        forms = {word, word.lower(), word.upper(), word.capitalize(), word.title()}
        encodings = {tuple(encode(lead + form).tolist()) for form in forms for lead in (" ", "")}
        lower = word.lower()
        return sorted(encodings | {(row,) for row, piece in enumerate(self.pieces) if piece.strip().lower() == lower})

    @cached_property
    def token_of(self) -> dict[str, int]:
        """The token of each piece that begins or continues a word."""
        text = self.begins | self.continues
        return {piece: row for row, piece in enumerate(self.pieces) if text[row]}

    @cached_property
    def _sorted_pieces(self) -> list[str]:
        return sorted(self.token_of)

    def beginning_with(self, letters: str) -> list[int]:
        """The tokens whose text begins with these letters."""
        ends = (
            bisect_left(self._sorted_pieces, letters),
            bisect_left(self._sorted_pieces, letters + chr(sys.maxunicode)),
        )
        return [self.token_of[piece] for piece in self._sorted_pieces[slice(*ends)]]

    def tokens_spelling(self, letters: str) -> list[int]:
        """The tokens that can come first in spelling these letters: those that begin with them, or spell a prefix."""
        usual = self.pieces[int(self.encode(letters)[0])]
        parts = [usual] if letters.startswith(usual) and usual in self.token_of else self._prefixes(letters)
        return sorted({*self.beginning_with(letters), *(self.token_of[part] for part in parts)})

    def _prefixes(self, letters: str) -> list[str]:
        return [letters[:end] for end in range(1, len(letters)) if letters[:end] in self.token_of]

    @cached_property
    def wordlike(self) -> Bool[np.ndarray, "V"]:
        """Tokens that are a word or a part of one, not punctuation."""
        return self.word | (self.begins & ~self.mark)

    @cached_property
    def non_text(self) -> tuple[int, ...]:
        """The ordinary tokens that no fill may contain: white space, parts of characters, markers."""
        text = self.begins | self.continues | self.space
        return tuple(np.flatnonzero(~text[: self.base]).tolist())

    @cached_property
    def detached_marks(self) -> tuple[int, ...]:
        """Punctuation and clitics after a space, which only tokenised text contains."""
        return tuple(np.flatnonzero(self.detached).tolist())

    @cached_property
    def content(self) -> Bool[Tensor, "V"]:
        """Tokens that begin a content word: a reader notices when it is repeated."""
        bare = [piece.removeprefix(" ") for piece in self.pieces]
        small = set(SMALL_WORDS.split())
        is_content = [len(word) >= 3 and word.isalpha() and word.lower() not in small for word in bare]
        return torch.from_numpy(self.begins & np.pad(is_content, (0, len(self.begins) - len(is_content))))

    @cached_property
    def allowed(self) -> Bool[Tensor, "rules V"]:
        """The tokens that each rule allows. Four groups of FIRST_APART … LATER: any fill; fills with counted words,
        where punctuation after a space is not a word; the same in tokenised text, where it is; and fills that must
        contain a word, which do not begin with punctuation.
        """
        begin = self.begins | self.space
        rules = [begin, begin | self.closes, self.word, begin | self.continues]
        tokenised = [rule & ~self.space for rule in rules]
        counted = [rule & ~self.mark for rule in tokenised]
        words = [rule & ~self.mark for rule in rules]
        return torch.from_numpy(np.stack([*rules, *counted, *tokenised, *words]))


def _is_marker(piece: str) -> bool:
    """Whether a piece is a control token such as <|im_start|>, or a blank or a part of one: neither is text."""
    return (len(piece) > 2 and piece[0] == "<" and piece[-1] == ">") or set(piece) == {"_"}
