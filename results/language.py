"""The compared methods in small, trained for longer, on a language whose every answer is known.

    python results/language.py train FOLDER [METHOD …] [--steps N] [--seed N] [--width N] [--blocks N] [--rate X]
    python results/language.py measure FOLDER

The language is a weighted automaton of 137 words in which one word depends on others far from it: verbs
agree with their subject in number and kind across what stands between them, and with a time word at either end of the
sentence. Of any text it can be said whether it is a sentence, and given words can be completed by a draw from the exact
posterior ("exact"): its texts are always right, and its lengths as uncertain as lengths are. Training texts and test
items are drawn from the same law. All methods see as many texts; LC and the autoregressive model read rows twice as
long, and PoP makes two passes a step.

`train` writes the texts, the test items and one model per method and continues what was interrupted; `measure` fills
the items and puts rows into results/language.jsonl, beside those of trainings that are no longer in the folder.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddot.core.coupling import couple_independently
from ddot.core.records import Vocabulary
from ddot.data.masks import Block, Keywords, Mask, Mix, Units
from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.filling import Loaded
from ddot.evaluation.items import Item, read_set
from ddot.evaluation.metrics.scoring import measure
from ddot.evaluation.metrics.sums import Sums, difference, interval, mean
from ddot.evaluation.run import generate
from ddot.evaluation.store import read_rows
from ddot.files import write_whole
from ddot.infill.model import load
from ddot.methods.autoregressive import Autoregressive
from ddot.methods.ddot import DDOT
from ddot.methods.flexible import Flexible
from ddot.methods.left_context import LeftContext
from ddot.methods.losses import TokenUnitWeight
from ddot.methods.method import Method
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.denoiser import DenoiserConfig
from ddot.network.llama import LlamaConfig
from ddot.training.batches import Plan
from ddot.training.config import Data, Run, Training
from ddot.training.loop import train
from ddot.training.recipes import AS_TEXT, EVEN, STARTS

LONGEST = 14  # words of a sentence; the shortest has four
L = 20  # slots: the words, two edges, and room to spare
BLOCK, KEYWORDS = 8, 3  # the longest missing block, the most given keywords
TEXTS, ITEMS = 300_000, 500

NOUNS = {
    "person": "girl boy teacher sailor baker uncle",
    "animal": "dog cat horse hen goat crow",
    "thing": "table wall lamp cart bridge stone",
}
DOES = {"person": "shout laugh paint talk", "animal": "rest growl bark jump", "thing": "creak lean crack rattle"}
# Verbs with an object: who does it, to what.
DOES_TO = {
    ("person", "animal"): "call groom", ("person", "thing"): "clean lift", ("person", "person"): "greet help",
    ("animal", "animal"): "hunt lick", ("animal", "person"): "follow sniff", ("thing", "thing"): "cover block",
}  # fmt: skip
TIMES = {"past": "yesterday once", "present": "today now", "future": "tomorrow soon"}
QUALITIES, MANNERS, PLACES = "old small red quiet strange young", "slowly often badly twice", "near behind under beside"
ONE, SEVERAL = "a every this", "two many these"

State = tuple[Any, ...]
END: State = ("end",)


def inflected(verb: str, tense: str, number: int) -> str:
    return verb + {"past": "ed", "present": "s" if number == 1 else "", "future": ""}[tense]


def moves(state: State) -> Iterator[tuple[float, str, State]]:
    """(weight, word, next state) of all that may follow. A state is (part, tense, time word needed, clause, …)."""
    part, tense, timed, clause, *rest = state
    if part == "clause":
        for word in ONE.split():
            yield 1.0, word, ("noun", tense, timed, clause, 1, True)
        for word in SEVERAL.split():
            yield 1.0, word, ("noun", tense, timed, clause, 2, True)
    elif part == "noun":  # a quality, or the subject
        number, may_describe = rest
        if may_describe:
            for word in QUALITIES.split():
                yield 0.5, word, ("noun", tense, timed, clause, number, False)
        for kind, nouns in NOUNS.items():
            for noun in nouns.split():
                after: State = ("subject", tense, timed, clause, number, kind)
                yield 0.4, noun + "s" * (number == 2), after
    elif part == "subject":  # a place beside it, or the verb
        number, kind = rest[:2]
        if len(rest) == 2:
            for word in PLACES.split():
                yield 0.6, word, ("beside", tense, timed, clause, number, kind)
        yield from verbs(state, number, kind)
    elif part == "beside":
        number, kind = rest
        for word in (*ONE.split(), *SEVERAL.split()):
            yield 1.0, word, ("distractor", tense, timed, clause, number, kind, 1 if word in ONE.split() else 2)
    elif part == "distractor":
        number, kind, other = rest
        for noun in " ".join(NOUNS.values()).split():
            yield 1.0, noun + "s" * (other == 2), ("subject", tense, timed, clause, number, kind, "described")
    elif part == "will":
        number, kind = rest
        yield from bare_verbs(state, number, kind)
    elif part == "object":
        (kind,) = rest
        for word in (*ONE.split(), *SEVERAL.split()):
            yield 1.0, word, ("object noun", tense, timed, clause, kind, 1 if word in ONE.split() else 2)
    elif part == "object noun":
        kind, number = rest
        for noun in NOUNS[kind].split():
            yield 1.0, noun + "s" * (number == 2), ("after", tense, timed, clause)
    elif part == "after":  # after a whole clause
        for word in MANNERS.split():
            yield 0.4, word, ("late", tense, timed, clause)
        yield from endings(state)
    elif part == "late":
        yield from endings(state)


def verbs(state: State, number: int, kind: str) -> Iterator[tuple[float, str, State]]:
    _, tense, timed, clause, *_ = state
    if tense == "future":
        yield 12.0, "will", ("will", tense, timed, clause, number, kind)
    else:
        yield from bare_verbs(state, number, kind)


def bare_verbs(state: State, number: int, kind: str) -> Iterator[tuple[float, str, State]]:
    _, tense, timed, clause, *_ = state
    for verb in DOES[kind].split():
        yield 1.0, inflected(verb, tense, number), ("after", tense, timed, clause)
    for (who, whom), several in DOES_TO.items():
        if who == kind:
            for verb in several.split():
                yield 1.5, inflected(verb, tense, number), ("object", tense, timed, clause, whom)


def endings(state: State) -> Iterator[tuple[float, str, State]]:
    _, tense, timed, clause, *_ = state
    if clause == 1:
        for word in ("and", "but"):
            yield 0.5, word, ("clause", tense, timed, 2)
    if timed:
        yield 3.0, "", END
    else:
        for word in TIMES[tense].split():
            yield 1.5, word, END


class Language:
    """The automaton as matrices: states × states for each word, and for any word."""

    def __init__(self) -> None:
        start: State = ("start",)
        edges: dict[State, list[tuple[float, str, State]]] = {}
        todo = [start]
        while todo:
            state = todo.pop()
            if state in edges or state == END:
                continue
            found = self._from_start() if state == start else list(moves(state))
            total = sum(weight for weight, _, _ in found)
            edges[state] = [(weight / total, word, after) for weight, word, after in found]
            todo += [after for _, _, after in edges[state]]
        self.states = [*edges, END]
        number = {state: i for i, state in enumerate(self.states)}
        n = len(self.states)
        self.start, self.end = number[start], np.zeros(n)
        self.end[number[END]] = 1.0
        self.by_word: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((n, n)))
        for state, found in edges.items():
            for p, word, after in found:
                if word:
                    self.by_word[word][number[state], number[after]] += p
                else:
                    self.end[number[state]] += p
        self.words = sorted(self.by_word)
        self.any_word = np.sum([self.by_word[word] for word in self.words], 0)
        self.by_state = np.stack([self.by_word[word] for word in self.words], 1)  # states × words × states

    @staticmethod
    def _from_start() -> list[tuple[float, str, State]]:
        """With a time word first, or by the first word of a clause that ends with one."""
        found: list[tuple[float, str, State]] = []
        for tense, words in TIMES.items():
            found += [(1.0, word, ("clause", tense, True, 1)) for word in words.split()]
            found += [(p / 3, word, after) for p, word, after in moves(("clause", tense, False, 1))]
        return found

    def _at_start(self) -> np.ndarray:
        return np.eye(len(self.states))[self.start]

    def accepts(self, words: Sequence[str]) -> bool:
        """Whether these words are a sentence."""
        at = self._at_start()
        for word in words:
            if word not in self.words:
                return False
            at = at @ self.by_word[word]
        return bool(at @ self.end > 0)

    def _path(self, state: int, later: Sequence[np.ndarray], rng: np.random.Generator) -> list[str]:
        """Words drawn from `state` on, one per vector of `later`: the probability of the rest, from each state."""
        words = []
        for rest in later:
            weight = self.by_state[state] * rest
            chosen = rng.choice(weight.size, p=weight.ravel() / weight.sum())
            word, state = divmod(int(chosen), len(self.states))
            words.append(self.words[word])
        return words

    def sentence(self, rng: np.random.Generator) -> list[str]:
        """A sentence of at most `LONGEST` words."""
        while True:
            state, words = self.start, list[str]()
            while len(words) <= LONGEST:
                weight = np.append(self._flat[state], self.end[state])
                chosen = int(np.searchsorted(np.cumsum(weight), rng.random() * weight.sum(), side="right"))
                if chosen >= len(weight) - 1:
                    return words
                word, state = self._targets[state][chosen]
                words.append(word)

    @cached_property
    def _targets(self) -> list[list[tuple[str, int]]]:
        return [
            [(self.words[w], int(after)) for w, after in zip(*np.nonzero(rows), strict=True)] for rows in self.by_state
        ]

    @cached_property
    def _flat(self) -> list[np.ndarray]:
        return [rows[rows > 0] for rows in self.by_state]

    def fill_block(self, given: Sequence[str], rng: np.random.Generator) -> list[str]:
        """Given words with the missing block drawn from the posterior under the law of `SomeBlock`."""
        m = len(given)
        before, after = [self._at_start()], [self.end]
        for word in given:
            before.append(before[-1] @ self.by_word[word])
        for word in reversed(given):
            after.append(self.by_word[word] @ after[-1])
        after.reverse()
        most = min(BLOCK, LONGEST - m)
        # later[k][j]: the probability, from each state, of k missing words and then given[j:].
        later = [np.stack(after)]
        for _ in range(most):
            later.append(later[-1] @ self.any_word.T)
        weight = np.array(
            [[before[j] @ later[k][j] / min(m + k, BLOCK) for j in range(m + 1)] for k in range(1, most + 1)]
        )
        k, j = divmod(int(rng.choice(weight.size, p=weight.ravel() / weight.sum())), m + 1)
        k += 1  # something is missing
        start = before[j] * later[k][j]
        state = int(rng.choice(len(start), p=start / start.sum()))
        words = self._path(state, [later[k - i - 1][j] for i in range(k)], rng)
        return [*given[:j], *words, *given[j:]]

    def fill_keywords(self, given: Sequence[str], rng: np.random.Generator) -> list[str]:
        """Keywords completed by drawing from the posterior: any choice of that many words was equally likely."""
        c = len(given)
        rest = np.zeros((c + 2, LONGEST + 2, len(self.states)))  # [given so far, words so far], from each state
        for n in range(LONGEST, -1, -1):
            for i in range(c, -1, -1):
                rest[i, n] = self.any_word @ rest[i, n + 1]
                if i < c:
                    rest[i, n] += self.by_word[given[i]] @ rest[i + 1, n + 1]
                elif n >= c:
                    rest[i, n] += self.end / math.comb(n, c)
        words, state, i = list[str](), self.start, 0
        while True:
            n = len(words)
            hidden = self.by_state[state] * rest[i, n + 1]
            shown = self.by_word[given[i]][state] * rest[i + 1, n + 1] if i < c else np.zeros(len(self.states))
            stop = self.end[state] / math.comb(n, c) if i == c else 0.0
            weight = np.concatenate([hidden.ravel(), shown, [stop]])
            chosen = int(rng.choice(weight.size, p=weight / weight.sum()))
            if chosen == weight.size - 1:
                return words
            if chosen < hidden.size:
                word, state = divmod(chosen, len(self.states))
                words.append(self.words[word])
            else:
                state, i = chosen - hidden.size, i + 1
                words.append(given[i - 1])


@dataclass(frozen=True)
class AnyKeywords:
    """Keywords of which none is likelier than another, so that the posterior is known."""

    def __call__(self, units: Units, rng: np.random.Generator) -> np.ndarray:
        return Keywords(1, KEYWORDS)(Units.alike(len(units)), rng)


@dataclass(frozen=True)
class SomeBlock:
    """A block of at least one word."""

    def __call__(self, units: Units, rng: np.random.Generator) -> np.ndarray:
        while (given := Block(BLOCK)(units, rng)).all():
            pass
        return given


MASKS: dict[str, Mask] = {"block": SomeBlock(), "keywords": AnyKeywords()}
_DDOT = DDOT(terminal=STARTS, position_weight=TokenUnitWeight(), gap_length_factor=0.1)
METHODS: dict[str, tuple[Method, tuple[str, ...]]] = {
    "lc": (LeftContext(), ("lc", "lc-drawn")),
    "pop": (PositionPrediction(position_weight=TokenUnitWeight()), ("pop", "pop-drawn")),
    "no_ot": (replace(_DDOT, couple=couple_independently), ("no-ot", "no-ot-drawn", "no-ot-u")),
    "ddot": (_DDOT, ("ddot-r", "ddot-r-drawn", "ddot-r-leap")),
    "ddot_u": (replace(_DDOT, terminal=EVEN), ("ddot-u", "ddot-u-drawn", "ddot-u-leap")),
    "ddot_t": (replace(_DDOT, terminal=AS_TEXT), ("ddot-t", "ddot-t-drawn")),
    "flexible": (Flexible(), ("flexible",)),
    "ar": (Autoregressive(), ("autoregressive",)),
}
PAIRS = {(first, second) for first in ("ddot-u", "ddot-t") for second in ("lc", "pop", "flexible")}
PAIRS |= {("ddot-t", "ddot-u"), ("ddot-r", "no-ot")}


@dataclass(frozen=True)
class Trained:
    """One training of a method: steps, seed, size of the network, and its learning rates as a multiple of the usual."""

    name: str
    steps: int = 3_500
    seed: int = 0
    width: int = 96
    blocks: int = 3
    rate: float = 1.0

    @classmethod
    def in_folder(cls, folder: str) -> "Trained":
        name, steps, seed, width, blocks, rate = folder.split("-", 5)
        return cls(name, int(steps), int(seed), int(width), int(blocks), float(rate))

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.steps}-{self.seed}-{self.width}-{self.blocks}-{self.rate:g}"

    def about(self) -> dict[str, float]:
        size = {"width": self.width, "blocks": self.blocks, "rate": self.rate}
        return {"training_steps": self.steps, "seed": self.seed, **size}


def network(vocabulary: Vocabulary, width: int, blocks: int) -> DenoiserConfig:
    heads = width // 24
    trunk = LlamaConfig(
        width=width, blocks=blocks, heads=heads, key_heads=heads, inner_width=width * 8 // 3,
        vocabulary=vocabulary.rows, rotary_base=1000.0,
    )  # fmt: skip
    return replace(DenoiserConfig.extended(trunk, vocabulary), slots=L)


def run(trained: Trained, texts: Path) -> Run:
    method, _ = METHODS[trained.name]
    mask = Mix((1.0, MASKS["block"]), (1.0, MASKS["keywords"]))
    return Run(
        name=f"language_{trained.name}",
        network=partial(network, width=trained.width, blocks=trained.blocks),
        data=Data(texts=(str(texts),), tokens=1024),  # every word is one token
        plans=(Plan(method, mask, lengths=(L,), full_noise=0.1),),
        training=Training(
            steps=trained.steps, slots=192 * L, rate=3e-3 * trained.rate, matrix_rate=5e-3 * trained.rate,
            betas=(0.9, 0.98), warmup=50, decay=0.6, average=0.995, position_factor=0.05, position_warmup=100,
            log_every=50, save_every=500, seed=trained.seed,
        ),
    )  # fmt: skip


def write(folder: Path, language: Language) -> None:
    """The texts to train on, and test items of the same law."""
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, mask in MASKS.items():
        with (folder / f"{kind}.test.jsonl").open("w") as file:
            for i in range(ITEMS):
                words = language.sentence(rng)
                keep = np.flatnonzero(mask(Units.alike(len(words)), rng)).tolist()
                file.write(json.dumps({"id": i, "words": words, "keep": keep}) + "\n")
    texts = "".join(" ".join(language.sentence(rng)) + "\n" for _ in range(TEXTS))
    write_whole(folder / "texts.txt", texts.encode())  # last: what is there is complete


def train_all(folder: Path, trainings: Sequence[Trained]) -> None:
    if not (folder / "texts.txt").is_file():
        write(folder, Language())
    for each in trainings:
        train(run(each, folder / "texts.txt"), folder / each.folder, resume=True)


def measured(language: Language, items: Sequence[Item], texts: Sequence[str]) -> dict[str, Sums]:
    """The usual metrics, and the share of texts that are sentences with the given words in order."""
    usual = measure(items, texts, ("bleu2", "bleu4", "success", "length_error", "length_error_abs", "gaps_found"))
    found = {name: metric for name, metric in usual.metrics.items() if isinstance(metric, Sums)}
    words = [text.split() for text in texts]
    right = [language.accepts(each) and contains(each, item.given) for item, each in zip(items, words, strict=True)]
    return found | {"right": mean([100.0 * each for each in right])}


def contains(words: Sequence[str], given: Sequence[str]) -> bool:
    """Whether the given words are among these, in order."""
    rest = iter(words)
    return all(word in rest for word in given)


def complete(folder: Path) -> Iterator[Trained]:
    """The trainings that have reached their last step."""
    for name in METHODS:
        for place in sorted(folder.glob(f"{name}-*-*-*-*-*/latest/meta.json")):
            trained = Trained.in_folder(place.parents[1].name)
            if json.loads(place.read_text())["step"] == trained.steps:
                yield trained


def filled(trained: Path, method: str, kind: str, items: Sequence[Item], K: int) -> list[str]:
    """The items filled by a trained model; what has been filled before is read."""
    place = trained / f"{kind}.{method}.txt"
    if not place.is_file():
        filling = CONTENDERS[method].filling
        assert filling is not None
        texts, _ = generate(Loaded(load(trained), trained.name), items, filling, located=False, steps=K)
        write_whole(place, "".join(f"{text}\n" for text in texts).encode())
    return place.read_text().splitlines()


def measure_all(folder: Path, output: Path, K: int = 16) -> None:
    """Fill the items with every trained model; write the rows, and the differences between methods trained alike."""
    language, sets = Language(), {kind: read_set(folder, kind, "test") for kind in MASKS}
    rows, scores = list[dict[str, Any]](), dict[tuple[str, str, Trained], dict[str, Sums]]()

    def add(about: dict[str, Any], metrics: dict[str, Sums]) -> None:
        row = about | {name: round(metric.value, 4) for name, metric in metrics.items()}
        row["intervals"] = {name: [round(end, 4) for end in interval(metric)] for name, metric in metrics.items()}
        rows.append(row)
        print(*(f"{name} {value}" for name, value in row.items() if name != "intervals"), sep=", ", flush=True)

    for kind, items in sets.items():
        fill, rng = language.fill_block if kind == "block" else language.fill_keywords, np.random.default_rng(2)
        exact = [" ".join(fill(item.given, rng)) for item in items]
        for method, texts in (("exact", exact), ("unfilled", [item.unfilled for item in items])):
            add({"method": method, "dataset": kind, "items": len(items)}, measured(language, items, texts))
    for trained in complete(folder):
        model = folder / trained.folder
        meta = json.loads((model / "latest" / "meta.json").read_text())
        for (kind, items), method in product(sets.items(), METHODS[trained.name][1]):
            texts = filled(model, method, kind, items, K)
            about = {"method": method, "dataset": kind, **trained.about()}
            about |= {"training_seconds": round(meta["seconds"]), "steps": K, "items": len(items)}
            scores[method, kind, trained] = measured(language, items, texts)
            add(about, scores[method, kind, trained])
    for first, second in permutations(scores, 2):
        alike = first[1] == second[1] and replace(first[2], name="", rate=1) == replace(second[2], name="", rate=1)
        if alike and (first[0], second[0]) in PAIRS:
            row = {"first": first[0], "second": second[0], "dataset": first[1], **first[2].about()}
            row["second_rate"] = second[2].rate
            for metric in ("bleu4", "success", "gaps_found", "right"):
                found = difference(scores[first][metric], scores[second][metric])
                rows.append(row | {"metric": metric} | {n: round(value, 4) for n, value in vars(found).items()})
    join(output, rows)


def join(output: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Put rows into a file, in place of older ones of the same; rows of trainings that are gone stay.

    The unfilled prompt's rows tell whether older rows are of the same items.
    """

    def about(row: dict[str, Any]) -> tuple[Any, ...]:
        names = ("method", "first", "second", "dataset", *Trained("").about(), "second_rate", "metric")
        return tuple(map(row.get, names))

    older = read_rows(output) if output.is_file() else []
    for fact in ("items", "steps"):
        known, new = ({row[fact] for row in some if row.get("method") and fact in row} for some in (older, rows))
        if known and new and known != new:
            raise ValueError(f"{output} has rows of {known} {fact}, these have {new}; choose another --output")
    prompts = [{row["dataset"]: row for row in some if row.get("method") == "unfilled"} for some in (older, rows)]
    if any(row != prompts[1].get(kind, row) for kind, row in prompts[0].items()):
        raise ValueError(
            f"{output} has rows of other items, since the unfilled prompt differs; choose another --output"
        )
    every = {about(row): row for row in (*older, *rows)}
    write_whole(output, "".join(f"{json.dumps(row)}\n" for row in every.values()).encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("folder", type=Path)
    training.add_argument("methods", nargs="*", metavar="METHOD", help=f"of {', '.join(METHODS)}; all by default")
    training.add_argument("--steps", type=int, default=3_500)
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--width", type=int, default=96, help="of the network, a multiple of 24")
    training.add_argument("--blocks", type=int, default=3, help="of the network")
    training.add_argument("--rate", type=float, default=1.0, help="learning rates, as a multiple of the usual ones")
    measuring = commands.add_parser("measure")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("--output", type=Path, default=Path("results/language.jsonl"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.command == "measure" and not (asked.folder / "texts.txt").is_file():
        parser.error(f"there are no texts in {asked.folder}; train there first")
    elif asked.command == "measure" and not asked.output.parent.is_dir():
        parser.error(f"there is no folder {asked.output.parent}; --output must be a file in an existing folder")
    elif asked.command == "measure":
        measure_all(asked.folder, asked.output)
    elif asked.width < 24 or asked.width % 24:
        parser.error(f"--width is {asked.width}; it must be a multiple of 24, such as 96 or 192")
    elif asked.blocks < 1 or asked.rate <= 0:
        parser.error(f"--blocks is {asked.blocks} and --rate is {asked.rate}; both must be more than 0")
    elif unknown := [name for name in asked.methods if name not in METHODS]:
        parser.error(f"there is no method {unknown[0]}; the methods are {', '.join(METHODS)}")
    else:
        names = asked.methods or list(METHODS)
        how = (asked.steps, asked.seed, asked.width, asked.blocks, asked.rate)
        train_all(asked.folder, [Trained(name, *how) for name in names])
