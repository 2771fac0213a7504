"""The students' book has no answers, its links lead somewhere, and `check` works in it as before."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from d2lite.exercises import all_exercises, specifications
from d2lite_course.course_folder import CourseFolder
from d2lite_course.hand_out import hand_out


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    found, refused = hand_out(tmp_path_factory.mktemp("course") / "out", [4, 9])
    assert not refused
    return found


def in_students_book(course, code):
    """What some code prints in the folder of the students' notebooks."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=course.students / "book", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pages(course):
    """{path: text} of the students' notebooks and Markdown files; of notebooks the cells' text."""
    found = {}
    for path in (course.students / "book").rglob("*"):
        if path.suffix == ".ipynb":
            cells = json.loads(path.read_text())["cells"]
            found[path] = "\n".join("".join(cell["source"]) for cell in cells)
        elif path.suffix == ".md":
            found[path] = path.read_text()
    return found


def test_there_are_the_chapters_and_nothing_with_answers(course):
    book = course.students / "book"
    names = sorted(path.relative_to(book).as_posix() for path in book.rglob("*.ipynb"))
    assert [name[:12] for name in names] == [
        "04-all-reduc",
        "09-learning-",
        "appendix/04-",
        "appendix/09-",
        "index.ipynb",
    ]
    files = {path.name for path in (book / "exercises").iterdir()}
    assert files == {"chapter_4.json", "chapter_9.json", "observe_4.py", "observe_9.py"}
    assert not list(course.students.rglob("solutions")) and not list(course.students.rglob("seed"))


def test_no_answer_and_no_mistake_is_in_the_students_files(course):
    """No line of code of a function that answers, long enough to be told from others, is in any file of theirs."""
    text = "\n".join(p.read_text() for p in (course.students / "book" / "exercises").iterdir())
    for name in (
        "_butterfly",
        "_border",
        "_sum_on_owners",
        "_num_updates",
        "_lr_of_step",
        "_noise_scale_of",
        "lambda k",
    ):
        assert name not in text
        assert name in "\n".join(p.read_text() for p in course.exercises.glob("chapter_*.py"))
    for path, text in pages(course).items():
        if path.name != "AGENTS.md":
            assert "solutions" not in text and "worked answers" not in text, path


def test_the_students_copy_has_no_solution(course):
    code = "from d2lite.exercises import all_exercises as all_of_them\n"
    code += "print({name: hasattr(exercise, 'solution') for name, exercise in all_of_them().items()})"
    assert in_students_book(course, code).strip() == str(
        dict.fromkeys(["4.1", "4.2", "4.3", "9.1", "9.2", "9.3"], False)
    )


def test_all_links_lead_somewhere(course):
    for path, text in pages(course).items():
        for target in re.findall(r"\]\(([^)\s#:]+\.(?:ipynb|md|svg|py|json))[)#]", text):
            assert (path.parent / target).exists(), (path, target)


def test_the_stubs_the_checks_and_the_hints_are_there(course):
    text = pages(course)[course.students / "book" / course.notebook_of(4).name]
    assert 'check("4.1", butterfly)' in text and "**Exercise 1** (10 points)." in text
    assert "To try and to think about" in text  # the open exercises
    kept = json.loads((course.students / "book" / "exercises" / "chapter_4.json").read_text())
    hints = [hint["wrong"] for hint in kept["exercises"][0]["mistakes"]]
    assert hints == [mistake.wrong for mistake in all_exercises()["4.1"].mistakes]


@pytest.mark.slow
def test_check_works_without_the_answers(course):
    code = """
from d2lite.exercises import all_exercises, check
exercise = all_exercises()["4.2"]
try:
    exercise.solution
except AttributeError:
    print("no solution")
print(sorted(all_exercises()))
import math
def right(k, link):
    s = math.log2(k)
    return link.latency_s * link.bandwidth_bytes_per_s * (k - 1 - s) / (s - (k - 1) / k)
check("4.2", right)
check("4.2", lambda k, link: round(right(k, link)))
check("4.2", lambda k, link: -right(k, link))
check("4.2", lambda k, link: None if k else 1)
check("4.2", lambda k: 1)
def stub(k, link):
    return None
check("4.2", stub)
"""
    lines = in_students_book(course, code).splitlines()
    assert lines[:2] == ["no solution", "['4.1', '4.2', '4.3', '9.1', '9.2', '9.3']"]
    assert lines[2:4] == ["Exercise 4.2: right in all 9 cases."] * 2
    assert lines[5] == "What is wrong: the number of bytes is below 0: a sign is lost."
    assert "it returns nothing" in lines[7] or "it returns nothing" in lines[8]
    assert "it takes 1 argument (k), and it is called with 2 arguments (k, link)." in "\n".join(lines)
    assert lines[-1].startswith("Exercise 4.2: not attempted.")


