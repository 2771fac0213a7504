"""Grade the submissions of a course: run the answers in a sandbox, judge what came back, and write the scores."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from d2lite import __version__
from d2lite.devices import num_cores
from d2lite.exercises import specifications
from d2lite.exercises.as_data import from_data
from d2lite.exercises.exercise import Exercise
from d2lite.exercises.handed_out import HandedOut
from d2lite.exercises.judge import Score, judge
from d2lite.exercises.observed import Raised
from d2lite.exercises.run_cases import case_result
from d2lite_course.course_folder import CourseFolder, GradedExercise
from d2lite_course.observers import observers_of
from d2lite_course.recording import handed_out_exercises
from d2lite_course.sandbox import Sandbox, find_sandbox, no_sandbox
from d2lite_course.sandboxed_run import Collected, run_in_sandbox
from d2lite_course.score_files import write_scores
from d2lite_course.scores import ExerciseScore, SubmissionScore
from d2lite_course.submitted_files import Submission, read_submission, submissions_in
from notebook_ranks.shared.files import replace_file

__all__ = ["grade", "grade_notebook"]

FLAG = "--unsafe-no-sandbox"
MISSING_HERE = {"ConnectionError", "FileNotFoundError", "ImportError", "ModuleNotFoundError", "URLError", "gaierror"}
WAY = f"grade in a virtual machine that has nothing else, with {FLAG}: then each submission runs with all your rights."


@dataclass(frozen=True)
class _Graded:
    """An exercise as the grader needs it: its place in the course, its answers as data, and the code that observes."""

    place: GradedExercise
    key: HandedOut
    observers: str
    notebook: str

    def version(self) -> list[Any]:
        """Return what the score of an answer depends on, besides the answer."""
        key = self.key
        here = [self.request(), self.observers, self.place.points]
        return [*here, key.title, key.think, key.recorded, [vars(m) for m in key.mistakes]]

    def request(self, whole: bool = False) -> dict[str, Any]:
        """Return what the sandbox is told: no expected result. `whole` asks it to run all cells before the check."""
        return {
            "whole": whole,
            "name": self.place.name,
            "function": self.place.function,
            "cell": self.place.cell,
            "notebook": self.notebook,
            "observers": self.observers if self.key.observe is not None else "",
            "cases": [case["args"] for case in self.key.recorded],
            "parameters": list(self.key.names),
            "required": self.key.required,
            "world_size": self.key.world_size,
            "limit_s": self.key.limit_s,
        }


def grade(
    folder: str | Path,
    course: str | Path,
    out: str | Path | None = None,
    *,
    chapters: Sequence[int] = (),
    jobs: int = 0,
    sandbox: bool = True,
    say: Callable[[str], None] = print,
) -> Path:
    """Grade all submissions of a folder, and return the folder of the scores.

    Each submission is judged on the cases of the exercises and on further ones, which the seed of the course draws.
    A submission that was graded before, and is the same, is not run again.

    Args:
        folder: Holds one notebook, one .zip or one folder for each learner.
        course: The folder of the course.
        out: Where the scores are written; by default `grades/NAME` in the course, with the name of `folder`.
        chapters: Whose exercises are graded; by default all of the course.
        jobs: How many submissions run at the same time; by default one per two cores, at least two.
        sandbox: False runs the submissions with all rights of the caller.
        say: Gets what is to be known before it begins.

    Raises:
        ValueError: If there is no submission, the course is damaged, or has no exercise with points in these chapters.
        FileNotFoundError: If there is no course.
        PermissionError: If there is no sandbox here, and it is wanted.
    """
    found = CourseFolder(course)
    found.settings()
    paths = submissions_in(folder)
    box = _sandbox(sandbox, say)
    left_out = sorted({path.name for path in Path(folder).iterdir()} - {path.name for path in paths.values()})
    if left_out := [name for name in left_out if not name.startswith(".")]:
        say(f"Not read, because it is no notebook, .zip or folder: {', '.join(map(ascii, left_out[:20]))}.")
    places = [place for place in found.graded() if not chapters or place.chapter in chapters]
    if missing := set(chapters) - {place.chapter for place in places}:
        numbers = ", ".join(map(str, sorted(missing)))
        raise ValueError(f"chapters: expected some with exercises that have points in {found.path}, got {numbers}.")
    exercises, without = _exercises(found, places)
    if not exercises:
        raise ValueError(f"{found.settings_file}: expected an exercise with points, got none.")
    for name, why in without.items():
        say(f"Exercise {name} is not graded: {why}.")
    goal = Path(out) if out is not None else found.path / "grades" / Path(folder).resolve().name
    kept = goal / "submissions"
    kept.mkdir(parents=True, exist_ok=True)
    _of_one_folder(goal / "folder.txt", Path(folder).resolve())
    versions = [__version__, *(exercise.version() for exercise in exercises)]
    key = hashlib.sha256(json.dumps(versions, default=str).encode()).hexdigest()
    box = replace(box, hidden=tuple(str(Path(path).resolve()) for path in (found.path, folder, goal)))
    scores: dict[str, SubmissionScore] = {}
    with ThreadPoolExecutor(jobs or max(2, num_cores() // 2)) as pool:
        runs = {pool.submit(_one, name, path, kept, key, box, exercises): name for name, path in paths.items()}
        try:
            for run in _progress(as_completed(runs), len(runs)):
                scores[runs[run]] = run.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    write_scores(goal, [scores[name] for name in paths], [e.place for e in exercises])
    return goal


def grade_notebook(
    text: str, course: str | Path, chapter: int, sandbox: bool = True, say: Callable[[str], None] = print
) -> SubmissionScore:
    """Return the scores of one notebook, in the exercises of one chapter; other graders call this.

    Args:
        text: The notebook, whatever it is.
        course: The folder of the course.
        chapter: The number of the chapter.
        sandbox: False runs the notebook's answers with all rights of the caller.
        say: Gets what is to be known before it begins.

    Raises:
        ValueError: If the course is damaged, or has no exercise with points in this chapter.
        FileNotFoundError: If there is no course.
        PermissionError: If there is no sandbox here, and it is wanted.
    """
    found = CourseFolder(course)
    box = replace(_sandbox(sandbox, say), hidden=(str(found.path),))
    exercises, _ = _exercises(found, [place for place in found.graded() if place.chapter == chapter])
    if not exercises:
        raise ValueError(f"{found.settings_file}: expected an exercise with points in chapter {chapter}, got none.")
    submission = Submission("notebook")
    submission.add(found.notebook_of(chapter).name, text.encode("utf-8", errors="replace"))
    return _scored(submission, box, exercises)


def _sandbox(wanted: bool, say: Callable[[str], None]) -> Sandbox:
    if os.name == "nt":
        raise PermissionError("grade: expected Linux or macOS, got Windows. Run it in WSL 2.")
    if not wanted:
        say(
            f"WITHOUT A SANDBOX ({FLAG}): each submission runs with all your rights, and can read and write your files."
        )
        return no_sandbox()
    box, why = find_sandbox()
    if box is None:
        install = (
            "Install bubblewrap (apt install bubblewrap), or " if shutil.which("bwrap") is None else "Mend that, or "
        )
        raise PermissionError(f"there is no sandbox for submissions on this machine: {why}. {install}{WAY}")
    say(f"Each submission runs in a sandbox ({box.name}): without network, and without your files.")
    return box


def _progress(runs: Any, total: int) -> Iterator[Any]:
    try:
        from tqdm import tqdm
    except ImportError:
        return iter(runs)
    return iter(tqdm(runs, total=total, unit=" submissions", smoothing=0))


def _exercises(course: CourseFolder, places: list[GradedExercise]) -> tuple[list[_Graded], dict[str, str]]:
    """Return the exercises with fresh cases and the results of their solutions, and {name: why} for the others."""
    seed = course.seed()
    with course.exercises_found():
        try:
            fresh = vars(specifications.load("fresh_cases"))["FRESH"]
        except FileNotFoundError:
            fresh = {}
        observers: dict[int, str] = {}
        refused: dict[str, str] = {}
        ours: dict[str, Exercise] = {}
        for chapter in {place.chapter for place in places}:
            observers[chapter], cannot = observers_of(course.exercises / f"chapter_{chapter}.py", chapter)
            refused |= cannot
        for place in places:
            exercise = specifications.find_exercise(place.name)
            if isinstance(exercise, Exercise) and place.name not in refused:
                drawn = replace(exercise, draw=fresh.get(place.name, exercise.draw))
                ours[place.name] = drawn.with_drawn_cases(_seed_of(seed, place.name))
        keys = {key.name: key for key in handed_out_exercises(list(ours.values()))}
    found = [
        _Graded(
            place,
            keys[place.name],
            observers[place.chapter],
            course.notebook_of(place.chapter).name,
        )
        for place in places
        if place.name in keys
    ]
    return found, {name: why for name, why in refused.items() if name in {place.name for place in places}}


def _of_one_folder(file: Path, folder: Path) -> None:
    """Raise ValueError if the scores of another folder are here: two weeks may have folders of one name."""
    before = os.fsdecode(file.read_bytes()) if file.is_file() else ""
    if before and Path(before) != folder and Path(before).is_dir():
        raise ValueError(
            f"out: expected a folder for the scores of {folder}, got {file.parent}, which has those of {before}. "
            "Name another one with --out."
        )
    file.write_bytes(os.fsencode(folder))


def _seed_of(seed: str, name: str) -> int:
    return random.Random(f"{seed}/{name}").getrandbits(64)


def _one(name: str, path: Path, kept: Path, key: str, box: Sandbox, exercises: list[_Graded]) -> SubmissionScore:
    """Return the score of a submission, from the file of an earlier run if nothing has changed.

    Whatever goes wrong becomes words in its row: it ends the grading of nobody else, and costs no point.
    """
    try:
        submission = read_submission(name, path)
        digest = hashlib.sha256(f"{key}/{submission.digest}".encode()).hexdigest()
        file = kept / f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.json"
        if (before := _kept_score(file, digest)) is not None:
            return before
        score = _scored(submission, box, exercises)
        replace_file(file, json.dumps({"digest": digest, **asdict(score)}))
        return score
    except Exception as error:
        why = f"the grader failed: {type(error).__name__}: {str(error)[:300]}. Grade this submission by hand."
        return SubmissionScore(name, [why], [_entry(exercise, Collected(), why) for exercise in exercises])


def _kept_score(file: Path, digest: str) -> SubmissionScore | None:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
        if read.pop("digest") != digest:
            return None
        return SubmissionScore(**{**read, "exercises": [ExerciseScore(**entry) for entry in read["exercises"]]})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _scored(submission: Submission, box: Sandbox, exercises: list[_Graded]) -> SubmissionScore:
    found: dict[str, Collected] = {}
    unread: list[str] = []
    if submission.notebooks:
        found, unread = run_in_sandbox(box, submission.notebooks, [exercise.request() for exercise in exercises])
    entries = {exercise.place.name: _entry(exercise, found.get(exercise.place.name)) for exercise in exercises}
    again = [e for e in exercises if e.place.name in found and _is_open(found[e.place.name], entries[e.place.name])]
    if again:  # once more, with all cells before the check
        more, _ = run_in_sandbox(box, submission.notebooks, [exercise.request(whole=True) for exercise in again])
        for exercise in again:
            name, first = exercise.place.name, found[exercise.place.name]
            second = replace(more[name], code=first.code, notes=first.notes, problem=first.problem)
            if (entry := _entry(exercise, second)).points > entries[name].points:
                entries[name] = entry
    return SubmissionScore(submission.name, submission.wrong + unread, list(entries.values()))


def _is_open(found: Collected, entry: ExerciseScore) -> bool:
    """Return whether an answer may be right in the learner's notebook although it is not here."""
    return entry.points < entry.of and found.runs and not found.stub and found.saved != "not right"


