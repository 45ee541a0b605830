"""What a run starts with: its corpora and tokenizer, its network, its optimizers."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ddot.data.forms import sentences
from ddot.data.shards import Corpus, pack
from ddot.data.sources import read
from ddot.data.tokenizer import Tokenizer, learn_bpe
from ddot.network.denoiser import Denoiser
from ddot.network.folder import check_vocabulary, check_weights, load_config, load_tensors, model_folder
from ddot.network.int8 import decompress
from ddot.training.config import Run, Training
from ddot.training.distributed import barrier
from ddot.training.optimisers import Muon


def open_data(run: Run, output: Path, rank: int) -> tuple[Tokenizer, list[tuple[float, Corpus]], Corpus | None]:
    """(tokenizer, corpora, dev corpus) of a run. Texts are packed first, into the run's folder, by process 0."""
    data = run.data
    folder, sources, dev = Path(data.folder), data.sources, data.dev
    if data.texts:
        folder, sources, dev = output, (("data", 1.0),), "dev" if data.dev else None
        if rank == 0:
            given = Tokenizer.load(model_folder(run.start)) if run.start else None
            given = pack_texts(data.texts, output / "data", given, data.tokens)
            if data.dev:
                pack_texts((data.dev,), output / "dev", given, data.tokens)
        barrier()
    corpora = [(weight, Corpus(folder / name)) for name, weight in sources]
    return Tokenizer.load(corpora[0][1].folder), corpora, Corpus(folder / dev) if dev else None


def pack_texts(texts: tuple[str, ...], folder: Path, given: Tokenizer | None, tokens: int) -> Tokenizer:
    """The tokenizer the texts are packed with in `folder`: the given one, or one of `tokens` tokens learnt from them.

    A folder that was packed from the same texts before is kept. (The texts may be gone by then.)
    """
    about: dict[str, Any] = {
        "texts": [Path(text).name for text in texts],
        "contents": [_fingerprint(text) for text in texts],
        "learnt": None if given else tokens,
    }
    if folder.is_dir():
        meta = Corpus(folder).meta
        about["contents"] = [
            now or then for now, then in zip(about["contents"], meta.get("contents", ()), strict=False)
        ]
        if {name: meta.get(name) for name in about} != about:
            raise ValueError(f"{folder} was packed from other texts, or with other tokens; choose another --output")
        return Tokenizer.load(folder)
    documents = [text for source in texts for text in read(source)]
    tokenizer = given or learn_bpe(documents, tokens)
    pack((sentences(text) for text in documents), tokenizer, folder, about=about)
    return tokenizer


def _fingerprint(text: str) -> str | None:
    """Tells whether two files hold the same; None for what is no file here."""
    return hashlib.sha256(Path(text).read_bytes()).hexdigest()[:16] if Path(text).is_file() else None


def build(run: Run, tokenizer: Tokenizer) -> tuple[Denoiser, Tokenizer]:
    """The network a run starts with: fresh, or from a model folder (whose tokenizer is then the run's).

    What the run's network has and the folder's has not, keeps its fresh, neutral values.
    """
    torch.manual_seed(run.training.seed)
    if run.start is None:
        return Denoiser(run.network(tokenizer.vocabulary)), tokenizer
    folder = model_folder(run.start)
    old, tokenizer = load_config(folder), Tokenizer.load(folder)
    check_vocabulary(old, tokenizer, folder)
    config = run.network(tokenizer.vocabulary)
    if config.trunk != old.trunk:
        raise ValueError(f"{run.start} has the trunk {old.trunk}; the recipe {run.name} wants {config.trunk}")
    model = Denoiser(config)
    fresh = {name: weight for name, weight in model.state_dict().items() if not name.startswith("trunk.")}
    weights = {**fresh, **decompress(load_tensors(folder, "model"))}
    check_weights(model, weights, folder)
    model.load_state_dict(weights)
    return model, tokenizer


def hold_still(model: Denoiser, only: Sequence[str]) -> None:
    """Let only the weights learn whose names begin with one of these; with none, all do."""
    if only:
        names = [name for name, _ in model.named_parameters()]
        for start in only:
            if not any(name.startswith(start) for name in names):
                parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in names))
                raise ValueError(f"training.only: the network has no weights '{start}…'; its parts are {parts}")
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith(tuple(only)))


def make_optimisers(model: Denoiser, hold: Training) -> list[torch.optim.Optimizer]:
    """AdamW, and Muon for the matrices inside blocks if the run asks for it."""
    matrices: list[nn.Parameter] = []
    trunk: list[nn.Parameter] = []
    added: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        in_block = name.startswith("trunk.blocks.") and parameter.dim() == 2 and "adaLN" not in name
        (matrices if in_block and hold.matrix_rate else trunk if name.startswith("trunk.") else added).append(parameter)
    groups = [(trunk, hold.rate), (added, hold.rate if hold.added_rate is None else hold.added_rate)]
    learning = [{"params": some, "full_rate": rate} for some, rate in groups if some]
    fused = model.device.type == "cuda"
    optimisers: list[torch.optim.Optimizer] = []
    if learning:
        optimisers.append(torch.optim.AdamW(learning, betas=hold.betas, weight_decay=hold.weight_decay, fused=fused))
    if matrices:
        optimisers.append(Muon(matrices, lr=0.0, weight_decay=hold.weight_decay))
        optimisers[-1].param_groups[0]["full_rate"] = hold.matrix_rate
    return optimisers
