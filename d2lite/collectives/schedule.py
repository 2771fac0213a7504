"""Schedules: which device sends which chunk to which device, step by step; plain lists, no tensors.

A schedule is a list of steps. A step is a list of moves that are made at the same time. Schedules are combined from
smaller ones: one after the other with `+`, or with the functions of this file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

__all__ = ["Move", "Plan", "Schedule", "in_one_step", "relabel", "reverse", "side_by_side"]


class Move(NamedTuple):
    """Device `src` sends its `chunk` to device `dst`; all three count from 0."""

    src: int
    dst: int
    chunk: int


Schedule = list[list[Move]]


@dataclass(frozen=True)
class Plan:
    """A complete collective on a list of chunks: first they are reduced (`reduce_steps`), then copied (`copy_steps`).

    The receiver adds a chunk to its own in `reduce_steps` and replaces its own in `copy_steps`. Between the two,
    device `owners[c]` holds the complete sum of chunk c.
    """

    owners: list[int]
    reduce_steps: Schedule
    copy_steps: Schedule


def relabel(steps: Schedule, devices: Sequence[int], chunks: Sequence[Sequence[int]] | None = None) -> Schedule:
    """Return a schedule with device i renamed to devices[i], and chunk c replaced by all chunks of chunks[c]."""
    chunks = chunks or [[c] for c in range(1 + max((m.chunk for moves in steps for m in moves), default=0))]
    return [[Move(devices[m.src], devices[m.dst], c) for m in moves for c in chunks[m.chunk]] for moves in steps]


def side_by_side(*schedules: Schedule) -> Schedule:
    """Return the schedules run at the same time: step s holds the moves of step s of each of them."""
    return [[move for moves in together for move in moves] for together in zip_longest(*schedules, fillvalue=[])]


def in_one_step(steps: Schedule) -> Schedule:
    """Return a schedule in which all moves of `steps` are made in a single step."""
    return [[move for moves in steps for move in moves]] if steps else []


def reverse(steps: Schedule) -> Schedule:
    """Return the last step first, each move from dst to src: the reverse of a broadcast is a reduce."""
    return [[Move(m.dst, m.src, m.chunk) for m in moves] for moves in reversed(steps)]
