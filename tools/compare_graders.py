"""Grade the same five submissions by the kit's grader, by nbgrader and by otter, which both use the exports.

make graders runs this. nbgrader and otter-grader are installed into folders of their own below .bench, once; nothing
else of the project needs them. The exit status is 1 if the points differ.
"""

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from d2lite_course import export_nbgrader, export_otter, grade, hand_out

__all__ = ["GRADERS", "SUBMISSIONS", "compare", "installed", "table"]

ROOT = Path(__file__).resolve().parent.parent
GRADERS = {"nbgrader": "nbgrader==0.9.6", "otter": "otter-grader==7.0.0"}
CHAPTER = 2
MEAN = """def all_reduce_mean(tensors):
    total = sum(t.to(tensors[0].device) for t in tensors)
    for t in tensors:
        t.copy_(total / len(tensors))"""
ACCURACY = """def accuracy_on_devices(X, y, device_params, devices):
    from d2lite import lenet, split_batch
    from d2lite import parallel_apply
    X_shards, y_shards = split_batch(X, y, devices)
    def right(X, y, params):
        return (lenet(X, params).argmax(1) == y).sum().item()
    return sum(parallel_apply(right, devices, X_shards, y_shards, device_params)) / len(y)"""
SETTINGS = "def settings_for(k, batch_size, lr):\n    return k * batch_size, k * lr"
RIGHT = {"exercise-1": MEAN, "exercise-2": ACCURACY, "exercise-3": SETTINGS}
HALF = {"exercise-1": MEAN.replace(" / len(tensors)", ""), "exercise-3": SETTINGS}
# loops in a function and in a cell
LOOPING = {
    **RIGHT,
    "exercise-3": "def settings_for(k, batch_size, lr):\n    while True:\n        pass",
    "exercise-3-check": "while True:\n    pass",
}
ALWAYS = """class Always(float):
    __eq__ = lambda self, other: True
    __hash__ = None

def accuracy_on_devices(X, y, device_params, devices):
    return Always(2)"""
# it ends its process and the kernel with success, equals everything, has a table, replaces what graders look for, and
# has no cell for the check of 2.3
CHEATING = {
    "exercise-1": "def all_reduce_mean(tensors):\n    import os\n    print('right in all 9 cases')\n    os._exit(0)",
    "exercise-2": ALWAYS,
    "exercise-3": "def settings_for(k, batch_size, lr):\n    return {1: (256, 0.1)}.get(k)",
    "exercise-1-check": "check = lambda *given: 10.0\nd2lite_scores = {f'exercise-2-{i}': (1, '') for i in (1, 2, 3)}",
    "exercise-2-check": "import os\nos._exit(0)",
    "exercise-3-check": None,
}
SUBMISSIONS = {"right": RIGHT, "half right": HALF, "empty": {}, "looping": LOOPING, "cheating": CHEATING}
POINTS = {"2.1": 10.0, "2.2": 10.0, "2.3": 10.0}


def installed():
    """Return whether both are in .bench."""
    return all((ROOT / ".bench" / name / name).is_dir() for name in GRADERS)


def install():
    """Install those that are missing into folders of their own."""
    for name, what in GRADERS.items():
        if not (ROOT / ".bench" / name / name).is_dir():
            print(f"installing {what} into .bench/{name}", flush=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(ROOT / ".bench" / name)]
            subprocess.run([*pip, what], check=True)


def compare(folder):
    """Grade all submissions in a folder, and return {submission: {grader: points of 2.1, 2.2, 2.3}} and the seconds.

    The points are those of each grader's own files: scores.json, nbgrader's gradebook, otter's results.json.
    """
    folder = Path(folder)
    course, _ = hand_out(folder / "course", [CHAPTER])
    course.write_settings({**course.settings(), "exercises": {n: {"points": p} for n, p in POINTS.items()}})
    export_nbgrader(course), export_otter(course)
    place = course.path / "nbgrader"
    assignment = f"chapter-{CHAPTER:02}"
    _run("nbgrader", ["generate_assignment", assignment], place)
    name = course.notebook_of(CHAPTER).name
    released = json.loads((place / "release" / assignment / name).read_text(encoding="utf-8"))
    for learner, answers in SUBMISSIONS.items():
        notebook = json.loads(json.dumps(released))
        notebook["cells"] = [cell for cell in notebook["cells"] if answers.get(cell["id"], "") is not None]
        for cell in notebook["cells"]:
            cell["source"] = answers.get(cell["id"], cell["source"])
        for path in (folder / "handed in" / learner, place / "submitted" / learner / assignment):
            path.mkdir(parents=True)
            (path / name).write_text(json.dumps(notebook), encoding="utf-8")
    found = {learner: {} for learner in SUBMISSIONS}
    seconds = {}
    for grader, run in (("d2lite", _by_d2lite), ("nbgrader", _by_nbgrader), ("otter", _by_otter)):
        begin = time.perf_counter()
        for learner, points in run(folder, course, name).items():
            found[learner][grader] = [float(points[exercise]) for exercise in POINTS]
        seconds[grader] = time.perf_counter() - begin
    return found, seconds


