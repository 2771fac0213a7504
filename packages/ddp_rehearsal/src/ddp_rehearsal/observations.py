"""What is observed on the ranks of a rehearsal, as plain data: one file of JSON lines for each rank."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ddp_rehearsal.fingerprint import Print, Sample

__all__ = [
    "MAIN",
    "OF_RANKS",
    "ONE_PROCESS",
    "OTHER",
    "OWN_RANKS",
    "Clipped",
    "DataSet",
    "Drawn",
    "Ended",
    "Evaluated",
    "Failed",
    "Forward",
    "Joined",
    "Loaded",
    "LoaderBegins",
    "LossReduced",
    "LostAttributes",
    "Memory",
    "NotObserved",
    "NotWaited",
    "NothingLoaded",
    "Observation",
    "Observed",
    "Opened",
    "Place",
    "RankObservations",
    "Reduced",
    "Sampled",
    "Saved",
    "Scheduled",
    "Sent",
    "State",
    "UnusedTensors",
    "JoinBegins",
    "Update",
    "Wrapped",
    "as_line",
    "rank_name",
    "read_observations",
]

Place = tuple[str, int, str]  # file, line, function
OWN_RANKS, ONE_PROCESS = "own ranks", "one process"  # why a script runs as one process
OF_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")  # variables of torchrun
MAIN, OTHER = "main", "other-"  # names of processes that are no ranks: the script itself, and what it has started


@dataclass(frozen=True)
class Observation:
    """Something that a rank did: at its step `step` (1 until the first update has ended), at a line of the script."""

    step: int
    place: Place | None


@dataclass(frozen=True)
class Joined(Observation):
    """The rank has joined a process group of `size` ranks."""

    backend: str
    size: int = -1


@dataclass(frozen=True)
class JoinBegins(Observation):
    """The script begins a `Join`: ranks may have different numbers of minibatches."""


@dataclass(frozen=True)
class Wrapped(Observation):
    """A module was wrapped in DistributedDataParallel; `ranks` are those of its group."""

    ranks: tuple[int, ...]
    name: str
    batch_norms: int = 0


@dataclass(frozen=True, kw_only=True)
class LoaderBegins(Observation):
    """A DataLoader has given the first minibatch of an epoch.

    `epoch` counts its epochs from 0. `sampler_epoch` is the number that a DistributedSampler shuffled with; -1 is a
    number that is not known, and `epochs_set` says how often the script has set it. `repeats` is how many examples a
    DistributedSampler gives twice, so that all ranks have as many, `seed` its seed, `parts` into how many it divides
    the examples, and `part` how many are in one. `repeats_at_random` says that parts are drawn with replacement.
    """

    loader: int
    epoch: int
    sampler: str
    shuffles: bool = False
    sampler_epoch: int = -1
    num_examples: int = -1
    num_batches: int = -1
    workers: int = 0
    iterable: bool = False
    repeats: int = 0
    seed: int = -1
    parts: int = -1
    part: int = -1
    epochs_set: int = 0
    repeats_at_random: bool = False


@dataclass(frozen=True)
class DataSet(Observation):
    """The digests of the first and the last example of the data set of a DataLoader, if they are always the same.

    `labels` are those of the numbers, texts and tensors of whole numbers after the first part of an example; "" if it
    has none. `chosen` is that of the numbers of the examples, if the data set is a subset of another one.
    """

    loader: int
    items: tuple[str, ...]
    labels: tuple[str, ...] = ()
    chosen: str = ""


@dataclass(frozen=True, kw_only=True)
class Forward(Observation):
    """A forward pass with gradients, of an outermost module `model`: `rows` are the digests of its examples.

    `loader` and `epoch` are those of the DataLoader that gave the last minibatch, -1 without one. `around_ddp` is True
    if the module is inside of a DistributedDataParallel that was not called. `output` is the digest of the first tensor
    that comes out, `entry` that of what went into the first layer with parameters, in the first steps. `training` is
    False in evaluation mode. `drops_out` says whether the module has a dropout that is at work, and `batch_norms` how
    many of its BatchNorms use the rank's own examples.
    """

    model: int
    name: str
    rows: tuple[str, ...]
    loader: int = -1
    epoch: int = -1
    in_ddp: bool = False
    syncs: bool = True
    around_ddp: bool = False
    output: str = ""
    entry: str = ""
    training: bool = True
    drops_out: bool = False
    batch_norms: int = 0


@dataclass(frozen=True)
class Evaluated(Observation):
    """The first forward pass without gradients for minibatches of an epoch of a DataLoader."""

    loader: int
    epoch: int


@dataclass(frozen=True)
class Reduced(Observation):
    """The script called a collective that puts numbers of all ranks together, or any one while a network is called.

    `with_grad` says that a tensor among them has a gradient to come, `in_forward` that a network is being called.
    `adds_up` is False where the operation is neither a sum nor a mean. `group` are its ranks, () for all. `values` are
    the numbers that the rank gives, if they are few.
    """

    name: str
    with_grad: bool = False
    in_forward: bool = False
    adds_up: bool = True
    group: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Clipped(Observation):
    """Gradients were clipped: their digests before, their norm, and the largest norm that is allowed.

    `scaled` says that they still had the factor of a GradScaler, and the largest norm has not. `flat` says that the
    tensors are a rank's parts of what FullyShardedDataParallel has made flat. `clipped` are the gradients afterwards,
    of some steps.
    """

    grads: Mapping[str, str]
    norm: float
    most: float
    scaled: bool = False
    flat: bool = False
    clipped: Mapping[str, Print | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Update(Observation):
    """One step of an optimizer: gradients before it, weights after it.

    `before` has all weights before the first update, `start` those of one small parameter before each update.

    `backwards` counts the backward passes since the update before; `passes` counts all so far, since the beginning or
    the end of a `Join`, the `joins`-th of both. `lost` counts those whose gradients were cleared without an update, and
    `minibatches` what DataLoaders have given since the update before. `kept` says that a backward pass added its
    gradients to those of the update before, `scaled` that they have the factor of a GradScaler. `group` are the ranks
    that hold copies, () where nothing says so. With a `closure` the gradients are not those of the update. `hooked`
    says that DistributedDataParallel sends by a hook. Tensors that are `sharded` over ranks are in `weights` with None.
    Those that the script told DistributedDataParallel to ignore are not there, and `ignores` says that there are some.
    An update by hand has the optimizer -1, and its gradients are not known.

    `is_own` says that the optimizer is not PyTorch's.
    """

    optimizer: int
    name: str
    lrs: tuple[float, ...]
    grads: Mapping[str, Print | None]
    weights: Mapping[str, Print | None]
    before: Mapping[str, Print | None] = field(default_factory=dict)
    start: Mapping[str, Print | None] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    visible: str = ""
    backwards: int = 1
    kept: bool = False
    closure: bool = False
    sharded: bool = False
    hooked: bool = False
    group: tuple[int, ...] = ()
    passes: int = 0
    joins: int = 0
    lost: int = 0
    minibatches: int = 0
    scaled: bool = False
    ignores: bool = False
    is_own: bool = False


@dataclass(frozen=True, kw_only=True)
class Sampled(Observation):
    """An update, for the comparison with another run: samples of each weight, of its gradient and of its change.

    `weights` are those before the update, and `changes` what the update has added to them. `dtypes` are the names of
    the weights' types. `halves` says that a part was computed by autocast in a 16-bit type.
    """

    optimizer: int
    weights: Mapping[str, Sample]
    grads: Mapping[str, Sample | None]
    changes: Mapping[str, Sample]
    dtypes: Mapping[str, str]
    halves: bool = False


@dataclass(frozen=True, kw_only=True)
class State(Observation):
    """What a module holds at the end of the run: the prints of its parameters and buffers.

    `unheld` are parameters that get gradients and are in no optimizer, with their shapes, `not_averaged` those that get
    gradients and that DistributedDataParallel does not average, `untrained` those that need no gradient. Those that it
    was told to ignore are left out. `syncs_buffers` says that it sends buffers before each forward pass,
    `evaluated` that it was called without gradients alone.
    """

    model: int
    name: str
    params: Mapping[str, Print | None]
    buffers: Mapping[str, Print | None] = field(default_factory=dict)
    unheld: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    not_averaged: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()
    group: tuple[int, ...] = ()
    syncs_buffers: bool = False
    evaluated: bool = False


@dataclass(frozen=True)
class LostAttributes(Observation):
    """Attributes that a replica of nn.DataParallel has counted up in its forward pass; it is made anew each time."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class UnusedTensors(Observation):
    """Shapes of parameters that an optimizer holds, which never got a gradient and are in no module that was called.

    `are_all` says that it holds no others.
    """

    optimizer: int
    shapes: tuple[tuple[int, ...], ...]
    are_all: bool = False


