"""Record what the solution and the mistakes of exercises give, so that they can be handed out without their code."""

import contextlib
import secrets
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from d2lite.exercises import specifications
from d2lite.exercises.as_data import arguments_as_data, as_data
from d2lite.exercises.exercise import Exercise
from d2lite.exercises.handed_out import HandedOut, Hint, Recorded
from d2lite.exercises.learner_pool import quiet_pool
from d2lite.exercises.observed import observed
from d2lite.workers import Workers

__all__ = ["handed_out_exercises"]


def handed_out_exercises(exercises: Sequence[Exercise], num_draws: int = 0) -> list[HandedOut]:
    """Return exercises without their code: the solutions and the mistakes are run in all cases, on ranks if need be.

    Args:
        exercises: The exercises.
        num_draws: How often drawn cases are drawn; without, they are not part of the result.

    Raises:
        WrongSpecification: If a solution fails.
        TypeError: If arguments have no form as data.
    """
    sizes = {exercise.world_size for exercise in exercises} - {1}
    with contextlib.ExitStack() as stack:
        pools = {size: stack.enter_context(quiet_pool(size)) for size in sorted(sizes)}
        return [_without_code(exercise, num_draws, pools.get(exercise.world_size)) for exercise in exercises]


def _without_code(exercise: Exercise, num_draws: int, workers: Workers | None) -> HandedOut:
    names, required = exercise.parameters()
    fixed = exercise.cases()
    draws = []
    for _ in range(num_draws if exercise.draw is not None else 0):
        drawn = exercise.with_drawn_cases(secrets.randbits(64))
        draws.append([case for case in _cases_of(drawn, workers) if case["label"] not in fixed])
    return HandedOut(
        name=exercise.name,
        title=exercise.title,
        think=exercise.think,
        mistakes=tuple(Hint(m.wrong, m.think, m.never_ends) for m in exercise.mistakes),
        recorded=_cases_of(exercise, workers),
        draws=draws,
        names=names,
        required=required,
        world_size=exercise.world_size,
        limit_s=exercise.limit_s,
        observe=exercise.observe,
        near=exercise.near,
        parts={i: m.part for i, m in enumerate(exercise.mistakes) if m.part is not None},
    )


def _cases_of(exercise: Exercise, workers: Workers | None) -> list[Recorded]:
    cases = {label: arguments_as_data(args) for label, args in exercise.cases().items()}
    if workers is None:
        by_rank = [_results(exercise)]
    else:
        workers.run(specifications.search, list(specifications.__path__))
        by_rank = workers.run(_results, exercise)
    return [
        {
            "label": label,
            "args": args,
            "expected": [results[label][0] for results in by_rank],
            "mistakes": [results[label][1] for results in by_rank],
        }
        for label, args in cases.items()
    ]


def _results(exercise: Exercise) -> dict[str, tuple[Any, list[Any]]]:
    """Return {label: (what is expected, what each mistake gives)} as data; in a rank, of this rank."""
    rank = dist.get_rank() if exercise.world_size > 1 else 0
    found = {}
    for label in exercise.cases():
        rivals = [
            None if m.answer is None else as_data(observed(exercise.observe, m.answer, exercise.cases()[label]))
            for m in exercise.mistakes
        ]
        found[label] = as_data(exercise.expected(label, rank)), rivals
    return found