def _errors_in(found: Collected) -> set[str]:
    return {str(data["raised"]) for data in found.got.values() if isinstance(data, dict) and "raised" in data}


def _why_unsure(found: Collected) -> str:
    """Return why the grader cannot know whether an answer that is wrong here is right in the notebook, or ""."""
    if found.saved == "not right":
        return ""
    if found.problem:
        return f"it was not possible to run all that the answer needs: {found.problem}"
    errors = _errors_in(found)
    if missing := sorted(errors & MISSING_HERE):
        return f"the answer raised {missing[0]}: it may need what is not here."
    if found.saved == "right" and (errors or found.why):
        what = f"it raised {min(errors)}" if errors else found.why.rstrip(".")
        return f"in the notebook its check is right in all cases, and here {what}."
    return ""


def _entry(exercise: _Graded, found: Collected | None, unsure: str = "") -> ExerciseScore:
    found = found or Collected()
    try:
        score, counts = _score_of(exercise.key, found)
    except Exception as error:  # of data that a submission has sent
        score, counts = (
            Score(exercise.place.name, 0, len(exercise.key.recorded), "what it gives cannot be read."),
            False,
        )
        unsure = unsure or f"the grader failed: {type(error).__name__}: {str(error)[:300]}."
    total = score.total or len(exercise.key.recorded)
    points = round(exercise.place.points * score.right / total, 2) if counts else 0.0
    notes = [*found.notes]
    if score.right and not counts:
        notes.append("it is right only where typical mistakes or a constant are right, too: that does not count alone.")
    if score.total and not score.solved:
        unsure = unsure or _why_unsure(found)
        if found.saved == "right" and not unsure:
            notes.append("in the notebook its check is right in all cases, and here it is not: look at it.")
    return ExerciseScore(
        name=score.name,
        title=exercise.key.title,
        points=points,
        of=exercise.place.points,
        said=str(score) if score.total else f"Exercise {score.name}: not attempted.",
        notes=notes,
        code=found.code,
        printed=found.printed,
        file=found.file,
        unsure=unsure,
        mistake=score.wrong,
    )


