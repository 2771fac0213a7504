"""The bubble and the memory of a pipeline on two real ranks, against formula, prediction and plan.

`python -m benchmarks.records.pipeline --save pipeline-2-cores` measures GPipe and 1F1B with 1 to 8 microbatches of the
book's transformer: the fastest of a number of steps, its bubble, and the bytes of activations that each rank holds.
The functions are those of the chapter's cells.
"""

import argparse
from functools import partial

from benchmarks.records.chapter_code import chapter_code
from benchmarks.report import RESULTS, command_line, keep, machine, markdown_row
from d2lite import Transformer, Workers
from d2lite.labs.chapter_15 import bubble_formula, bubble_of, gpipe, microbatches_held, one_f_one_b, predict_pipeline

__all__ = ["main", "table"]

CHAPTER = "15-one-stage-after-the-other.ipynb"
SCHEDULES = {"GPipe": gpipe, "1F1B": one_f_one_b}
RANKS = 2


def measured(chapter, name, num_microbatches, num_steps, batch_size, width):
    """Return one row as a dictionary; `chapter` has the functions of the chapter's cells, {name: function}."""
    schedule, seconds_of_step, mean_pass = SCHEDULES[name], chapter["seconds_of_step"], chapter["mean_pass"]
    passes = [schedule(rank, RANKS, num_microbatches) for rank in range(RANKS)]
    events = chapter["fastest_step"](schedule, num_microbatches, batch_size, None, num_steps, width)
    costs = [[mean_pass(events, rank, kind) for rank in range(RANKS)] for kind in ("forward", "backward")]
    drawn = predict_pipeline(passes, *costs)
    held = chapter["workers"].run(chapter["held_on_rank"], schedule, num_microbatches, batch_size)
    return {
        "schedule": name,
        "microbatches": num_microbatches,
        "step_s": seconds_of_step(events),
        "predicted_step_s": seconds_of_step(drawn),
        "bubble": bubble_of(events),
        "predicted_bubble": bubble_of(drawn),
        "formula": bubble_formula(RANKS, num_microbatches),
        "held_n_bytes": [most for most, _ in held],
        "planned_n_bytes": [one * microbatches_held(mine) for (_, one), mine in zip(held, passes, strict=True)],
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
    parser.add_argument("--batch-size", type=int, default=64, help="pieces of text in a step; the chapter has 64")
    parser.add_argument("--width", type=int, default=128, help="features per character; the chapter's network has 128")
    parser.add_argument("--save", metavar="NAME", help="keep it in benchmarks/results/NAME.json and .md")
    args = parser.parse_args(argv)
    facts = machine()
    with Workers(RANKS, timeout_s=60) as workers:
        workers.backend = "gloo"
        # a rank gets functions of __main__ by value
        chapter = chapter_code(CHAPTER, {"__name__": "__main__", "workers": workers, "BATCH_SIZE": args.batch_size})
        chapter["my_stage"].__globals__["Transformer"] = partial(Transformer, width=args.width)
        rows = [
            measured(chapter, name, m, args.steps, args.batch_size, args.width)
            for name in SCHEDULES
            for m in args.microbatches
        ]
    print(table(rows))
    if args.save:
        command = command_line("benchmarks.records.pipeline", argv)
        keep(args.save, command, facts, {"rows": rows})
        words = " · ".join(f"{name} {value}" for name, value in facts.items())
        (RESULTS / f"{args.save}.md").write_text(f"`{command}`\n\n{words}\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
