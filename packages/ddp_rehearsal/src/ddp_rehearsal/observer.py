"""The observer on a rank: it watches a script through PyTorch's hooks, and writes what it sees as JSON lines.

Public hooks are used where there are some: those of all optimizers and of all modules. `backward`, `zero_grad`,
`torch.save`, `torch.load`, `clip_grad_norm_`, the steps of schedulers, DataLoader and
DistributedDataParallel are wrapped. The observer changes no tensor and no random number. An error of its own never
reaches the script.
"""

import math
import os
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    dataloader,
)

from ddp_rehearsal.fingerprint import (
    MOST_VALUES,
    Print,
    first_tensor,
    rows_of_inputs,
    tensor_digest,
    tensor_print,
    tensor_prints,
    tensor_sample,
    unpacked,
)
from ddp_rehearsal.held_memory import bytes_of, bytes_of_update, parameters_on_gpus
from ddp_rehearsal.observations import (
    Clipped,
    DataSet,
    Drawn,
    Ended,
    Evaluated,
    Forward,
    JoinBegins,
    Joined,
    Loaded,
    LoaderBegins,
    LossReduced,
    LostAttributes,
    Memory,
    NothingLoaded,
    NotObserved,
    NotWaited,
    Observation,
    Opened,
    Place,
    Reduced,
    Sampled,
    Saved,
    Scheduled,
    Sent,
    State,
    UnusedTensors,
    Update,
    Wrapped,
    as_line,
)
from ddp_rehearsal.observed_collectives import TOGETHER, OwnCollectives
from ddp_rehearsal.observed_files import watch_files
from ddp_rehearsal.pretend_gpus.backward import leaves_of
from ddp_rehearsal.pretend_gpus.storages import device_of
from ddp_rehearsal.wrapped import wrap
from notebook_ranks.flight_recorder import read_recorder
from notebook_ranks.shared.activations_held import ActivationsHeld, activations_held
from notebook_ranks.shared.own_code import is_own_code

__all__ = ["Observer", "script_place"]

SHARDED = ("FullyShardedDataParallel",)  # the other ways to shard use DTensor
MOST_EVALUATED = 8  # modules of which the state is compared
LENGTHS = ("T_max", "total_steps", "total_iters")  # attributes of schedulers
PREFIXES = ("module.", "_orig_mod.")  # of names in the state of a wrapper
PLAIN = (torch.Tensor, nn.Parameter)  # types of nearly all tensors; a missing attribute takes time to find out
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
FIRST_STEPS = 3  # in which it is looked for what gets gradients
MOST_CALLS = 1900  # fewer than the flight recorder keeps
MOST_COUNTS = 4  # numbers of a tensor, such as how many answers were right, and of how many
BY_HAND = -1  # stands for an optimizer
READINGS_OF_AN_EXAMPLE = 8  # to see whether it changes
READING_S = 5.0  # for the examples of all data sets
UNSCALED = 10  # a largest norm of more than 1/10 of a GradScaler's factor has this factor itself
ONE_WEIGHT = "a weight, not a gradient"  # among names of parameters
WAIT = (Forward, Clipped)  # these are written with the next observation of another kind, or the next pulse
LOCK_S = 0.5
OFTEN = 10  # all bytes of large tensors are read in the first three updates, and in each tenth


def script_place(frames: Sequence[Place]) -> Place | None:
    """Return the innermost of (file, line, function) that belongs to the script; `frames` begin with the outermost."""
    return next(((f, n, name) for f, n, name in reversed(frames) if is_own_code(f)), None)


