"""Run: the settings and results of one training run, its devices, and whether other programs disturbed it; as JSON."""

import json
import math
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from d2lite._version import __version__
from d2lite.devices import describe, num_cores
from d2lite.run_events import Diverged, emit
from notebook_ranks.shared import malloc as _malloc
from notebook_ranks.shared.checks import all_of, instance_of, positive_int, positive_number
from notebook_ranks.shared.files import replace_file
from notebook_ranks.shared.format import text_of

__all__ = ["SCHEMA", "Run", "as_json", "disturbance", "format_setting", "legends", "save", "short_legends"]

SCHEMA = "d2lite-runs/1"
_MOST_CHARS = 40  # of one setting in a legend
# cores; a run that lacks fewer is not called disturbed: the page alone may use so many
_FEW_CORES = 0.6  # benchmarks/results/page-2-cores.md
_READ_EVERY = 32  # losses kept on a GPU before they are read; reading waits for the GPU


@dataclass(kw_only=True)
class Run:
    """One training run: its settings, the loss of each step, and the accuracy and time of each epoch.

    `losses` has the mean training loss of each minibatch; `accuracies` (0..1, on the test set) and `seconds` (of
    training, without evaluation) have an entry per epoch. `status` is "running", "finished", "stopped", "diverged at
    step n, lr x" or "failed: ...". A panel fills the rest: `curves`, what an Animator was given, {name: {"x": [...],
    "y": [...]}}, for one rank among several with its "rank" and "quantity"; and `other_programs`, how many CPU cores
    other programs used meanwhile, on average, NaN if that is not known.
    """

    settings: dict[str, Any]
    devices: str
    dataset: str
    num_examples: int
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    curves: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: str = "running"
    other_programs: float = math.nan
    versions: dict[str, str] = field(
        default_factory=lambda: {"python": platform.python_version(), "torch": torch.__version__}
    )

    def __post_init__(self) -> None:
        self._unread: list[float | torch.Tensor] = []

    @classmethod
    def begin(
        cls, devices: Sequence[torch.device], train_iter: Any, lr: float, num_epochs: int, **settings: Any
    ) -> "Run":
        """Check the settings of a run that is about to start, and return its Run without losses.

        Raises TypeError or ValueError for a wrong setting, also if the last minibatch is smaller than the number of
        devices.
        """
        positive_number("lr", lr)
        positive_int("num_epochs", num_epochs)
        _malloc.keep()  # keep freed memory in the process, before a step is timed: malloc.py says why
        k = len(devices)
        if train_iter.smallest() < k:
            raise ValueError(
                f"batch_size {train_iter.batch_size}: expected every minibatch to hold at least {k} examples, one "
                f"per device, got a minibatch of {train_iter.smallest()} ({train_iter.num_examples} examples per "
                "epoch). Choose fewer devices or another batch_size."
            )
        settings = {"num_gpus": k, "batch_size": train_iter.batch_size, "lr": lr, "num_epochs": num_epochs, **settings}
        about = {"dataset": train_iter.dataset, "num_examples": train_iter.num_examples}
        run = cls(settings=settings, devices=describe(devices), **about)
        emit("run", run=run)
        return run

    def add_loss(self, loss: float | torch.Tensor) -> None:
        """Keep the mean loss of one step (a number or a 0-d tensor).

        Raises Diverged if it is not finite; on a GPU up to 31 steps later, since reading a loss waits for the GPU.
        """
        self._unread.append(loss)
        on_gpu = isinstance(loss, torch.Tensor) and loss.is_cuda
        if not on_gpu or len(self._unread) >= _READ_EVERY:
            self._read_losses()

    def _read_losses(self) -> None:
        unread, self._unread = self._unread, []
        for loss in unread:
            self.losses.append(float(loss))
            if not math.isfinite(self.losses[-1]):
                error = Diverged(len(self.losses), self.settings["lr"], self.losses[-1], self)
                self.status = error.status
                raise error

    def add_epoch(self, seconds: float, accuracy: float) -> None:
        """Keep the training time of an epoch (s) and the test accuracy after it (0..1)."""
        self._read_losses()
        self.seconds.append(seconds)
        self.accuracies.append(accuracy)

    def finish(self) -> "Run":
        """Mark the run as finished and return it."""
        self._read_losses()
        self.status = "finished"
        return self

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last epoch, or NaN before the first."""
        return self.accuracies[-1] if self.accuracies else math.nan

    @property
    def seconds_per_epoch(self) -> float:
        """Median of the epochs' times in seconds, or NaN before the first."""
        return statistics.median(self.seconds) if self.seconds else math.nan

    @property
    def examples_per_s(self) -> float:
        """Training examples per second, from the median epoch."""
        return self.num_examples / self.seconds_per_epoch

    @property
    def disturbance(self) -> str:
        """What to say if other programs used cores that this run needed; "" if it lacked few cores, or ran on GPUs."""
        k = self.settings.get("num_gpus", 1)
        return disturbance(self.other_programs, k) if isinstance(k, int) and "CPU" in str(self.devices) else ""

    @property
    def legend(self) -> str:
        """The text that stands for the run in a legend: "2 devices · lr 0.2 · batch 512"."""
        names = ("num_gpus", "lr", "batch_size")
        parts = [_short_setting(name, self.settings[name]) for name in names if name in self.settings]
        return " · ".join(parts) or "run"

    def __repr__(self) -> str:
        return (
            f"{self.legend}: test accuracy {self.accuracy:.3f}, {self.seconds_per_epoch:.2f} s/epoch, "
            f"{self.examples_per_s:,.0f} examples/s ({self.devices}; {self.dataset}; {self.status})"
        )


