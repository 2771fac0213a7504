"""How a process of a rehearsal begins: as a rank of torchrun, as the script alone, or as a program of the script.

A rank of torchrun is a rank from its beginning. A script that starts its ranks itself is one process, "main", whose
processes become ranks when they join a process group.
"""

import atexit
import os
import sys
from typing import Any

from ddp_rehearsal.observations import MAIN, rank_name
from ddp_rehearsal.own_ranks import follow_own_ranks, look_for_own_ranks
from ddp_rehearsal.rank_process import RankProcess
from notebook_ranks.rank_seed import seed_rank

__all__ = ["observe_program", "run_alone", "run_rank"]


def run_rank(rank: int, request: dict[str, Any]) -> None:
    """Run the script of a request as a rank that torchrun has started; never return.

    The request has "folder", "script", "arguments", "steps", "pretend" (a number of GPUs, 0 for none) and "seed": None,
    or the first seed of rank 0, that + 1 of rank 1, and so on; rank 0 then writes samples of the tensors.
    """
    process = RankProcess(request)
    process.become(rank_name(rank))
    seed_rank(None if request["seed"] is None else request["seed"] + rank)
    process.begin()
    if request["may_change"]:
        look_for_own_ranks(process)
    process.run_script()


def run_alone(request: dict[str, Any]) -> None:
    """Run the script of a request as one process, which may start ranks of its own; never return."""
    process = RankProcess(request)
    process.become(MAIN)
    seed_rank(request["seed"])
    process.begin()
    follow_own_ranks(process)
    process.run_script()


def observe_program(request: dict[str, Any]) -> None:
    """Observe this process, a program that the script has started, which may become a rank."""
    process = RankProcess(request)
    process.begin()
    follow_own_ranks(process)
    failed: list[BaseException] = []
    show = sys.excepthook

    def note_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        show(kind, error, trace)
        failed.append(error)

    def end() -> None:
        if process.name and process.observer.pid == os.getpid():
            process.end(*failed)

    sys.excepthook = note_error
    atexit.register(end)