def _by_d2lite(folder, course, name):
    scores = grade(folder / "handed in", course.path, folder / "scores", say=lambda words: None)
    read = json.loads((scores / "scores.json").read_text(encoding="utf-8"))
    return {entry["name"]: {e["name"]: e["points"] for e in entry["exercises"]} for entry in read}


def _by_nbgrader(folder, course, name):
    place = course.path / "nbgrader"
    _run("nbgrader", ["autograde", f"chapter-{CHAPTER:02}"], place)
    read = f"""
import csv, sys
from nbgrader.api import Gradebook
out = csv.writer(sys.stdout)
with Gradebook("sqlite:///gradebook.db") as book:
    for submission in book.assignment_submissions("chapter-{CHAPTER:02}"):
        for grade in submission.notebooks[0].grades:
            assert not grade.needs_manual_grade
            out.writerow([submission.student.id, grade.name, grade.auto_score])
"""
    found = {}
    for learner, test, points in csv.reader(_python("nbgrader", ["-c", read], place).splitlines()):
        found.setdefault(learner, {})[test.removeprefix("check-").replace("-", ".")] = points
    return found


def _by_otter(folder, course, name):
    place = course.path / "otter" / f"chapter-{CHAPTER:02}"
    _run("otter", ["generate", "-t", "tests", "-c", "otter_config.json", "-o", "autograder.zip", "course"], place)
    found = {}
    for learner in SUBMISSIONS:
        out = folder / "otter" / learner
        out.mkdir(parents=True)
        given = ["run", "--no-logo", "-a", "autograder.zip", "-o", str(out), str(folder / "handed in" / learner / name)]
        _run("otter", given, place)
        tests = json.loads((out / "results.json").read_text(encoding="utf-8"))["tests"]
        found[learner] = {
            test["name"].removeprefix("exercise-").replace("-", "."): test["score"] for test in tests if "score" in test
        }
    return found


def _run(program, arguments, folder):
    return _python(program, ["-m", program, *arguments], folder)


def _python(program, arguments, folder):
    """Run Python where a program of .bench, and this package, can be imported; return what it prints."""
    own = ROOT / ".bench" / program
    paths = os.pathsep.join([str(own), str(ROOT)])
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "PATH": f"{own / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "D2LITE_LEDGER": "off",
    }
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(arguments)[:80]}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def table(found, seconds):
    """Return the points of all graders as a Markdown table."""
    graders = list(seconds)
    lines = ["| submission | " + " | ".join(graders) + " |", "|---" * (1 + len(graders)) + "|"]
    for learner, scores in found.items():
        cells = [" + ".join(f"{p:g}" for p in scores[grader]) + f" = {sum(scores[grader]):g}" for grader in graders]
        lines.append(f"| {learner} | {' | '.join(cells)} |")
    lines.append("| seconds for all | " + " | ".join(f"{seconds[grader]:.0f}" for grader in graders) + " |")
    return "\n".join(lines)


def main():
    """Install, compare, print the table; with --save NAME write it to benchmarks/results/NAME.md as well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", metavar="NAME", help="write the table to benchmarks/results/NAME.md")
    given = parser.parse_args()
    install()
    with tempfile.TemporaryDirectory() as folder:
        found, seconds = compare(folder)
    text = table(found, seconds)
    print(text)
    if given.save:
        head = f"""# The same submissions by three graders

`python tools/compare_graders.py --save {given.save}` (make graders runs it), with {" and ".join(GRADERS.values())} on
Python {platform.python_version()}. Points of exercises 2.1, 2.2 and 2.3, of 10 each, as in the files of each grader:
`scores.json`, nbgrader's gradebook, otter's `results.json`. The submissions are in `tools/compare_graders.py`. The
seconds hold the start of each program.

"""
        (ROOT / "benchmarks" / "results" / f"{given.save}.md").write_text(head + text + "\n", encoding="utf-8")
    differ = [name for name, scores in found.items() if len({tuple(points) for points in scores.values()}) > 1]
    if differ:
        print(f"d2lite graders: the points differ: {', '.join(differ)}", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
