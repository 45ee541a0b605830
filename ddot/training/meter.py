"""What a run reports: a progress bar on stderr, log.jsonl, and optionally TensorBoard."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partialmethod
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from torch.utils.benchmark import Timer

from ddot.core.codes import PROMPT
from ddot.core.records import Slots
from ddot.files import write_whole, writing
from ddot.methods.losses import LOSSES
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.folder import without_values
from ddot.training.config import Run
from ddot.training.distributed import mean, whole
from ddot.version import extra


class Meter:
    """Measures speed, waiting time and losses. Only process 0 reports."""

    def __init__(self, run: Run, output: Path, step: int, before: float, rank: int, world: int, model: Denoiser):
        self.settings, self.world, self.speaks, device = run.training, world, rank == 0, model.device
        self.noise, self.flops = model.noise, flops(model.config)
        self.before = before
        self.last: dict[str, Any] = {}
        self.began = time.monotonic()
        has_flops = device.type == "cuda" and not self.settings.only  # `flops` assumes that all weights are trained
        self.peak = matmul_peak(device) if self.speaks and has_flops else None
        self._reset()
        if self.speaks:
            self.board = _board(output, step) if self.settings.tensorboard else None
            self.log = open(_rewound(output / "log.jsonl", step), "a")  # noqa: SIM115
            columns = (TextColumn(run.name), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
            self.bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            self.task = self.bar.add_task("", total=1.0, text="")

    def __enter__(self) -> "Meter":
        self.began = self.mark = time.monotonic()
        if self.speaks:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.speaks:
            self.bar.stop()
            with suppress(OSError):  # already reported when the line was written
                self.log.close()
            if self.board is not None:
                self.board.close()

    def _reset(self) -> None:
        self.slots = self.waited = self.arithmetic = 0.0
        self.steps = 0
        self.counts = True  # whether the current step counts towards speed
        self.figures: Tensor | None = None
        self.mark = time.monotonic()

    def elapsed(self) -> float:
        """Seconds of this run, including those before it was resumed, excluding start-up and compilation."""
        return self.before + time.monotonic() - self.began

    @contextmanager
    def _timed(self, *clocks: str) -> Iterator[None]:
        """Add the time spent in the block to these clocks."""
        start = time.monotonic()
        yield
        for clock in clocks:
            setattr(self, clock, getattr(self, clock) + time.monotonic() - start)

    waiting = partialmethod(_timed, "waited")  # for data
    apart = partialmethod(_timed, "mark")  # excluded from speed
    starting = partialmethod(_timed, "mark", "began")  # excluded from speed and budget

    @contextmanager
    def compiling(self, first: bool) -> Iterator[None]:
        """In the first step of a new shape, compile time is excluded from speed and budget."""
        with self.starting() if first else nullcontext():
            yield
        self.counts = not first

    def count(self, step: int, losses: Tensor, norm: Tensor, rate_factor: float, slots: Slots) -> None:
        """Record a step. Figures stay on the device until the next line."""
        B, L = slots.u.shape
        share = self.noise.masked_share(slots.t)[:, None]
        masked = int(((slots.u < share) & (slots.kind != PROMPT)).sum())
        self.slots += B * L * self.world * self.counts
        self.arithmetic += self.flops(B * L, L, masked) * self.world * self.counts
        self.steps += 1
        self.figures = losses if self.figures is None else self.figures + losses
        self.norm, self.rate_factor = norm, rate_factor
        if step % self.settings.log_every == 0:
            self.line(step)

    def line(self, step: int) -> None:
        """Report the figures since the last line, averaged over steps and processes."""
        if self.figures is None:
            return
        values = mean(self.figures / self.steps).tolist()  # waits for the device
        seconds = time.monotonic() - self.mark
        self.last = {
            "step": step,
            **dict(zip(LOSSES, values, strict=True)),
            "gradient": float(whole(self.norm)),
            "rate": self.rate_factor,
            "slots_per_second": self.slots / seconds,
            "waiting": self.waited / seconds,
            "utilisation": None if self.peak is None else self.arithmetic / seconds / (self.peak * self.world),
            "seconds": self.elapsed(),
        }
        self._reset()
        self._write(self.last)
        if self.speaks:
            peak = self.last["utilisation"]
            text = f"step {step} loss {values[0]:.3f} nats {self.last['nats']:.3f} "
            text += f"{self.last['slots_per_second'] / 1e3:.1f}k slots/s"
            text += "" if peak is None else f" {peak:.0%} of peak"
            done = progress(step, self.last["seconds"], self.settings.steps, self.settings.seconds)
            self.bar.update(self.task, completed=min(1.0, done), text=text)
            if not self.bar.console.is_terminal:
                self._say(text)
        if not all(math.isfinite(value) for value in values):
            raise ValueError(f"the loss is {values[0]} at step {step}; lower the rates. The last checkpoint is intact")

    def dev(self, step: int, losses: dict[str, float]) -> None:
        self._write({"step": step, "dev": losses, "seconds": self.elapsed()})
        self._say(f"dev at {step}: " + " ".join(f"{name} {value:.4f}" for name, value in losses.items()))

    def sample(self, step: int, samples: list[dict[str, str]]) -> None:
        """Previews: the prompt, an arrow, the filled text."""
        self._write({"step": step, "samples": samples})
        for sample in samples:
            self._say(f"{sample['prompt']}  →  {sample['filled']}")

    def _say(self, text: str) -> None:
        if self.speaks:
            self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _write(self, row: dict[str, Any]) -> None:
        if not self.speaks:
            return
        with writing(Path(self.log.name)):
            self.log.write(json.dumps(row) + "\n")
            self.log.flush()
        if self.board is not None:
            for name, value in {**row, **row.get("dev", {})}.items():
                if isinstance(value, float):
                    self.board.add_scalar(("dev/" if "dev" in row else "") + name, value, row["step"])


def progress(step: int, seconds: float, steps: int | None, budget: float | None) -> float:
    """The completed share of a run, by steps or by seconds, whichever is larger."""
    return max(step / steps if steps else 0.0, seconds / budget if budget else 0.0)


def flops(config: DenoiserConfig) -> Callable[[int, int, int], float]:
    """Floating-point operations of a training step as a function of its slots, L, and slots with logits."""
    trunk = config.trunk
    blocks = without_values(config).trunk.blocks
    matrices = sum(p.numel() for n, p in blocks.named_parameters() if p.dim() == 2 and "adaLN" not in n)
    attention = 2 * trunk.width * trunk.blocks
    return lambda slots, L, logits: 6.0 * (slots * (matrices + attention * L) + logits * trunk.width * trunk.vocabulary)


def _rewound(file: Path, step: int) -> Path:
    """The log truncated after `step`: a resumed run repeats what a killed one logged after its last checkpoint."""
    if file.is_file():
        lines = []
        for line in file.read_text(errors="replace").splitlines():
            with suppress(ValueError, AttributeError):  # a line cut short when the run was killed
                lines += [line + "\n"] * (json.loads(line).get("step", step + 1) <= step)
        write_whole(file, "".join(lines).encode())
    return file


def _board(output: Path, step: int) -> Any:
    with extra("training.tensorboard", "track"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(str(output / "tensorboard"), purge_step=step + 1)


def matmul_peak(device: torch.device, size: int = 8192) -> float:
    """The measured floating-point operations per second of a large bf16 matrix product."""
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    return 2.0 * size**3 / Timer("a @ a", globals={"a": a}).blocked_autorange(min_run_time=0.3).mean
