"""`ddp-rehearsal --gpus 4 train.py`: run a script of your own for a few steps, and say what is wrong with it.

The GPUs are pretended where there are no real ones. `--same "--batch-size {256/k}"` also runs it on one GPU, with 256
in place of {256/k}, and compares the updates.

Exit codes: 0 without findings, or if the updates are shown to be the same; 1 with findings; 2 if it could not be run
to the last step, or if no update was seen.
`python -m ddp_rehearsal` and `python -m d2lite rehearse` are the same command.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None, program: str = "ddp-rehearsal") -> None:
    """Rehearse a script, print and write the reports, and end with the exit code."""
    parser = argparse.ArgumentParser(program, description="Run a script as torchrun would, and say what is wrong.")
    parser.add_argument("--gpus", type=int, default=2, help="ranks, each with one GPU; default: 2")
    parser.add_argument("--steps", type=int, default=20, help="updates after which the run ends; default: 20")
    parser.add_argument(
        "--patience", type=float, default=15.0, help="seconds in which ranks wait for each other that are a hang"
    )
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which the run ends in any case")
    parser.add_argument(
        "--same",
        metavar="ARGS",
        help="also run on 1 GPU, and compare; ARGS are further arguments, in which {256/k} is 256 on 1 GPU and 64 on 4",
    )
    parser.add_argument("--card", default="", help="pretend GPUs of this card: t4, v100, a100, h100, h200, 24GB, ...")
    parser.add_argument(
        "--allow",
        metavar="KIND",
        action="append",
        default=[],
        help="what the script does on purpose: findings of this kind (copies, examples, files, ...) become notes",
    )
    parser.add_argument("--format", choices=("text", "github"), default="text", help="github: annotations at the lines")
    parser.add_argument("--sarif", metavar="FILE", help="also write the report in SARIF, for editors and GitHub")
    parser.add_argument("--junit", metavar="FILE", help="also write the report as JUnit's XML")
    parser.add_argument("--baseline", metavar="FILE", help="fail if messages or memory of a step have grown since FILE")
    parser.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--html", metavar="FILE", help="also write the report as a page of its own")
    parser.add_argument("script", help="a Python file that torchrun could start")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    given = parser.parse_args(arguments)
    try:
        sys.exit(_rehearsed(given))
    except (ImportError, OSError, ValueError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(2)  # 1 says that something was found
    except KeyboardInterrupt:
        sys.exit(130)


def _rehearsed(given: argparse.Namespace) -> int:
    from ddp_rehearsal import rehearse, report_json, report_page, report_text
    from ddp_rehearsal.baseline import compare_with_baseline
    from ddp_rehearsal.ci_reports import report_github, report_junit, report_sarif
    from notebook_ranks.shared.files import replace_file

    options = {"patience_s": given.patience, "limit_s": given.limit, "same": given.same, "card": given.card}
    options["allow"] = given.allow
    found = rehearse(given.script, given.arguments, gpus=given.gpus, steps=given.steps, **options)
    if given.baseline:
        found = compare_with_baseline(found, Path(given.baseline))
    print(report_github(found) if given.format == "github" else report_text(found))
    files = {
        given.json: report_json,
        given.html: report_page,
        given.sarif: report_sarif,
        given.junit: report_junit,
    }
    for path, write in files.items():
        if path:
            replace_file(Path(path), write(found))
    return found.exit_code


if __name__ == "__main__":
    main()
