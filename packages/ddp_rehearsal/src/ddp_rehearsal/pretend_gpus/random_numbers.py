"""Random numbers on pretend GPUs: each GPU has a generator of its own, as has the CPU.

The numbers are those that the CPU draws from the same seed: other ones than on real GPUs.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from ddp_rehearsal.pretend_gpus.devices import CPU, DeviceLike, as_device, gpu_index, number_of_gpus, replace

__all__ = ["DRAWS_RANDOM", "call_random", "pretend_random_numbers"]

# functions that draw from the default generator of their device, by themselves or in what they call
DRAWS_RANDOM = frozenset(
    "rand randn randint randperm rand_like randn_like randint_like normal normal_ uniform_ random_ exponential_ "
    "geometric_ cauchy_ log_normal_ bernoulli bernoulli_ binomial multinomial poisson _standard_gamma "
    "_sample_dirichlet dropout dropout_ dropout1d dropout2d dropout3d feature_dropout alpha_dropout "
    "feature_alpha_dropout rrelu rrelu_ gumbel_softmax fractional_max_pool2d fractional_max_pool3d "
    "scaled_dot_product_attention multi_head_attention_forward lstm gru rnn_tanh rnn_relu trunc_normal_ "
    "xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ sparse_ svd_lowrank "
    "pca_lowrank".split()
)
_locks = [threading.RLock()]  # the GPUs of several threads take turns with PyTorch's one generator


def _new_lock() -> None:
    _locks[0] = threading.RLock()  # another thread may have held the old one at the fork


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_new_lock)


class _KindOfGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    """isinstance(generator, torch.Generator) holds for those of PyTorch itself as well."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class PretendGenerator(torch._C.Generator, metaclass=_KindOfGenerator):
    """A generator of random numbers that says that it is on a GPU; the numbers are those of the CPU."""

    def __new__(cls, device: DeviceLike = "cpu") -> Any:
        """Make one on the CPU."""
        made: Any = torch._C.Generator.__new__(cls, CPU)  # type: ignore[call-arg]
        made.pretended = as_device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that it was made for."""
        return self.pretended  # type: ignore[attr-defined]


def _generator(device: DeviceLike = "cuda") -> Any:
    return torch.cuda.default_generators[gpu_index(device)]


def call_random(func: Callable[..., Any], gpu: torch.device, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that draws random numbers, with the generator of `gpu` in place of the CPU's."""
    if kwargs.get("generator") is not None:
        return func(*args, **kwargs)
    default, own = torch.default_generator, _generator(gpu)
    with _locks[0]:
        of_cpu = default.get_state()
        default.set_state(own.get_state())
        try:
            return func(*args, **kwargs)
        finally:
            own.set_state(default.get_state())
            default.set_state(of_cpu)


def _manual_seed(seed: int) -> None:
    _generator().manual_seed(int(seed))


def _manual_seed_all(seed: int) -> None:
    for generator in torch.cuda.default_generators:
        generator.manual_seed(int(seed))


def _seed() -> None:
    _generator().seed()


def _seed_all() -> None:
    _manual_seed_all(_generator().seed())  # torch.cuda.seed_all gives all GPUs the same one


def _set_rng_state(state: torch.Tensor, device: DeviceLike = "cuda") -> None:
    _generator(device).set_state(state)


def _set_rng_state_all(states: Any) -> None:
    for generator, state in zip(torch.cuda.default_generators, states, strict=False):
        generator.set_state(state)


def pretend_random_numbers() -> None:
    """Let each pretend GPU have a generator, and torch.cuda seed and read it; torch.manual_seed seeds all."""
    generators = tuple(PretendGenerator(f"cuda:{i}") for i in range(number_of_gpus()))
    functions: dict[str, Any] = {
        "manual_seed": _manual_seed,
        "manual_seed_all": _manual_seed_all,
        "seed": _seed,
        "seed_all": _seed_all,
        "initial_seed": lambda: _generator().initial_seed(),
        "get_rng_state": lambda device="cuda": _generator(device).get_state(),
        "get_rng_state_all": lambda: [generator.get_state() for generator in torch.cuda.default_generators],
        "set_rng_state": _set_rng_state,
        "set_rng_state_all": _set_rng_state_all,
    }
    replace(functions, torch.cuda, torch.cuda.random)
    torch.cuda.default_generators = generators
    torch.Generator = PretendGenerator  # type: ignore[misc]