def disturbance(other_programs: float, num_devices: int) -> str:
    """Return what to say if other programs used cores that so many devices on the CPU needed; "" if few were lacking.

    `other_programs` is how many cores they used, on average, NaN if that is not known.
    """
    lacking = other_programs + min(num_devices, num_cores()) - num_cores()
    if not lacking >= _FEW_CORES:
        return ""
    used = f"Other programs, this page included, used {other_programs:.1f} of {num_cores()} CPU cores"
    return f"{used}: the seconds are too long."


def format_setting(value: Any) -> str:
    """Return a setting as a text of at most 40 characters; floats that differ only by rounding give the same text."""
    text = f"{value:g}" if isinstance(value, float) else text_of(value)
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 3]}..."


def legends(runs: Sequence[Run]) -> list[str]:
    """Return one legend per run, all different: equal ones get the settings that differ, then " (2)"."""
    names = [run.legend for run in runs]
    for legend in [name for name, n in Counter(names).items() if n > 1]:
        same = [i for i, name in enumerate(names) if name == legend]
        for setting in dict.fromkeys(s for i in same for s in runs[i].settings):
            values = [format_setting(runs[i].settings.get(setting)) for i in same]
            if len(set(values)) > 1:
                for i, value in zip(same, values, strict=True):
                    names[i] += f" · {setting.removeprefix('num_')} {value}"
    return _numbered(names)


def short_legends(runs: Sequence[Run]) -> list[str]:
    """Return one short text per run, all different: the settings that differ between the runs, else the devices.

    Example:
        >>> about = {"devices": "", "dataset": "", "num_examples": 0}
        >>> one, two = (Run(settings={"num_gpus": k, "lr": 0.1}, **about) for k in (1, 2))
        >>> short_legends([one, two]), short_legends([two])
        (['1 device', '2 devices'], ['2 devices'])
    """
    different = [
        name
        for name in dict.fromkeys(name for run in runs for name in run.settings)
        if len({format_setting(run.settings.get(name)) for run in runs}) > 1
    ]
    names = []
    for run in runs:
        own = [name for name in different if name in run.settings] or ["num_gpus"] * ("num_gpus" in run.settings)
        names.append(", ".join(_short_setting(name, run.settings[name]) for name in own) or "run")
    return _numbered(names)


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names with " (2)", " (3)", ... after those that came before."""
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return numbered


def _short_setting(name: str, value: Any) -> str:
    if name == "num_gpus":
        return "1 device" if value == 1 else f"{format_setting(value)} devices"
    return f"{'batch' if name == 'batch_size' else name.removeprefix('num_')} {format_setting(value)}"


def as_json(runs: Sequence[Run], function: str = "") -> dict[str, Any]:
    """Return what `save` writes: plain dicts and lists; NaN and infinities, which JSON does not have, become None."""
    return {
        "schema": SCHEMA,
        "saved": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "function": function,
        "versions": {"d2lite": __version__, "system": platform.platform()},
        "runs": [
            _finite(
                {"label": legend}
                | {entry.name: getattr(run, entry.name) for entry in fields(run)}
                | {"seed": run.settings.get("seed"), "test_accuracy": run.accuracy}
                | {"seconds_per_epoch": run.seconds_per_epoch}
                | {"examples_per_s": run.examples_per_s if run.seconds else None}
            )
            for run, legend in zip(runs, legends(runs), strict=True)
        ],
    }


def save(runs: Sequence[Run], path: str | Path | None = None, function: str = "") -> Path:
    """Write the runs as JSON and return the path.

    By default the path is `d2lite-runs-<date>-<time>.json` in the working directory, with -2, -3, ... where that name
    is taken: no other file is ever replaced. A file that `path` names is replaced, as a whole or not at all; it keeps
    its permissions, and a link is followed. Raises OSError if the file cannot be written.
    """
    if isinstance(runs, Run):
        raise TypeError("runs: expected a list of Run, got a Run. Put it into a list: [run].")
    runs = all_of("runs", runs, lambda name, run: instance_of(name, run, Run, hint="`train` returns one."))
    text = json.dumps(as_json(runs, function), indent=1, allow_nan=False, ensure_ascii=False, default=_as_text)
    if path is not None:
        named = Path(os.path.expanduser(path))
        replace_file(Path(os.path.realpath(named)), text)
        return named
    free = _new_file(Path(f"d2lite-runs-{time.strftime('%Y%m%d-%H%M%S')}.json"))
    try:
        replace_file(free, text)
    except BaseException:
        free.unlink(missing_ok=True)
        raise
    return free


def _new_file(path: Path) -> Path:
    """Create an empty file under this name, or under the first of path-2, path-3, ... that is free; return its path."""
    candidate, n = path, 1
    while True:
        try:
            candidate.open("x").close()  # two processes never get the same name
            return candidate
        except FileExistsError:
            n += 1
            candidate = path.with_stem(f"{path.stem}-{n}")


def _as_text(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # a class of the learner's
        return f"<{type(value).__name__}>"


def _finite(value: Any) -> Any:
    """Return a value with None for each number that is not finite."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in list(value.items())}  # a copy: a thread may add to it
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