@dataclass(frozen=True)
class NotWaited(Observation):
    """An update used gradients of a collective that was begun with async_op=True and not waited for."""

    name: str


@dataclass(frozen=True)
class LossReduced(Observation):
    """A backward pass began at a number that `all_reduce` had added up, multiplied by `factor` after it."""

    factor: float


@dataclass(frozen=True)
class Opened(Observation):
    """The script opened a file: `mode` has "w", "x" or "a" for writing, "r" for reading, "+" for both.

    A file that is a lock, or is locked, has the mode "lock"; the latter may have no path. `calls` counts what the rank
    had done together with others by then.
    """

    path: str
    mode: str
    calls: int = -1


@dataclass(frozen=True)
class Drawn(Observation):
    """Random numbers were drawn in a forward pass for training: a digest of the generators' states before it."""

    states: str


@dataclass(frozen=True)
class Scheduled(Observation):
    """A scheduler has taken a step; it was made for `total` of them (-1: it has no end)."""

    name: str
    total: int = -1


@dataclass(frozen=True)
class Saved(Observation):
    """`torch.save` wrote a file; all names of a state dict in it begin with `prefix`, that of a wrapper.

    `calls` counts what the rank had done together with others by then.
    """

    path: str
    on_gpu: bool = False
    prefix: str = ""
    calls: int = -1


