"""What a run starts from: its corpora, its tokenizer and its network."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from ddot.data.forms import sentences
from ddot.data.shards import Corpus, pack
from ddot.data.sources import read
from ddot.data.tokenizer import Tokenizer, learn_bpe
from ddot.network.denoiser import Denoiser
from ddot.network.folder import check_vocabulary, load_config, load_weights
from ddot.network.int8 import decompress
from ddot.network.places import model_folder
from ddot.training.config import Run
from ddot.training.distributed import barrier


def open_data(run: Run, output: Path, rank: int) -> tuple[Tokenizer, list[tuple[float, Corpus]], Corpus | None]:
    """(tokenizer, corpora, dev corpus) of a run. If it has texts, process 0 first packs them into its folder."""
    data = run.data
    folder, sources, dev = Path(data.folder), data.sources, data.dev
    if data.texts:
        folder, sources, dev = output, (("data", 1.0),), "dev" if data.dev else None
        if rank == 0:
            tokenizer = Tokenizer.load(model_folder(run.start)) if run.start else None
            tokenizer = pack_texts(data.texts, output / "data", tokenizer, data.tokens)
            if data.dev:
                pack_texts((data.dev,), output / "dev", tokenizer, data.tokens)
        barrier()
    corpora = [(weight, Corpus(folder / name)) for name, weight in sources]
    return Tokenizer.load(corpora[0][1].folder), corpora, Corpus(folder / dev) if dev else None


def pack_texts(texts: tuple[str, ...], folder: Path, tokenizer: Tokenizer | None, tokens: int) -> Tokenizer:
    """Pack texts into `folder`. Returns the tokenizer, by default one of `tokens` tokens learnt from the texts.

    A folder already packed from the same texts is kept, even if they no longer exist.
    """
    about: dict[str, Any] = {
        "texts": [Path(text).name for text in texts],
        "contents": [_fingerprint(text) for text in texts],
        "learnt": None if tokenizer else tokens,
    }
    if folder.is_dir():
        meta = Corpus(folder).meta
        checksums = zip(about["contents"], meta.get("contents", ()), strict=False)
        about["contents"] = [current or packed for current, packed in checksums]
        if {name: meta.get(name) for name in about} != about:
            raise ValueError(f"{folder} was packed from other texts, or with other tokens; choose another --output")
        return Tokenizer.load(folder)
    documents = [text for source in texts for text in read(source)]
    tokenizer = tokenizer or learn_bpe(documents, tokens)
    pack((sentences(text) for text in documents), tokenizer, folder, about=about)
    return tokenizer


def _fingerprint(text: str) -> str | None:
    """A checksum of a local file; None for other sources."""
    return hashlib.sha256(Path(text).read_bytes()).hexdigest()[:16] if Path(text).is_file() else None


def build(run: Run, tokenizer: Tokenizer) -> tuple[Denoiser, Tokenizer]:
    """(network, tokenizer) that a run starts from: a new network, or both from a model folder.

    Additions that the folder lacks are initialised so that they change nothing.
    """
    torch.manual_seed(run.training.seed)
    if run.start is None:
        return Denoiser(run.network(tokenizer.vocabulary)), tokenizer
    folder = model_folder(run.start)
    old, tokenizer = load_config(folder), Tokenizer.load(folder)
    check_vocabulary(old, tokenizer, folder)
    config = run.network(tokenizer.vocabulary)
    if config.trunk != old.trunk:
        raise ValueError(f"{run.start} has the trunk {old.trunk}; the recipe {run.name} needs {config.trunk}")
    model = Denoiser(config)
    additions = {name: weight for name, weight in model.state_dict().items() if not name.startswith("trunk.")}
    model.load_state_dict(decompress(load_weights(folder, model, additions)))
    return model, tokenizer