def _place_now() -> Place | None:
    """Return where in the script this thread is."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_own_code(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return None


class Observer:
    """Watches the script of one rank, from `install` on, and calls `enough` after `steps` updates of one optimizer.

    It does so where the next step begins, so that an evaluation or a checkpoint after the last one is seen, too.

    `progress` counts what the script has done, and `in_backward` says whether a backward pass runs. With `samples` each
    update is also written as `Sampled`; a copy of the weights is kept while it runs.
    """

    def __init__(self, steps: int, enough: Callable[[], None], samples: bool = False) -> None:
        self.steps, self.enough, self.samples = steps, enough, samples
        self.file: Any = None
        self.folder = os.devnull  # of the rehearsal, whose files are not the script's
        self.waiting: deque[tuple[type[Observation], dict[str, Any]]] = deque()
        self.writing, self.unwritten = threading.Lock(), b""
        self.pid, self.thread = os.getpid(), threading.get_ident()
        self.progress, self.step, self.depth, self.backwards = 0, 1, 0, 0
        self.step_is_over = False  # the step has ended, and the next one has not begun
        self.over_since = 0.0  # when the last step has ended; 0 before
        self.passes = self.all_passes = self.joins = self.lost = self.plain_passes = 0
        self.own_collectives = OwnCollectives()
        self.minibatches: Counter[int] = Counter()  # number of a DataLoader -> what it has given since the last update
        self.lost_names: set[str] = set()
        self.in_backward = self.in_schedule = self.failed = self.sharded = self.kept = self.measured = False
        self.numbers: dict[int, int] = {}  # id of an outermost module -> its number
        self.modules: list[nn.Module] = []  # the outermost modules, by their numbers
        self.facts: dict[tuple[int, bool], dict[str, Any]] = {}  # id, training -> facts of all its forward passes
        self.names: dict[int, str] = {}  # id of a parameter -> its name
        self.in_ddp: dict[int, tuple[int, ...]] = {}  # id of a module or parameter in a DDP -> the ranks of its group
        self.ddps: list[DistributedDataParallel] = []
        self.ignored: dict[int, nn.Parameter] = {}  # by id: those that the script told a DDP to leave alone
        self.in_fsdp: dict[int, nn.Parameter] = {}  # by id: those of modules in FullyShardedDataParallel
        self.averaged: dict[int, set[int]] = {}  # id of a DDP -> ids of the parameters that it averages
        self.held_by: dict[int, dict[int, nn.Parameter]] = {}  # number of an optimizer -> its parameters, by id
        self.got_grad: dict[int, nn.Parameter] = {}  # by id: those that had a gradient in the first updates
        self.scaler: Any = None  # whose factor the gradients of the last backward pass have
        self.scales, self.unscaled = False, set[int]()  # ids of parameters whose gradients have lost it
        self.by_hand: tuple[Any, torch.Tensor, Print, dict[str, Any]] | None = None
        self.hand_passes = 0
        self.random = ""  # a digest of the states of the generators after step 1
        self.entry = ""  # digest of what went into the first layer with parameters of this forward pass
        self.looks_for_entry = False
        self.scaled_grad: tuple[torch.Tensor, float, float] | None = None  # its largest value, and the factor then
        self.not_loaded: dict[int, tuple[nn.Module, dict[str, Any]]] = {}  # by id: modules whose load found nothing
        self.evaluated: set[tuple[int, int]] = set()
        self.only_evaluated: dict[int, nn.Module] = {}  # by id: outermost modules that were called without gradients
        self.used: list[Any] = []  # keeps what the ids belong to
        self.optimizers: dict[int, int] = {}
        self.states: dict[int, torch.optim.Optimizer] = {}  # by id: optimizers that have made an update
        self.counts: dict[int, int] = {}
        self.sampled: tuple[dict[str, tuple[nn.Parameter, torch.Tensor]], dict[str, Any]] | None = None
        self.halves = False
        self.running: int | None = None  # id of the optimizer whose update runs; it may call others
        self.named: dict[str, nn.Parameter] = {}  # the parameters of that update
        self.begun: dict[str, Any] = {}  # its facts
        self.last: tuple[nn.Parameter, Print] | None = None  # a gradient of the last update
        self.last_weight: Print | None = None  # of the same parameter, after the update
        self.ended_ns: list[int] = []  # when the updates ended, on the machine's clock
        self.loaders: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()  # number, epochs
        self.iterators: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        self.fresh: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # iterator -> its DataLoader
        self.orders: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # sampler -> epoch of its order
        self.epochs_set: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # sampler -> how often
        self.loader = (-1, -1)  # that gave the last minibatch, and its epoch
        self.reads_examples = False  # at the end, the observer itself
        self.data_sets: dict[int, Any] = {}  # number of a loader with a DistributedSampler -> its data set
        self.measures: Any = None  # activations_held, while it counts in `held`
        self.held = ActivationsHeld()
        self.activations = -1

    def open(self, path: Path) -> None:
        """Write into a file from now on."""
        self.file = open(path, "wb", buffering=0)

    def forked(self) -> None:
        """Watch this process, a fork of the one that was watched; nothing has been seen of it yet."""
        self.file, self.unwritten = None, b""
        self.waiting.clear()
        self.writing = threading.Lock()  # a thread may have held the old one
        self.pid, self.thread = os.getpid(), threading.get_ident()

    def note(self, kind: type[Observation], **facts: Any) -> None:
        """Note an observation, with the step and the place in the script; write it, unless its kind waits."""
        facts.setdefault("step", self.step + self.step_is_over)
        if "place" not in facts:
            facts["place"] = _place_now()
        self.waiting.append((kind, facts))
        if kind not in WAIT:
            try:
                self.write()
            except OSError as error:  # the disk is full, perhaps not for long
                self._say(error, is_lost=False)

    def write(self) -> None:
        """Write what waits. Any thread of the rank may do it. Where the disk is full it waits on."""
        if self.pid != os.getpid() or self.file is None:  # a process that the script has started
            return
        # A signal of the script may have come while this thread writes: what it noted then goes out with the next ones.
        if self.writing.acquire(timeout=LOCK_S):
            try:
                while self.waiting:
                    kind, facts = self.waiting.popleft()
                    self.unwritten += f"{as_line(kind(**facts))}\n".encode()
                if self.unwritten:
                    self.unwritten = self.unwritten[self.file.write(self.unwritten) :]
            finally:
                self.writing.release()

    def end(self, how: str, code: int = 0) -> None:
        """Write that the script has ended, and what can be read only then."""
        self._quietly(self._note_not_loaded)
        if how != "exit":
            self._quietly(self._read_states)
            self._quietly(self._read_traffic)
        self._quietly(self._read_data_sets)
        if left := self.own_collectives.not_noted:
            self.note(NotObserved, error=f"its last {left} collectives were not looked at.", place=None)
        self.note(Ended, how=how, code=code)

    def install(self) -> None:
        """Begin to watch."""
        register_module_forward_pre_hook(self._before_forward)
        register_module_forward_hook(self._after_forward, with_kwargs=True, always_call=True)
        register_optimizer_step_pre_hook(self._before_update)
        register_optimizer_step_post_hook(self._after_update)
        wrap(torch.autograd, "backward", self._backward)
        wrap(torch.optim.Optimizer, "zero_grad", self._clear)
        wrap(nn.Module, "zero_grad", self._clear)
        wrap(torch, "save", self._save)
        wrap(torch, "load", self._load)
        wrap(nn.Module, "load_state_dict", self._load_state)
        wrap(nn.utils, "clip_grad_norm_", self._clip, nn.utils.clip_grad)
        wrap(nn.utils, "clip_grad_value_", self._clip_values, nn.utils.clip_grad)
        wrap(torch.amp.GradScaler, "scale", self._scale)
        wrap(torch.amp.GradScaler, "unscale_", self._unscale)
        self.scale_of = torch.amp.GradScaler.get_scale
        wrap(torch.amp.GradScaler, "get_scale", self._read_scale)
        wrap(DataLoader, "__iter__", self._begin_loader)
        wrap(dataloader._BaseDataLoaderIter, "__next__", self._next)
        wrap(DistributedSampler, "__iter__", self._shuffle)
        wrap(DistributedSampler, "set_epoch", self._set_epoch)
        wrap(DistributedDataParallel, "__init__", self._wrap_in_ddp)
        for kind in list(vars(lr_scheduler).values()):
            if isinstance(kind, type) and "step" in vars(kind):
                wrap(kind, "step", self._schedule)
        wrap(dist, "init_process_group", self._join_group, dist.distributed_c10d)
        self.own_collectives.watch(self._put_together, self._calls_itself, _place_now)
        wrap(Join, "__enter__", self._may_end_earlier)
        wrap(Join, "__exit__", self._join_ends)
        wrap(torch.autograd.graph, "disable_saved_tensors_hooks", self._without_hooks)
        wrap(nn.DataParallel, "parallel_apply", self._apply)
        watch_files(self._opened, self._is_mine, self.folder)

    def _is_mine(self) -> bool:
        """Return whether this is the script's own thread, and not a thread or a process that it has started."""
        return self.pid == os.getpid() and self.thread == threading.get_ident()

    def _quietly(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function of the observer: it computes no gradients, and its errors do not reach the script."""
        if self._is_mine():
            try:
                with torch.no_grad():
                    function(*args)
            except Exception as error:
                self._say(error)

    def _say(self, error: Exception, is_lost: bool = True) -> None:
        """Say once that something was not observed, in the report, too, unless it only waits."""
        if not self.failed:
            words = f"{type(error).__name__}: {error}"
            print(f"rehearsal: not observed: {words}", file=sys.stderr)
            if is_lost:
                self.waiting.append((NotObserved, {"step": self.step, "place": None, "error": words[:500]}))
        self.failed = True

    def _past_the_pretence(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function of the observer quietly, with `__torch_function__` switched off.

        Pretend GPUs would otherwise look at each of its calls, which takes time. It is used for what happens in each
        step. The function must ask `device_of` for the device of a tensor.
        """
        with torch._C.DisableTorchFunction():
            self._quietly(function, *args)

    # forward and backward passes

    def _before_forward(self, module: nn.Module, args: object) -> None:
        if torch.compiler.is_compiling():  # a compiler follows this call; it would not follow the rest
            return
        if self._is_mine():
            self.depth += 1
            self.halves |= self.samples and torch._C._is_any_autocast_enabled()
            if self.depth == 1 and not self.in_backward and torch.is_grad_enabled():
                if not self.optimizers and self.running is None:
                    self._look_for_update_by_hand(module)
                self._begin_step()
                self.entry, self.looks_for_entry = "", self.step <= FIRST_STEPS
                if self.activations < 0 and self.step == 2 and not self.measured:
                    self._quietly(self._begin_to_measure, module)
            if self.looks_for_entry and module._parameters:
                self._past_the_pretence(self._enter, args)

    def _begin_step(self) -> None:
        """The first forward or backward pass after an update begins the next step, or there have been enough."""
        if self.over_since:
            self.end("enough")
            self.enough()
        self.step, self.step_is_over = self.step + self.step_is_over, False
        if self.not_loaded:
            self._quietly(self._note_not_loaded)

    def _enter(self, args: object) -> None:
        """Keep what goes into the first layer that has parameters: a network may change its input before."""
        tensor = first_tensor([args])
        self.entry = "" if tensor is None else tensor_digest(tensor)
        self.looks_for_entry = False

    def _begin_to_measure(self, module: nn.Module) -> None:
        params = list(module.parameters())
        if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
            return  # its replicas run in threads, and what they keep is not seen here
        learns = any(p.requires_grad for p in params)  # a teacher keeps nothing
        if learns and not self.sharded and not any(map(_is_sharded, params)):
            self.measures = activations_held(params)
            self.held = self.measures.__enter__()

    def _without_hooks(self, disable: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """End the measurement where the script calls `torch.func`, which refuses hooks of saved tensors."""
        if self._is_mine() and self.measures is not None:
            self.measures.__exit__(None, None, None)
            self.measures, self.measured = None, True
        return disable(*args, **kwargs)

    def _after_forward(self, module: nn.Module, args: object, *rest: Any) -> None:
        if torch.compiler.is_compiling() or not self._is_mine():
            return
        self.depth = max(0, self.depth - 1)
        if self.depth:
            return
        self.progress += 1
        if self.measures is not None:
            self.measures.__exit__(None, None, None)
            self.activations, self.measures = self.held.most_n_bytes, None
        if not torch.is_grad_enabled():
            if id(module) not in self.numbers and len(self.only_evaluated) < MOST_EVALUATED:
                self.only_evaluated.setdefault(id(module), module)
            if self.loader not in self.evaluated and not self.in_backward:
                self.evaluated.add(self.loader)
                self._quietly(lambda: self.note(Evaluated, loader=self.loader[0], epoch=self.loader[1]))
        elif not self.in_backward:
            self._past_the_pretence(
                self._forward, module, args, rest[0] if len(rest) == 2 else {}, rest[-1] if rest else None
            )

    def _forward(self, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        inner = _inner(module)
        key = id(module), inner.training  # eval() may have been called past the wrapper
        if key not in self.facts:
            if next(module.parameters(), None) is None:  # a loss
                return
            self._name(module)
            parts = [part for part in module.modules() if part.training]
            self.facts[key] = {
                "name": type(inner).__name__,
                "in_ddp": isinstance(module, DistributedDataParallel),
                "training": inner.training,
                "drops_out": any(isinstance(part, _DropoutNd) and part.p > 0 for part in parts),
                "batch_norms": sum(isinstance(part, BATCH_NORMS) for part in parts),
            }
        result = first_tensor([output], fewest_dims=0)  # it may be a loss
        self.note(
            Forward,
            model=self._number_of_module(module),
            rows=rows_of_inputs([args, kwargs]),
            loader=self.loader[0],
            epoch=self.loader[1],
            syncs=bool(getattr(module, "require_backward_grad_sync", True)),
            around_ddp=id(module) in self.in_ddp,
            output="" if result is None else tensor_digest(result),
            entry=self.entry,
            **self.facts[key],
        )

    def _number_of_module(self, module: nn.Module) -> int:
        if id(module) not in self.numbers:
            self.modules.append(module)
        return self._number(self.numbers, module)

    def _number(self, numbers: dict[int, int], thing: object) -> int:
        if id(thing) not in numbers:
            numbers[id(thing)] = len(numbers)
            self.used.append(thing)
        return numbers[id(thing)]

    def _name(self, module: nn.Module) -> None:
        """Keep the names of a module's parameters, and whether they are parts of what several ranks hold."""
        for name, param in _inner(module).named_parameters():
            self.names.setdefault(id(param), name)
        if isinstance(module, DistributedDataParallel) and module not in self.ddps:
            self.ddps.append(module)
        for part in module.modules():
            if type(part).__name__ in SHARDED:
                self.sharded = True
                self.in_fsdp |= {id(p): p for p in part.parameters()}

    def _wrap_in_ddp(
        self, make: Callable[..., None], ddp: nn.Module, module: nn.Module, *args: Any, **kwargs: Any
    ) -> None:
        make(ddp, module, *args, **kwargs)
        self._quietly(self._wrapped, ddp, module)

    def _wrapped(self, ddp: Any, module: nn.Module) -> None:
        ranks = tuple(dist.get_process_group_ranks(ddp.process_group))
        self._name(ddp)
        left_out = set(getattr(ddp, "parameters_to_ignore", ()))
        named = module.named_parameters()
        self.averaged[id(ddp)] = {id(p) for name, p in named if p.requires_grad and name not in left_out}
        self.ignored |= {id(p): p for name, p in module.named_parameters() if name in left_out}
        for thing in [*module.modules(), *module.parameters()]:
            if id(thing) not in self.ignored:
                self.in_ddp[id(thing)] = ranks
                self.used.append(thing)
        norms = sum(isinstance(part, BATCH_NORMS) for part in module.modules())
        self.note(Wrapped, ranks=ranks, name=type(module).__name__, batch_norms=norms)

    def _backward(self, backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._is_mine():
            return backward(*args, **kwargs)
        if self.in_backward:  # of a part that is computed again
            return backward(*args, **kwargs)
        self._past_the_pretence(self._look_for_kept_gradients)
        if self.own_collectives.reduced is not None:
            self._quietly(self._look_for_reduced_loss, [*args, *kwargs.values()])
        if self.running is None:
            if not self.optimizers and not self.modules:
                self._look_for_update_by_hand([*args, *kwargs.values()])
            self._begin_step()
        self.progress += 1
        self.backwards += 1
        self.passes += 1
        self.all_passes += 1
        self.plain_passes += not self.scales  # of a loss without the factor
        self.scaler, self.scales = (self.scaler if self.scales and not self.plain_passes else None), False
        self.in_backward = True
        try:
            return backward(*args, **kwargs)
        finally:
            self.in_backward = False
            if self.scaler is not None:
                self._past_the_pretence(self._read_scaled_gradient)

    def _read_scaled_gradient(self) -> None:
        """Keep how large a gradient is that has the factor of a GradScaler: the script may divide by it itself."""
        learning = (p for module in self.modules for p in module.parameters() if p.grad is not None)
        small = min(learning, key=torch.Tensor.numel, default=None)
        self.scaled_grad = None
        if small is not None and not _is_sharded(small) and small.grad is not None:
            self.scaled_grad = small, _largest(small.grad), float(self.scale_of(self.scaler))

    def _clear(self, clear: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._is_mine():
            if self.scaler is None and self.backwards:
                self._past_the_pretence(self._count_lost)
            self.backwards = 0  # an update was left out, as a GradScaler does where a gradient is infinite
            self.unscaled -= _ids_of_parameters(args[0])
        return clear(*args, **kwargs)

    def _count_lost(self) -> None:
        """Count the backward passes whose gradients are cleared; they are not lost if the weights have moved since."""
        if self.last is None or self.last_weight is None:
            self.lost += self.backwards
        elif self.last[0].grad is not None and _print(self.last[0], False) == self.last_weight:
            self.lost += self.backwards

    def _look_for_reduced_loss(self, given: Sequence[object]) -> None:
        losses = [loss for of in given for loss in (_sequence(of) if isinstance(of, list | tuple) else [of])]
        if (found := self.own_collectives.factor_of(losses)) is not None:
            self.note(LossReduced, factor=found[0], place=found[1])

    def _look_for_kept_gradients(self) -> None:
        if self.last is not None and self.backwards == 0:
            param, before = self.last
            self.kept = param.grad is not None and any(unpacked(before[1])) and _print(param.grad, False) == before

    # updates

    def _before_update(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if self._is_mine() and self.running in (None, id(optimizer)):
            if self.counts.get(id(optimizer), 0) >= self.steps:  # nothing was called in between
                self._begin_step()
            self.running, self.begun = id(optimizer), {}
            self._past_the_pretence(self._begin_update, optimizer, args, kwargs)

    def _begin_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.named = named = self._named(optimizer)
        left_open = self.own_collectives.left_open([p.grad for p in named.values() if p.grad is not None])
        for name, place in left_open[:1]:
            self.note(NotWaited, name=name, place=place)
        small = min(((p.numel(), name) for name, p in named.items() if p.grad is not None), default=None)
        # one weight is read together with the gradients, since each reading takes time
        read = {name: p.grad for name, p in named.items()} | ({} if small is None else {ONE_WEIGHT: named[small[1]]})
        grads = self._prints_of(read, self._complete())
        start = grads.pop(ONE_WEIGHT, None)
        first = id(optimizer) not in self.optimizers
        compared = {name: p for name, p in named.items() if id(p) not in self.ignored}
        self.begun = {
            "place": _place_now(),
            "optimizer": self._number(self.optimizers, optimizer),
            "name": type(optimizer).__name__,
            "lrs": tuple(float(group["lr"]) for group in optimizer.param_groups if group.get("lr") is not None),
            "grads": {name: grads[name] for name in compared},
            "before": self._prints_of(compared, True) if first else {},
            "backwards": self.backwards,
            "kept": self.kept,
            "closure": any(map(callable, [*args[1:], *kwargs.values()])),
            "hooked": any(getattr(ddp, "_comm_hooks", ()) for ddp in self.ddps),
            "sharded": self.sharded or any(map(_is_sharded, named.values())),
            "ignores": len(compared) < len(named),
            "is_own": not type(optimizer).__module__.startswith("torch."),
            **self._facts_of_update(named.values()),
            "lost": self.lost,
            "minibatches": max(self.minibatches.values(), default=0),
            "scaled": not _unscales(optimizer) and self._is_scaled(list(named.values())),
        }
        if self.step <= FIRST_STEPS or len(named) != len(self.held_by.get(self.begun["optimizer"], ())):
            self.held_by.setdefault(self.begun["optimizer"], {}).update((id(p), p) for p in named.values())
            self._look_for_gradients(p for module in self.modules for p in module.parameters())
        self._look_for_gradients(named.values())
        if small is not None:
            param = named[small[1]]
            self.begun["start"] = {small[1]: start}
            known = grads[small[1]] if small[0] <= MOST_VALUES else None
            self.last = None
            if param.grad is not None and not _is_sharded(param.grad):
                self.last = param, known or _print(param.grad, False)
        if self.samples and not self.begun["sharded"]:
            self._begin_sample(named)

    def _facts_of_update(self, params: Iterable[torch.Tensor]) -> dict[str, Any]:
        """Return what an update by an optimizer and one by hand have in common."""
        return {
            "step": self.step,
            "devices": tuple(sorted(map(str, {device_of(p) for p in params}))),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "group": self._group_of(params),
            "passes": self.passes,
            "joins": self.joins,
        }

    def _group_of(self, params: Iterable[torch.Tensor]) -> tuple[int, ...]:
        """Return the ranks that hold copies of all these parameters; () where nothing says so."""
        groups = {self.in_ddp.get(id(p)) for p in params if id(p) not in self.ignored}
        return groups.pop() or () if len(groups) == 1 else ()

    def _after_update(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if not self._is_mine() or self.running != id(optimizer):
            return
        self.running = None
        self.progress += 1
        self._past_the_pretence(self._end_update, optimizer)
        self.counts[id(optimizer)] = self.counts.get(id(optimizer), 0) + 1
        self.backwards, self.kept = 0, False
        self.unscaled -= _ids_of_parameters(optimizer)
        self.lost = self.plain_passes = 0
        self.minibatches.clear()
        self._note_random_numbers()
        self.step_is_over = True
        self.looks_for_entry = False
        self.ended_ns.append(time.time_ns())
        if self.counts[id(optimizer)] >= self.steps:
            self.over_since = self.over_since or time.monotonic()

    def _end_update(self, optimizer: torch.optim.Optimizer) -> None:
        if self.begun:
            compared = {name: p for name, p in self.named.items() if id(p) not in self.ignored}
            self.note(Update, weights=self._prints_of(compared, self._complete()), **self.begun)
            self.last_weight = None if self.last is None or _is_sharded(self.last[0]) else _print(self.last[0], False)
            if self.sampled is not None:
                self._end_sample()
            self.states[id(optimizer)] = optimizer
            if 2 <= self.step <= 4:  # several optimizers may take turns
                self._measure()

    def _look_for_gradients(self, params: Iterable[nn.Parameter]) -> None:
        """Keep which of the parameters have a gradient, and had none before."""
        self.got_grad |= {id(p): p for p in params if id(p) not in self.got_grad and p.grad is not None}

    def _look_for_update_by_hand(self, seen: nn.Module | list[Any]) -> None:
        """Look at a module, or at what goes into a backward pass where no module was called."""
        if self.by_hand is None or self.passes > self.hand_passes:
            self._past_the_pretence(self._see_update_by_hand, seen)
            if self.by_hand is not None and self.counts.get(BY_HAND, 0) >= self.steps:
                self.end("enough")
                self.enough()

    def _see_update_by_hand(self, seen: nn.Module | list[Any]) -> None:
        """Note an update without an optimizer, if a backward pass has run and weights are not what they were."""
        passes, self.hand_passes = self.passes - self.hand_passes, self.passes
        if self.by_hand is None:
            named = _learning(seen)
            if named and not self.sharded and not any(map(_is_sharded, named.values())):
                small = min(named.values(), key=torch.Tensor.numel)
                self.by_hand = seen, small, _print(small, False), self._prints_of(named, True)
            return
        first_seen, small, before, first = self.by_hand
        now = _print(small, False)
        is_same = seen is first_seen or (isinstance(seen, list) and isinstance(first_seen, list))
        if not is_same or now == before:
            return
        named = {name: p for name, p in _learning(seen).items() if name in first}
        self.note(
            Update,
            optimizer=BY_HAND,
            name="by hand",
            lrs=(),
            grads={},
            weights=self._prints_of(named, self._complete()),
            before=first if self.step == 1 else {},
            backwards=passes,
            closure=True,
            **self._facts_of_update(named.values()),
        )
        self.by_hand, self.step_is_over, self.backwards = (first_seen, small, now, first), True, 0
        self.progress += 1
        self.counts[BY_HAND] = self.counts.get(BY_HAND, 0) + 1

    def _note_random_numbers(self) -> None:
        """Note in step 2 whether random numbers were drawn since the end of step 1."""
        if self.step <= 2:
            self._quietly(self._see_random_numbers)

    def _see_random_numbers(self) -> None:
        now = self._random_now()
        if self.step == 2 and self.random and now != self.random:
            self.note(Drawn, states=self.random)
        self.random = now

    def _random_now(self) -> str:
        """Return a digest of the states of the generators."""
        states = [torch.get_rng_state()]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states.append(torch.cuda.get_rng_state())
        return "/".join(map(tensor_digest, states))

    def _read_states(self) -> None:
        """Write what the modules hold at the end, and what optimizers hold that no module has."""
        held = set().union(*self.held_by.values())
        called = [*self.modules, *self.only_evaluated.values()]
        of_modules = {id(p) for module in called for p in module.parameters()}
        for number, params in self.held_by.items():
            shapes = [tuple(p.shape) for i, p in params.items() if i not in of_modules and i not in self.got_grad]
            if shapes:
                self.note(UnusedTensors, optimizer=number, shapes=tuple(shapes), are_all=len(shapes) == len(params))
        if self.sharded:
            return
        trained = {id(p) for module in self.modules for p in module.parameters()}
        others = [m for m in self.only_evaluated.values() if not trained & {id(p) for p in m.parameters()}]
        for number, module in enumerate([*self.modules, *others]):
            named = dict(_inner(module).named_parameters())
            if any(map(_is_sharded, named.values())):
                continue
            got = [(name, p) for name, p in named.items() if id(p) in self.got_grad and p.requires_grad]
            averaged = self.averaged.get(id(module))
            self.note(
                State,
                model=number,
                name=type(_inner(module)).__name__,
                params=self._prints_of({n: p for n, p in named.items() if id(p) not in self.ignored}, True),
                buffers=self._prints_of(dict(_inner(module).named_buffers()), True),
                unheld={name: tuple(p.shape) for name, p in got if held and id(p) not in held},
                untrained=tuple(n for n, p in named.items() if not p.requires_grad),
                not_averaged=tuple(
                    name for name, p in got if averaged is not None and id(p) not in {*averaged, *self.ignored}
                ),
                group=self._group_of(named.values()),
                syncs_buffers=bool(getattr(module, "broadcast_buffers", False)),
                evaluated=number >= len(self.modules),
            )

    def _read_traffic(self) -> None:
        """Write what was sent between the second update and the last one; the recorder may have lost what is older."""
        begin, end = (self.ended_ns[1], self.ended_ns[-1]) if len(self.ended_ns) > 2 else (0, 0)
        calls = read_recorder(begin).get("collectives", []) if end else []
        calls = [call for call in calls if call["at_s"] * 1e9 <= end]
        if not calls or len(calls) >= MOST_CALLS:
            return
        n_bytes = sum(math.prod(size) * _itemsize(call["dtype"]) for call in calls for size in call["sizes"])
        self.note(Sent, steps=len(self.ended_ns) - 2, collectives=len(calls), n_bytes=n_bytes)

    def _begin_sample(self, named: dict[str, nn.Parameter]) -> None:
        named = {name: p for name, p in named.items() if p.is_floating_point()}
        if not named:
            return
        facts = {
            "weights": {name: tensor_sample(p) for name, p in named.items()},
            "grads": {name: None if p.grad is None else tensor_sample(p.grad) for name, p in named.items()},
            "dtypes": {name: str(p.dtype).removeprefix("torch.") for name, p in named.items()},
        }
        self.sampled = {name: (p, p.detach().clone()) for name, p in named.items()}, facts

    def _end_sample(self) -> None:
        assert self.sampled is not None
        (before, facts), self.sampled = self.sampled, None
        changes = {name: tensor_sample(p.detach() - weight) for name, (p, weight) in before.items()}
        number, place = self.begun["optimizer"], self.begun["place"]
        self.note(Sampled, place=place, optimizer=number, changes=changes, halves=self.halves, **facts)

    def _named(self, optimizer: torch.optim.Optimizer) -> dict[str, nn.Parameter]:
        """Return {name: parameter} of an optimizer."""
        named: dict[str, nn.Parameter] = {}
        for i, group in enumerate(optimizer.param_groups):
            for j, param in enumerate(group["params"]):
                name = self.names.get(id(param)) or f"parameter {j}" + (f" of group {i}" if i else "")
                named[name if name not in named else f"{name} ({i}, {j})"] = param
        return named

    def _complete(self) -> bool:
        return self.step <= 3 or self.step % OFTEN == 0

    def _prints_of(self, named: Mapping[str, torch.Tensor | None], complete: bool) -> dict[str, Print | None]:
        """Return {name: fingerprint} of tensors; None for those that are None or sharded."""
        found: dict[str, Print | None] = dict.fromkeys(named)
        read = {} if self.sharded else {n: t for n, t in named.items() if t is not None and not _is_sharded(t)}
        return found | dict(zip(read, tensor_prints(list(read.values()), complete), strict=True))

    def _measure(self) -> None:
        """Note the bytes of all modules and optimizers; those of the last update in step 2 are most."""
        of_modules = [p for module in self.modules for p in module.parameters()]
        held = [p for of in self.states.values() for group in of.param_groups for p in group["params"]]
        others = [] if self.sharded else parameters_on_gpus()
        params = list({id(p): p for p in [*of_modules, *held, *others]}.values())
        state = [
            t for of in self.states.values() for values in of.state.values() for t in values.values()
            if isinstance(t, torch.Tensor)
        ]  # fmt: skip
        buckets = [
            p for ddp in self.ddps if not getattr(ddp, "gradient_as_bucket_view", False)
            for p in ddp.parameters() if id(p) in self.averaged.get(id(ddp), ())
        ]  # fmt: skip
        self.note(
            Memory,
            parameters=bytes_of(params),
            gradients=bytes_of([p for p in params if p.grad is not None]),
            optimizer=bytes_of(state),
            activations=self.activations,
            update=max(map(bytes_of_update, self.states.values())),
            buckets=bytes_of(buckets),
        )
        self.measured = True

    def _clip(self, clip: Callable[..., Any], parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
        params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        facts: dict[str, Any] = {}
        self._past_the_pretence(self._begin_clip, params, max_norm, facts)
        norm = clip(params, max_norm, *args, **kwargs)
        if facts:
            self._past_the_pretence(self._end_clip, params, norm, float(facts.pop("most")), facts)
        return norm

    def _end_clip(self, params: Sequence[nn.Parameter], norm: Any, most: float, facts: dict[str, Any]) -> None:
        if isinstance(norm, torch.Tensor) and _is_sharded(norm):  # to read it would be a collective
            return
        norm = float(norm)
        clipped = self._prints_of(self._gradients(params), True) if self._complete() else {}
        self.note(Clipped, **facts, norm=norm, most=most, clipped=clipped)

    def _gradients(self, params: Sequence[nn.Parameter]) -> dict[str, torch.Tensor | None]:
        named = ((self.names.get(id(p), f"parameter {i}"), p.grad) for i, p in enumerate(params))
        return {name: grad for name, grad in named if grad is not None}

    def _clip_values(self, clip: Callable[..., Any], parameters: Any, clip_value: Any, *args: Any, **kw: Any) -> Any:
        params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if self._is_mine() and self._is_scaled(params, float(clip_value)):
            facts = {"grads": {}, "norm": 0.0, "most": float(clip_value), "scaled": True}
            self._quietly(lambda: self.note(Clipped, **facts))
        return clip(params, clip_value, *args, **kw)

    def _scale(self, scale: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_mine() and scaler.is_enabled():
            self.scaler, self.scales = scaler, True
        return scale(scaler, *args, **kwargs)

    def _read_scale(self, get: Callable[..., float], scaler: Any) -> float:
        if self._is_mine() and self.backwards and self.running is None:
            self.scaler = None  # the script may divide by it itself
        return get(scaler)

    def _unscale(self, unscale: Callable[..., Any], scaler: Any, optimizer: torch.optim.Optimizer) -> Any:
        if self._is_mine():
            self.unscaled |= _ids_of_parameters(optimizer)
        return unscale(scaler, optimizer)

    def _is_scaled(self, params: Sequence[torch.Tensor], most: float = 0.0) -> bool:
        """Return whether the gradients of parameters have the factor of a GradScaler, and `most`, if given, has not."""
        mine = [p for p in params if p.grad is not None]
        if not mine or self.scaler is None or any(id(p) in self.unscaled for p in mine):
            return False
        factor = float(self.scale_of(self.scaler))
        return factor != 1.0 and UNSCALED * most < factor and not self._is_divided_by_hand()

    def _is_divided_by_hand(self) -> bool:
        """Return whether a gradient has become much smaller since the backward pass: by the factor, or nearly."""
        if self.scaled_grad is None:
            return False
        param, largest, factor = self.scaled_grad
        return param.grad is not None and 0 < _largest(param.grad) < largest / math.sqrt(factor)

    def _begin_clip(self, params: Sequence[nn.Parameter], max_norm: Any, facts: dict[str, Any]) -> None:
        prints = self._prints_of(self._gradients(params), self._complete())
        facts["most"] = float(max_norm)
        facts["scaled"] = self._is_scaled(params, facts["most"])
        mine = [p for p in params if p.grad is not None]
        facts["flat"] = bool(mine) and all(id(p) in self.in_fsdp and not _is_sharded(p) for p in mine)
        facts["grads"] = {name: found[0] for name, found in prints.items() if found is not None}

    def _schedule(self, step: Callable[..., Any], scheduler: object, *args: Any, **kwargs: Any) -> Any:
        outermost = self._is_mine() and not self.in_schedule
        if not outermost or sys._getframe(2).f_code.co_name == "_initial_step":
            return step(scheduler, *args, **kwargs)
        self.in_schedule = True
        try:
            return step(scheduler, *args, **kwargs)
        finally:
            self.in_schedule = False
            total = next((n for n in map(vars(scheduler).get, LENGTHS) if isinstance(n, int)), -1)
            self._quietly(lambda: self.note(Scheduled, name=type(scheduler).__name__, total=total))

    # data

    def _begin_loader(self, begin: Callable[..., Any], loader: object) -> Any:
        iterator = begin(loader)
        if self._is_mine():
            number, epoch = self.loaders.setdefault(loader, [len(self.loaders), -1])
            self.loaders[loader][1] = epoch + 1
            self.iterators[iterator] = number, epoch + 1
            self.fresh[iterator] = loader
        return iterator

    def _next(self, following: Callable[..., Any], iterator: object) -> Any:
        minibatch = following(iterator)
        if self._is_mine():
            self.progress += 1
            if not self.in_backward and self.begun.get("closure") is not True:
                self.depth, self.running = 0, None  # a pass or an update may have ended by an error
            self.loader = self.iterators.get(iterator, (-1, -1))
            self.minibatches[self.loader[0]] += 1
            if (loader := self.fresh.pop(iterator, None)) is not None:
                self._quietly(self._loader_begun, loader)
        return minibatch

    def _loader_begun(self, loader: Any) -> None:
        number, epoch = self.loader
        batches = loader.batch_sampler
        sampler = loader.sampler if batches is None else batches.sampler if type(batches) is BatchSampler else batches
        if isinstance(sampler, DistributedSampler) and dist.is_initialized():
            if sampler.num_replicas == dist.get_world_size():
                self.data_sets[number] = loader.dataset
        self.note(
            LoaderBegins,
            loader=number,
            epoch=epoch,
            sampler=_name_of_sampler(sampler),
            shuffles=bool(getattr(sampler, "shuffle", isinstance(sampler, RandomSampler))),
            sampler_epoch=self.orders.get(sampler, -1),
            num_examples=-1 if getattr(sampler, "replacement", False) else _len(loader.dataset),
            repeats_at_random=_repeats_at_random(loader.dataset),
            num_batches=_len(loader),
            workers=loader.num_workers,
            iterable=isinstance(loader.dataset, IterableDataset),
            **(_facts_of_parts(sampler) if type(sampler) is DistributedSampler else {}),
            epochs_set=self.epochs_set.get(sampler, 0),
        )

    def _set_epoch(self, set_epoch: Callable[..., None], sampler: Any, epoch: int) -> None:
        if self._is_mine():
            self.epochs_set[sampler] = self.epochs_set.get(sampler, 0) + 1
        set_epoch(sampler, epoch)

    def _shuffle(self, begin: Callable[..., Any], sampler: Any) -> Any:
        if self._is_mine():
            self.orders[sampler] = sampler.epoch if isinstance(sampler.epoch, int) else -1
        return begin(sampler)

    def _read_data_sets(self) -> None:
        """Write the digests of two examples of each data set whose examples do not change from one time to another.

        A random flip, applied half of the time, can look constant: in one of 16,000 data sets.
        """
        self.reads_examples = True  # what the data set opens and saves now is not the script's doing
        ends_at = time.monotonic() + READING_S
        for number, data in self.data_sets.items():
            if (n := _len(data)) > 0:
                seen = set[tuple[str, ...]]()
                for _ in range(READINGS_OF_AN_EXAMPLE):
                    seen.add(tuple(self._digest(data[i]) for i in (0, n - 1)))
                    if time.monotonic() > ends_at:
                        return
                if len(seen) == 1 and "" not in (items := seen.pop()):
                    labels = tuple(self._digest_of_label(data[i]) for i in (0, n - 1))
                    chosen = _digest_of_numbers(data.indices) if isinstance(data, Subset) else ""
                    self.note(DataSet, loader=number, items=items, labels=labels, chosen=chosen)

    def _digest(self, example: object) -> str:
        tensor = first_tensor([example])
        with torch._C.DisableTorchFunction():
            return "" if tensor is None else tensor_digest(tensor)

    def _digest_of_label(self, example: object) -> str:
        """Return a digest of the numbers, texts and tensors of whole numbers after the first part of an example."""
        parts = _sequence(example)[1:] if isinstance(example, list | tuple | dict) else []
        with torch._C.DisableTorchFunction():
            tensors = [tensor_digest(p) for p in parts if isinstance(p, torch.Tensor) and _is_label(p)]
            return "/".join([*tensors, *(repr(p) for p in parts if isinstance(p, int | float | str))])

    # files and groups

    def _save(self, save: Callable[..., Any], obj: object, f: object, *args: Any, **kwargs: Any) -> Any:
        self._quietly(self._saved, obj, f)
        return save(obj, f, *args, **kwargs)

    def _saved(self, obj: object, f: object) -> None:
        if (
            not self.reads_examples
            and (path := _path_of(f))
            and os.path.isabs(path)
            and (os.path.isfile(path) or not os.path.exists(path))
        ):
            states = [found for found in (obj, *_sequence(obj)) if _is_state(found)]
            names = [str(name) for state in states for name in state]
            on_gpu = any(t.device.type == "cuda" for state in states for t in state.values())
            prefix = next((p for p in PREFIXES if names and all(name.startswith(p) for name in names)), "")
            if prefix == PREFIXES[0] and not any(names[0] in _names_of(wrapper) for wrapper in self._wrappers()):
                prefix = ""  # of a class of the script's own
            self.note(Saved, path=path, on_gpu=on_gpu, prefix=prefix, calls=self._calls())

    def _wrappers(self) -> Sequence[nn.Module]:
        return [*self.ddps, *(module for module in self.modules if isinstance(module, nn.DataParallel))]

    def _apply(self, apply: Callable[..., Any], parallel: Any, replicas: Any, *args: Any, **kwargs: Any) -> Any:
        before = [_counts(replica) for replica in replicas[1:]]
        outputs = apply(parallel, replicas, *args, **kwargs)
        changed = {
            name
            for replica, was in zip(replicas[1:], before, strict=True)
            for name, value in _counts(replica).items()
            if name in was and value == was[name] + 1  # others may be written and read in one pass
        }
        if self._is_mine() and (new := changed - self.lost_names):
            self.lost_names |= new
            self._quietly(lambda: self.note(LostAttributes, names=tuple(sorted(new))))
        return outputs

    def _opened(self, path: str, mode: str) -> None:
        if self.pid == os.getpid() and not self.reads_examples:  # a log may be written by a thread of its own
            self.note(Opened, path=path, mode=mode, calls=self._calls())

    def _load(self, load: Callable[..., Any], f: object, map_location: object = None, *args: Any, **kwargs: Any) -> Any:
        loaded = load(f, map_location, *args, **kwargs)
        self._quietly(self._loaded, f, map_location, loaded)
        return loaded

    def _loaded(self, f: object, map_location: object, loaded: object) -> None:
        if self.reads_examples:
            return
        states = [found for found in (loaded, *_sequence(loaded)) if _is_state(found)]
        devices = tuple(sorted({str(t.device) for state in states for t in state.values()}))
        is_mapped = map_location is not None
        self.note(Loaded, path=_path_of(f), mapped=is_mapped, devices=devices, calls=self._calls())

    def _load_state(self, load: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        found = load(module, *args, **kwargs)
        self._quietly(self._look_for_loaded, module, args[0] if args else kwargs.get("state_dict"), found)
        return found

    def _look_for_loaded(self, module: nn.Module, state: Mapping[str, Any], found: Any) -> None:
        # none was known, so that all of the module's own are missing; to ask a sharded module for them would gather it
        if state and found and len(found.unexpected_keys) == len(state) and found.missing_keys:
            facts = {"name": str(next(iter(state))), "own": found.missing_keys[0]}
            self.not_loaded[id(module)] = module, facts | {"place": _place_now(), "step": self.step + self.step_is_over}
        elif state and self.not_loaded:  # it was tried again, with other names
            parts = set(map(id, module.modules()))
            for number, (other, _) in list(self.not_loaded.items()):
                if number in parts or id(module) in set(map(id, other.modules())):
                    del self.not_loaded[number]

    def _note_not_loaded(self) -> None:
        while self.not_loaded:
            _, (_, facts) = self.not_loaded.popitem()
            self.note(NothingLoaded, **facts)

    def _calls_itself(self) -> bool:
        return self._is_mine() and not self.in_backward and self.running is None

    def _put_together(self, name: str, tensor: torch.Tensor | None, **facts: Any) -> None:
        if self.depth:
            self._quietly(lambda: self.note(Reduced, name=name, in_forward=True, **facts))
        elif name in TOGETHER or name.startswith("all_to_all"):
            self._quietly(lambda: self.note(Reduced, name=name, values=_few_values(tensor), **facts))

    def _calls(self) -> int:
        """Return how often the rank has done something together with others, as far as was seen."""
        return self.own_collectives.calls + self.all_passes + len(self.ddps)

    def _may_end_earlier(self, enter: Callable[..., Any], join: object) -> Any:
        self._quietly(lambda: self.note(JoinBegins))
        self._count_anew()
        return enter(join)

    def _join_ends(self, leave: Callable[..., Any], join: object, *args: Any) -> Any:
        left = leave(join, *args)
        self._count_anew()
        return left

    def _count_anew(self) -> None:
        """Count the backward passes from 0: in a Join, some ranks make fewer of them."""
        if self._is_mine():
            self.joins, self.passes, self.hand_passes = self.joins + 1, 0, 0

    def _join_group(self, join: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        join(*args, **kwargs)
        self._quietly(lambda: self.note(Joined, backend=str(dist.get_backend()), size=dist.get_world_size()))


def _print(tensor: torch.Tensor, complete: bool = True) -> Print:
    with torch._C.DisableTorchFunction():
        return tensor_print(tensor, complete)


def _inner(module: nn.Module) -> Any:
    """Return the module that DistributedDataParallel or `torch.compile` has wrapped."""
    while isinstance(module, DistributedDataParallel) or "_orig_mod" in module._modules:
        module = module.module if isinstance(module, DistributedDataParallel) else module._modules["_orig_mod"]  # type: ignore
    return module


def _itemsize(dtype: str) -> int:
    found = getattr(torch, dtype, None)
    return found.itemsize if isinstance(found, torch.dtype) else 0


def _unscales(optimizer: Any) -> bool:
    """Return whether an optimizer takes the factor of a GradScaler out itself, as the fused ones do."""
    return hasattr(optimizer, "grad_scale") or bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def _counts(module: nn.Module) -> dict[str, int]:
    """Return {name: value} of the whole numbers that a module and its parts have as attributes."""
    return {
        f"{prefix}.{name}".lstrip("."): value
        for prefix, part in module.named_modules()
        for name, value in vars(part).items()
        if type(value) is int and not name.startswith("_")
    }


def _learning(seen: nn.Module | list[Any]) -> dict[str, torch.Tensor]:
    """Return {name: tensor} of what learns: in a module, or below the tensors of a backward pass."""
    if isinstance(seen, nn.Module):
        return {name: p for name, p in _inner(seen).named_parameters() if p.requires_grad}
    return {f"tensor {i}": leaf for i, leaf in enumerate(leaves_of(seen))}


def _ids_of_parameters(holder: Any) -> set[int]:
    """Return the ids of what an optimizer or a module holds."""
    if isinstance(holder, nn.Module):
        return set(map(id, holder.parameters()))
    return {id(p) for group in getattr(holder, "param_groups", ()) for p in group["params"]}


def _repeats_at_random(dataset: object) -> bool:
    """Return whether a data set, such as one of webdataset, draws its parts with replacement."""
    return any("Resampled" in type(part).__name__ for part in (dataset, *_sequence(getattr(dataset, "pipeline", []))))


def _is_sharded(tensor: torch.Tensor) -> bool:
    return type(tensor) not in PLAIN and hasattr(tensor, "_local_tensor")  # a DTensor


def _name_of_sampler(sampler: object) -> str:
    """Return the name of a sampler's type; a type that only has the name of PyTorch's gets its module's, too."""
    kind = type(sampler)
    is_other = kind.__name__ == "DistributedSampler" and kind is not DistributedSampler
    return f"{kind.__module__}.{kind.__name__}" if is_other else kind.__name__


def _facts_of_parts(sampler: DistributedSampler[Any]) -> dict[str, int]:
    """Return how a DistributedSampler divides the examples; it gives some twice, so that all ranks have as many."""
    repeats = 0 if sampler.drop_last else max(0, sampler.total_size - _len(sampler.dataset))
    seed = int(sampler.seed) if sampler.num_replicas > 1 else -1
    return {"repeats": repeats, "seed": seed, "parts": sampler.num_replicas, "part": sampler.num_samples}


def _digest_of_numbers(numbers: Iterable[int]) -> str:
    return tensor_digest(torch.tensor([int(number) for number in numbers]))


def _is_label(tensor: torch.Tensor) -> bool:
    return tensor.numel() == 1 or not (tensor.is_floating_point() or tensor.is_complex())


def _few_values(tensor: torch.Tensor | None) -> tuple[float, ...]:
    """Return the real numbers of a tensor that has few; () of any other."""
    if tensor is None or tensor.numel() > MOST_COUNTS or tensor.is_complex() or tensor.layout is not torch.strided:
        return ()
    return tuple(map(float, tensor.flatten().tolist()))


def _names_of(module: nn.Module) -> set[str]:
    return {name for name, _ in (*module.named_parameters(), *module.named_buffers())}


def _largest(tensor: torch.Tensor) -> float:
    """Return the largest absolute value of a gradient; 0 of one that is empty or sparse."""
    return float(tensor.detach().abs().max()) if tensor.layout is torch.strided and tensor.numel() else 0.0


def _len(thing: Any) -> int:
    try:
        return len(thing)
    except (TypeError, NotImplementedError):
        return -1


def _sequence(value: object) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list | tuple) else [value]


def _is_state(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(t, torch.Tensor) for t in value.values())


def _path_of(f: object) -> str:
    """Return the absolute path of a file that is given as a path or is open; "" for all else."""
    f = f if isinstance(f, str | os.PathLike) else getattr(f, "name", None)
    return os.path.realpath(f) if isinstance(f, str | os.PathLike) else ""
