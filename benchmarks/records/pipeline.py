"""The bubble and the memory of a pipeline on two real ranks, against formula, prediction and plan.

`python -m benchmarks.records.pipeline --save pipeline-2-cores` measures GPipe and 1F1B with 1 to 8 microbatches of the
book's transformer: the fastest of a number of steps, its bubble, and the bytes of activations that each rank holds.
"""

import argparse

import torch
import torch.distributed as dist

from benchmarks.report import RESULTS, keep, machine, markdown_row
from d2lite import Transformer, Workers
from d2lite.costs import bubble_formula, bubble_of, gpipe, microbatches_held, one_f_one_b, predict_pipeline
from d2lite.profiling import Recorder, activations_held, merged_step
from d2lite.training import my_stage, run_passes

__all__ = ["main", "table"]

SCHEDULES = {"GPipe": gpipe, "1F1B": one_f_one_b}
BATCH_SIZE, CONTEXT, RANKS = 64, 64, 2


def steps_on_rank(name, num_microbatches, num_steps):
    """Return this rank's events of each step."""
    stage, recorder = my_stage(Transformer()), Recorder(dist.get_rank())
    X, y = torch.randint(0, 96, (2, BATCH_SIZE, CONTEXT))
    passes = SCHEDULES[name](dist.get_rank(), RANKS, num_microbatches)
    for _ in range(num_steps):
        dist.barrier()
        recorder.begin()
        run_passes(stage, passes, X, y, num_microbatches, None, recorder)
        recorder.end()
    return recorder.steps


def held_on_rank(name, num_microbatches):
    """Return (bytes of activations at the fullest moment, bytes of one microbatch, microbatches by the plan)."""
    rank, stage = dist.get_rank(), my_stage(Transformer())
    X, y = torch.randint(0, 96, (2, BATCH_SIZE, CONTEXT))
    passes = SCHEDULES[name](rank, RANKS, num_microbatches)
    with activations_held(stage.parameters()) as held:
        run_passes(stage, passes, X, y, num_microbatches)
    one = BATCH_SIZE // num_microbatches
    with activations_held(stage.parameters()) as held_of_one:
        run_passes(stage, gpipe(rank, RANKS, 1), X[:one], y[:one], 1)
    return held.most_n_bytes, held_of_one.most_n_bytes, microbatches_held(passes)


def length_of(events):
    """Return the seconds from the first event to the end of the last."""
    return max(event.end_s for event in events) - min(event.start_s for event in events)


def mean_pass(events, rank, kind):
    """Return the mean seconds of the passes of one kind on one rank."""
    seconds = [event.end_s - event.start_s for event in events if (event.rank, event.kind) == (rank, kind)]
    return sum(seconds) / len(seconds)


def measured(workers, name, num_microbatches, num_steps):
    """Return one row as a dictionary."""
    recorded = workers.run(steps_on_rank, name, num_microbatches, num_steps)
    events = min((merged_step(recorded, i) for i in range(1, num_steps)), key=length_of)
    costs = [[mean_pass(events, rank, kind) for rank in range(RANKS)] for kind in ("forward", "backward")]
    drawn = predict_pipeline([SCHEDULES[name](rank, RANKS, num_microbatches) for rank in range(RANKS)], *costs)
    held = workers.run(held_on_rank, name, num_microbatches)
    return {
        "schedule": name,
        "microbatches": num_microbatches,
        "step_s": length_of(events),
        "predicted_step_s": length_of(drawn),
        "bubble": bubble_of(events),
        "predicted_bubble": bubble_of(drawn),
        "formula": bubble_formula(RANKS, num_microbatches),
        "held_n_bytes": [most for most, _, _ in held],
        "planned_n_bytes": [one * planned for _, one, planned in held],
    }


def table(rows):
    """Return the rows as a table in Markdown."""
    head = ["schedule", "microbatches", "step", "predicted from its passes", "bubble", "predicted", "formula"]
    head += ["rank 0 holds", "planned", "rank 1 holds", "planned"]
    lines = [markdown_row(head), markdown_row(["---"] + ["---:"] * (len(head) - 1))]
    for row in rows:
        cells = [row["schedule"], str(row["microbatches"]), f"{1e3 * row['step_s']:.0f} ms"]
        cells += [f"{1e3 * row['predicted_step_s']:.0f} ms", f"{row['bubble']:.3f}", f"{row['predicted_bubble']:.3f}"]
        cells.append(f"{row['formula']:.3f}")
        for most, planned in zip(row["held_n_bytes"], row["planned_n_bytes"], strict=True):
            cells += [f"{most / 1e6:.2f} MB", f"{planned / 1e6:.2f} MB"]
        lines.append(markdown_row(cells))
    return "\n".join(lines)


def main(argv=None):
    """Measure, print the table, and keep it if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.pipeline", description=__doc__)
    parser.add_argument("--steps", type=int, default=12, help="how many steps are taken; the fastest counts")
    parser.add_argument("--microbatches", type=int, nargs="*", default=[1, 2, 4, 8], help="into how many")
    parser.add_argument("--save", metavar="NAME", help="keep it in benchmarks/results/NAME.json and .md")
    args = parser.parse_args(argv)
    facts = machine()
    with Workers(RANKS, timeout_s=60) as workers:
        workers.backend = "gloo"
        rows = [measured(workers, name, m, args.steps) for name in SCHEDULES for m in args.microbatches]
    print(table(rows))
    if args.save:
        command = f"python -m benchmarks.records.pipeline --save {args.save}"
        keep(args.save, command, facts, {"rows": rows})
        words = " · ".join(f"{name} {value}" for name, value in facts.items())
        (RESULTS / f"{args.save}.md").write_text(f"`{command}`\n\n{words}\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
