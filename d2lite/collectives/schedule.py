"""Schedules: who sends which chunk to whom, step by step; plain lists, no tensors.

A schedule is a list of steps, a step a list of moves that are made at the same time. Schedules are put together from
smaller ones: one after the other by `+`, or by the functions here.
"""

from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

__all__ = ["Move", "Plan", "at_once", "backwards", "relabel", "side_by_side"]


class Move(NamedTuple):
    """Device `src` sends its `chunk` to device `dst`; all three count from 0."""

    src: int
    dst: int
    chunk: int


@dataclass(frozen=True)
class Plan:
    """A whole collective for a list of chunks: first they are added up (`reduce`), then handed on (`spread`).

    `reduce` and `spread` are schedules: what comes is added in the one, and takes the old one's place in the other.
    `owners[c]` is the device that has the whole of chunk c in between.
    """

    owners: list
    reduce: list
    spread: list


def relabel(steps, devices=None, chunks=None):
    """Return a schedule with device i renamed to devices[i], and chunk c to all of the list chunks[c]."""
    devices = devices or range(1 + max((max(m.src, m.dst) for moves in steps for m in moves), default=0))
    chunks = chunks or [[c] for c in range(1 + max((m.chunk for moves in steps for m in moves), default=0))]
    return [[Move(devices[m.src], devices[m.dst], c) for m in moves for c in chunks[m.chunk]] for moves in steps]


def side_by_side(*schedules):
    """Return schedules made at the same time: the moves of all their first steps, of all their second ones, ..."""
    return [[move for moves in together for move in moves] for together in zip_longest(*schedules, fillvalue=[])]


def at_once(steps):
    """Return a schedule in which all moves of `steps` are made in a single step."""
    return [[move for moves in steps for move in moves]] if steps else []


def backwards(steps):
    """Return a schedule run backwards, the last step first and each move from dst to src: a reduce of a broadcast."""
    return [[Move(m.dst, m.src, m.chunk) for m in moves] for moves in reversed(steps)]
