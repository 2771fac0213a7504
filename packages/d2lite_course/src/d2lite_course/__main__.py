"""`d2lite-course hand-out OUT --chapters 1,2,4,5` writes a students' book without the answers; `grade` grades it.

`d2lite-course grade FOLDER --course OUT` grades what comes back. With `hand-out`, `--format nbgrader` and `--format
otter` also write what these two programs need to grade in the same way. `python -m d2lite course` and
`python -m d2lite grade` are the same commands.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

__all__ = ["grade_main", "hand_out_main", "main"]


def hand_out_main(arguments: Sequence[str], program: str = "d2lite-course hand-out") -> None:
    """Write a course for students, and print where its parts are."""
    parser = argparse.ArgumentParser(
        program, description="Write a students' book without answers, and the teacher's copy, into a folder."
    )
    parser.add_argument("folder")
    parser.add_argument("--chapters", default="", help="for example 2,4,5; default: those that the course has")
    parser.add_argument("--format", choices=("nbgrader", "otter"), help="also write what this program needs")
    _run_command(program, _hand_out, parser.parse_args(arguments))


def grade_main(arguments: Sequence[str], program: str = "d2lite-course grade") -> None:
    """Grade a folder of submissions, and print where the scores are."""
    parser = argparse.ArgumentParser(
        program,
        description="Grade the submissions of a course: a folder with a notebook, .zip or folder for each learner.",
    )
    parser.add_argument("folder")
    parser.add_argument("--course", required=True, help="the folder that the students' book was written into")
    parser.add_argument("--chapters", default="", help="for example 2; default: all chapters of the course")
    parser.add_argument("--out", help="folder of the scores; default: grades/FOLDER in the course")
    parser.add_argument("--jobs", type=int, default=0, help="submissions at the same time; default: half of the cores")
    parser.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run submissions with all your rights, where no sandbox works"
    )
    _run_command(program, _grade, parser.parse_args(arguments))


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the first argument names: hand-out, or grade."""
    command, *rest = sys.argv[1:] if arguments is None else arguments or [""]
    commands = {"hand-out": hand_out_main, "grade": grade_main}
    if command not in commands:
        sys.exit(f"d2lite-course: expected hand-out or grade, got {command!r}. Add --help to either.")
    commands[command](rest)


def _run_command(program: str, command: Callable[[argparse.Namespace], None], given: argparse.Namespace) -> None:
    try:
        command(given)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"{program}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _hand_out(given: argparse.Namespace) -> None:
    from d2lite_course import export_nbgrader, export_otter, hand_out

    course, refused = hand_out(given.folder, _numbers(given.chapters))
    print(f"Students get {course.students}: open its folder book. {course.teacher} has everything, for you alone.")
    print(f"Points and dates are in {course.settings_file}: edit them, then write the course again.")
    for name, why in refused.items():
        print(f"Exercise {name} has no check there: {why}.")
    for chapter, needed in course.needed_chapters().items():
        print(f"Chapter {chapter} needs {' and '.join(map(str, needed))}, which this course does not have.")
    for name, export in {"nbgrader": export_nbgrader, "otter": export_otter}.items():
        if name == given.format or (course.path / name).is_dir():  # what is there gets the new points, too
            print(f"For {name}: {export(course)}. docs/teaching.md has its commands.")


def _grade(given: argparse.Namespace) -> None:
    from d2lite_course import grade

    wanted = {"chapters": _numbers(given.chapters), "jobs": given.jobs, "sandbox": not given.unsafe_no_sandbox}
    scores = grade(given.folder, given.course, given.out, **wanted)
    print(f"The scores are in {scores}: scores.html, scores.csv, scores.json, and gradescope/ for each submission.")


def _numbers(chapters: str) -> list[int]:
    numbers = chapters.replace(",", " ").split()
    if not all(number.isdecimal() for number in numbers):
        raise ValueError(f"chapters: expected numbers such as 2,4,5, got {chapters!r}.")
    return [int(number) for number in numbers]


if __name__ == "__main__":
    main()