def _score_of(key: HandedOut, found: Collected) -> tuple[Score, bool]:
    """Return the score of an answer, and whether it counts; the expected results never left this process.

    It does not count if it is right in less than half of the cases, in each of which most of the typical mistakes are
    right, too; nor if it gives the same in every case.
    """
    total = len(key.recorded)
    if found.stub:
        return Score(key.name, 0, 0), True
    if found.unfit or (not found.runs and not found.why):
        why = found.unfit or (found.notes[-1] if found.notes else "there is no notebook that can be read.")
        return Score(key.name, 0, total, why), True
    labels = [case["label"] for case in key.recorded]
    seen = []
    for (rank, case), data in sorted(found.got.items()):
        if not (0 <= rank < key.world_size and 0 <= case < total):
            continue
        try:
            got = from_data(data)
        except ValueError:
            got = Raised("ValueError", "what it gives cannot be read")
        label = labels[case]
        fitting = key.mistakes_in(label, rank, got)
        seen.append((rank, case_result(label, key.expected(label, rank), got, fitting, key.near)))
    score = judge(key, seen, found.why or "its process ended.")
    wrong = {result.case for _, result in seen if not result.right}
    right = {result.case for _, result in seen} - wrong
    is_constant = len({result.got for _, result in seen}) == 1 < len({result.expected for _, result in seen})
    is_little = len(right) < total / 2 and all(_is_trivial(key, label) for label in right)
    return score, score.solved or not (is_constant or is_little)


def _is_trivial(key: HandedOut, label: str) -> bool:
    """Return whether most of the typical mistakes are right in a case, on all ranks."""
    right = [set(key.mistakes_in(label, rank, key.expected(label, rank))) for rank in range(key.world_size)]
    return len(set.intersection(*right)) > sum(not hint.never_ends for hint in key.mistakes) / 2