@pytest.mark.slow
def test_ranks_are_checked_without_the_answers(tmp_path):
    course, _ = hand_out(tmp_path / "out", [5])
    code = """
import torch, torch.distributed as dist
from d2lite.exercises import all_exercises, check
print(hasattr(all_exercises()["5.2"], "solution"))
def mean(my_mean, my_count):
    total = torch.tensor([my_mean * my_count, my_count], dtype=torch.float64)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()
if __name__ == "__main__":
    check("5.1", mean)
    check("5.1", lambda my_mean, my_count: my_mean)
"""
    lines = in_students_book(course, code).splitlines()
    assert lines[:2] == ["False", "Exercise 5.1: right in all 5 cases."]
    assert "it calls no collective of all ranks" in lines[3]


def test_what_the_teacher_changes_is_handed_out_again(course):
    settings = course.settings()
    settings["exercises"]["4.1"]["points"] = 1
    settings["chapters"]["4"]["due"] = "3 May"
    course.write_settings(settings)
    file = course.exercises / "chapter_4.py"
    text = file.read_text()
    file.write_text(text.replace("they are no partners.", "they are strangers."))
    before = list(specifications.__path__)
    again, _ = hand_out(course.path)
    assert specifications.__path__ == before
    assert again.settings() == settings
    found = pages(again)
    assert "**Exercise 1** (1 point)." in found[course.students / "book" / course.notebook_of(4).name]
    assert "| 21 | 3 May |" in found[course.students / "book" / "index.ipynb"]
    assert "they are strangers." in (course.students / "book" / "exercises" / "chapter_4.json").read_text()
    file.write_text(text)


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_hidden_files_of_the_students_folder_stay_and_a_link_stays_a_link(course, tmp_path):
    """The folder may be published as a repository."""
    moved = tmp_path / "public"
    course.students.rename(moved)
    course.students.symlink_to(moved)
    (moved / ".git").mkdir()
    (moved / ".git" / "HEAD").write_text("main")
    (moved / "book" / "old.txt").write_text("")
    hand_out(course.path)
    assert course.students.is_symlink() and (course.students / ".git" / "HEAD").read_text() == "main"
    assert not (moved / "book" / "old.txt").exists() and (moved / "book" / "index.ipynb").exists()
    (moved / ".git").rename(tmp_path / "public.old")  # as if it had been cut off before the last step
    (tmp_path / "public.old").rename(tmp_path / ".git")
    (tmp_path / "public.old").mkdir()
    (tmp_path / ".git").rename(tmp_path / "public.old" / ".git")
    hand_out(course.path)
    assert (moved / ".git" / "HEAD").read_text() == "main" and [*tmp_path.iterdir()] == [moved]
    course.students.unlink()
    moved.rename(course.students)


def test_wrong_input_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected numbers of chapters"):
        hand_out(tmp_path / "new")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="has other files"):
        hand_out(tmp_path, [4])
    with pytest.raises(FileNotFoundError, match="expected the folder of a course"):
        CourseFolder(tmp_path).settings()
    (tmp_path / "exercises.json").write_text('{"chapters": {}, "exercises": {"4.1": {"points": "many"}}}')
    with pytest.raises(ValueError, match="the points of 4.1 are 'many'"):
        CourseFolder(tmp_path).settings()
    assert isinstance(CourseFolder(str(tmp_path)).path, Path)


def test_the_diagnosis_of_unnamed_exhibits_is_checked_without_their_names(tmp_path):
    course, refused = hand_out(tmp_path / "out", [11])
    assert not refused and set(course.settings()["exercises"]) == {"11.1", "11.2", "11.3"}
    assert 'check("11.3"' in pages(course)[course.students / "book" / course.notebook_of(11).name]
    observers = (course.students / "book" / "exercises" / "observe_11.py").read_text()
    assert "_DIGESTS" in observers and "def _culprit" not in observers and "EXHIBITS" not in observers
    assert (course.seed_file.stat().st_mode & 0o077) == 0 or os.name == "nt"


def test_an_exercise_whose_observer_calls_its_solution_has_no_check_and_no_points(tmp_path):
    course, _ = hand_out(tmp_path / "out", [11])
    file = course.exercises / "chapter_11.py"
    text = file.read_text()
    file.write_text(text.replace("_digest(letter, name) != _DIGESTS[letter]", "name != _culprit(letter)"))
    course, refused = hand_out(course.path)
    assert refused.keys() == {"11.3"} and "_culprit" in refused["11.3"]
    assert set(course.settings()["exercises"]) == {"11.1", "11.2"}
    text = pages(course)[course.students / "book" / course.notebook_of(11).name]
    assert 'check("11.2"' in text and 'check("11.3"' not in text and "**Exercise 3.**" in text
    assert "_culprit" not in "\n".join(path.read_text() for path in (course.students / "book" / "exercises").iterdir())
