"""`ProcessGroupNCCL` and its options, NCCL's names in a profile and its words for a time-out: all stand for gloo's."""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from ddp_rehearsal.pretend_gpus.said_once import say_once

__all__ = ["PretendNCCLGroup", "pretend_blocking_wait", "pretend_profiles"]

NOT_SET = -(2**31)  # what NCCL has in place of a number that it chooses itself
SETTINGS = "blocking cga_cluster_size min_ctas max_ctas cta_policy split_share traffic_class host_cft_mode".split()
GLOO_TIMEOUT = "Operation timed out!"
TIMEOUT = "[Rank {}] Watchdog caught collective operation timeout: the time that was given to wait() is over."
PROFILE = "a profile has the CPU's times, and no kernels."


class NCCLOptions:
    """`ProcessGroupNCCL.Options`: how NCCL would send. gloo sends, so that they change nothing."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config = SimpleNamespace(**dict.fromkeys(SETTINGS, NOT_SET))
        self.split_from, self.split_color, self.lazy_init = None, 0, False


class PretendNCCLGroup:
    """`ProcessGroupNCCL`: a group of gloo."""

    Options = NCCLOptions
    NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO = 0, 1, 2

    def __new__(cls, store: Any, rank: int, size: int, options: NCCLOptions | None = None) -> Any:
        return dist.ProcessGroupGloo(store, rank, size)


def pretend_profiles(is_nccl: Callable[[], bool]) -> None:
    """Let profiles of a process have NCCL's names for what gloo sends, if `is_nccl()`, and no kernels of a GPU."""
    profile: Any = torch.autograd.profiler.profile
    make, parse = profile.__init__, profile._parse_kineto_results

    def make_on_cpu(self: Any, *args: Any, use_device: Any = None, **kwargs: Any) -> None:
        if use_device == "cuda":
            say_once(PROFILE)
        make(self, *args, use_device=None if use_device == "cuda" else use_device, **kwargs)

    def parse_named(self: Any, *args: Any, **kwargs: Any) -> Any:
        events = parse(self, *args, **kwargs)
        for event in events if is_nccl() else ():
            if event.name.startswith("gloo:"):
                event.name = event.name.replace("gloo:", "nccl:", 1)
        return events

    profile.__init__, profile._parse_kineto_results = make_on_cpu, parse_named


def pretend_blocking_wait(has_nccl: Callable[[], bool]) -> None:
    """Let `wait(timeout)` of a process with TORCH_NCCL_BLOCKING_WAIT raise NCCL's error, if `has_nccl()`."""
    work: Any = dist.Work
    wait = work.wait

    def wait_as_nccl(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return wait(self, *args, **kwargs)
        except RuntimeError as error:
            if GLOO_TIMEOUT in str(error) and has_nccl() and os.environ.get("TORCH_NCCL_BLOCKING_WAIT") == "1":
                raise dist.DistBackendError(TIMEOUT.format(dist.get_rank())) from error
            raise

    work.wait = wait_as_nccl
