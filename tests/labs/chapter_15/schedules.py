"""Pipeline schedules drawn at random, and a second answer to whether a schedule can run."""

from collections import Counter
from graphlib import CycleError, TopologicalSorter

from d2lite.labs.chapter_15.pipeline_schedule import Pass

__all__ = ["can_run", "random_schedule"]


def random_schedule(random, num_microbatches, rank_of, most_held=None, split=None):
    """Return the passes of each rank after a random walk, in which any pass may come next that has what it needs.

    `rank_of[stage]` is the rank of a stage, `most_held` the most microbatches that a stage holds at a time, and `split`
    says whether a backward pass is I and W or B; by default it is drawn for each.
    """
    last, ranks = len(rank_of) - 1, [[] for _ in range(max(rank_of) + 1)]
    held = [0] * len(rank_of)
    state = {(stage, i): "" for stage in range(last + 1) for i in range(num_microbatches)}  # the kinds that have run
    while True:
        found = []
        for (stage, i), kinds in state.items():
            if kinds == "":
                has_room = most_held is None or held[stage] < most_held
                found += [("F", stage, i)] * (has_room and (stage == 0 or state[stage - 1, i] != ""))
            elif kinds == "F" and (stage == last or state[stage + 1, i] != "F" and state[stage + 1, i] != ""):
                found += [(kind, stage, i) for kind in {None: "BI", True: "I", False: "B"}[split]]
            elif kinds == "FI":
                found.append(("W", stage, i))
        if not found:
            return ranks
        kind, stage, i = random.choice(found)
        held[stage] += {"F": 1, "I": 0}.get(kind, -1)
        state[stage, i] += kind
        ranks[rank_of[stage]].append(Pass(kind, stage, i))


def can_run(schedule, num_stages, num_microbatches):
    """Return whether a schedule is complete and its order has no cycle."""
    counts = Counter(one for passes in schedule for one in passes)
    kinds = {(stage, i): set() for stage in range(num_stages) for i in range(num_microbatches)}
    for kind, stage, i in counts:
        if (stage, i) not in kinds:
            return False
        kinds[stage, i].add(kind)
    if set(counts.values()) != {1} or not all(found in ({*"FB"}, {*"FIW"}) for found in kinds.values()):
        return False
    homes = {(one.stage, rank) for rank, passes in enumerate(schedule) for one in passes}
    if len(homes) != num_stages:
        return False
    graph = TopologicalSorter()
    for passes in schedule:
        for before, after in zip(passes, passes[1:], strict=False):
            graph.add(after, before)
    for (stage, i), found in kinds.items():
        gradient = "B" if "B" in found else "I"
        graph.add((gradient, stage, i), ("F", stage, i))
        if gradient == "I":
            graph.add(("W", stage, i), ("I", stage, i))
        if stage:
            graph.add(("F", stage, i), ("F", stage - 1, i))
            graph.add(("B" if "B" in kinds[stage - 1, i] else "I", stage - 1, i), (gradient, stage, i))
    try:
        graph.prepare()
    except CycleError:
        return False
    return True