@dataclass(frozen=True)
class Loaded(Observation):
    """`torch.load` read a file; `mapped` says whether `map_location` was given."""

    path: str
    mapped: bool
    devices: tuple[str, ...] = ()
    calls: int = -1


@dataclass(frozen=True)
class NothingLoaded(Observation):
    """`load_state_dict(strict=False)` found none of a state's names, such as `name`, in a module that has `own`."""

    name: str
    own: str


@dataclass(frozen=True, kw_only=True)
class Memory(Observation):
    """The bytes of a rank: parameters, gradients, optimizer state, and what the forward pass keeps (-1: not known).

    `update` is what an update on a GPU needs besides, for a moment, and `buckets` what DistributedDataParallel sends.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int = -1
    update: int = 0
    buckets: int = 0


@dataclass(frozen=True)
class Sent(Observation):
    """What a rank handed to collectives in `steps` steps, as the flight recorder has it: calls and bytes."""

    steps: int
    collectives: int
    n_bytes: int


@dataclass(frozen=True)
class Failed(Observation):
    """The script raised an error; `report` is that of `notebook_ranks`."""

    report: Mapping[str, Any]


@dataclass(frozen=True)
class NotObserved(Observation):
    """The observer failed at something, which it has not observed."""

    error: str


@dataclass(frozen=True)
class Ended(Observation):
    """The script ended by itself, with an exit code, or was stopped after enough steps ("enough")."""

    how: str
    code: int = 0


_Kind = TypeVar("_Kind", bound=Observation)


@dataclass(frozen=True)
class RankObservations:
    """All that was observed on one rank, in the order of time."""

    rank: int
    noted: Sequence[Observation] = ()

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        """Return the observations of one kind."""
        return [one for one in self.noted if isinstance(one, kind)]

    @property
    def num_updates(self) -> int:
        """How many updates the rank has made, by the optimizer that has made most."""
        counts = Counter(update.optimizer for update in self.of(Update))
        return max(counts.values(), default=0)


Observed = Sequence[RankObservations]  # of all ranks of a run, in the order of their numbers


_KIND_OF: dict[str, type[Observation]] = {
    kind.__name__: kind
    for kind in (
        Clipped, DataSet, Drawn, Ended, Evaluated, Failed, Forward, Joined, Loaded, LoaderBegins, LossReduced,
        LostAttributes, Memory, NotObserved, NotWaited, NothingLoaded, Opened, Reduced, Sampled, Saved, Scheduled,
        Sent, State, UnusedTensors, JoinBegins, Update, Wrapped,
    )
}  # fmt: skip


def as_line(one: Observation) -> str:
    """Return an observation as one line of JSON."""
    return json.dumps({"kind": type(one).__name__, **vars(one)})


def rank_name(rank: int) -> str:
    """Return the name of a rank's files."""
    return f"rank-{rank}"


def read_observations(folder: Path, names: Mapping[int, str]) -> list[RankObservations]:
    """Read what ranks, {rank: the name of its files}, have written in the folder, up to a line that is incomplete."""
    return [RankObservations(rank, _read_lines(folder / f"{name}.jsonl")) for rank, name in names.items()]


def _read_lines(path: Path) -> list[Observation]:
    lines: Iterable[str] = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else ()
    found: list[Observation] = []
    for line in lines:
        try:
            facts = {name: _tuples(value) for name, value in json.loads(line).items()}
            found.append(_KIND_OF[facts.pop("kind")](**facts))
        except json.JSONDecodeError:  # the rank has ended, or the disk was full, before the line was written
            break
    by_optimizer = any(isinstance(one, Update) and one.optimizer >= 0 for one in found)
    # some optimizers move the weights to look around, before their first step: that is no update
    return [one for one in found if not (by_optimizer and isinstance(one, Update) and one.optimizer < 0)]


def _tuples(value: object) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {name: _tuples(item) for name, item in value.items()} if isinstance(value, dict) else value
