"""What a run shows and writes down while it goes: a progress line on stderr, log.jsonl always, TensorBoard if asked."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from ddot.losses import LOSSES
from ddot.noise import LogLinear
from ddot.records import PROMPT, Slots
from ddot.run import Run


class Meter:
    """Counts slots, waits and losses; speaks only in process 0."""

    def __init__(
        self,
        run: Run,
        output: Path,
        step: int,
        before: float,
        rank: int,
        world: int,
        flops: Callable[[int, int, int], float],
        device: torch.device,
    ):
        self.hold, self.world, self.speaks, self.flops, self.device = run.training, world, rank == 0, flops, device
        self.before = before
        self.last: dict[str, Any] = {}
        self.began = time.monotonic()
        self.peak = matmul_peak(device) if self.speaks and device.type == "cuda" else None
        self._reset()
        if self.speaks:
            output.mkdir(parents=True, exist_ok=True)
            self.log = open(_rewound(output / "log.jsonl", step), "a")  # noqa: SIM115
            self.board = _board(output) if self.hold.tensorboard else None
            self.bar = Progress(
                TextColumn(run.name),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task("", total=1.0, text="")

    def __enter__(self) -> "Meter":
        self.began = self.mark = time.monotonic()
        if self.speaks:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.speaks:
            self.bar.stop()
            self.log.close()

    def _reset(self) -> None:
        self.slots = self.waited = self.arithmetic = 0.0
        self.steps = 0
        self.figures: Tensor | None = None
        self.mark = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.waited += time.monotonic() - start

    def count(self, step: int, losses: Tensor, norm: Tensor, rate_factor: float, slots: Slots) -> None:
        """After a step. Figures stay on the device until a line is due."""
        B, L = slots.u.shape
        share = LogLinear().masked_share(slots.t)[:, None]
        masked = int(((slots.u < share) & (slots.kind != PROMPT)).sum())
        self.slots += B * L * self.world
        self.arithmetic += self.flops(B * L, L, masked) * self.world
        self.steps += 1
        self.figures = losses if self.figures is None else self.figures + losses
        if step % self.hold.log_every == 0:
            self._line(step, norm, rate_factor)

    def _line(self, step: int, norm: Tensor, rate_factor: float) -> None:
        assert self.figures is not None
        values = (self.figures / self.steps).tolist()  # waits for the device
        took = time.monotonic() - self.mark
        self.last = {
            "step": step,
            **dict(zip(LOSSES, values, strict=True)),
            "gradient": float(norm),
            "rate": rate_factor,
            "slots_per_second": self.slots / took,
            "waiting": self.waited / took,
            "utilisation": None if self.peak is None else self.arithmetic / took / (self.peak * self.world),
            "seconds": self.before + self.elapsed(),
        }
        self._reset()
        self._write(self.last)
        if self.speaks:
            done = max(
                step / self.hold.steps if self.hold.steps else 0.0,
                self.last["seconds"] / self.hold.seconds if self.hold.seconds else 0.0,
            )
            text = f"step {step} loss {values[0]:.3f} nats {self.last['nats']:.3f} {_thousands(self.last)}"
            self.bar.update(self.task, completed=min(1.0, done), text=text)
            if not self.bar.console.is_terminal:
                self.bar.console.print(text)
        if not all(torch.isfinite(torch.tensor(values))):
            raise ValueError(
                f"the loss is not a number any more at step {step}; lower the rates. The last checkpoint is intact"
            )

    def dev(self, step: int, losses: dict[str, float]) -> None:
        self._write({"step": step, "dev": losses, "seconds": self.before + self.elapsed()})
        if self.speaks:
            self.bar.console.print(f"dev at {step}: " + " ".join(f"{k} {v:.4f}" for k, v in losses.items()))
        self.mark = time.monotonic()

    def sample(self, step: int, texts: list[str]) -> None:
        self._write({"step": step, "samples": texts})
        if self.speaks:
            for text in texts:
                self.bar.console.print(text, highlight=False, markup=False)

    def finish(self, step: int) -> None:
        if self.speaks:
            self.bar.update(self.task, completed=1.0)

    def _write(self, row: dict[str, Any]) -> None:
        if self.speaks:
            self.log.write(json.dumps(row) + "\n")
            self.log.flush()
            if self.board is not None:
                for name, value in {**row, **row.get("dev", {})}.items():
                    if isinstance(value, float):
                        self.board.add_scalar(("dev/" if "dev" in row else "") + name, value, row["step"])


def _thousands(figures: dict[str, Any]) -> str:
    text = f"{figures['slots_per_second'] / 1e3:.1f}k slots/s"
    return text if figures["utilisation"] is None else text + f" {figures['utilisation']:.0%} of peak"


def _rewound(file: Path, step: int) -> Path:
    """The log up to `step`: what a killed run wrote after its last checkpoint is written again."""
    if file.is_file():
        rows = [
            line for line in file.read_text().splitlines() if _whole_line(line) and json.loads(line)["step"] <= step
        ]
        file.write_text("".join(line + "\n" for line in rows))
    return file


def _whole_line(line: str) -> bool:
    try:
        return "step" in json.loads(line)
    except json.JSONDecodeError:  # cut short by a kill
        return False


def _board(output: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("training.tensorboard needs the extra `track`: pip install 'ddot[track]'") from None
    return SummaryWriter(str(output / "tensorboard"))


def matmul_peak(device: torch.device, size: int = 8192, seconds: float = 0.3) -> float:
    """Floating-point operations a second of a large bf16 matrix product, measured now."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize(device)
    start, count = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        for _ in range(5):
            a @ b
        count += 5
        torch.cuda.synchronize(device)
    return 2.0 * size**3 * count / (time.monotonic() - start)
