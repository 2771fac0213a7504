"""The files of the scores: CSV, JSON, Gradescope's results.json for each submission, and a page for the teacher."""

import csv
import hashlib
import html
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from d2lite_course.course_folder import GradedExercise
from d2lite_course.scores import ExerciseScore, SubmissionScore
from notebook_ranks.shared.files import replace_file
from notebook_ranks.shared.html_page import html_page

__all__ = ["gradescope", "notes_on", "score_page", "scores_csv", "write_scores"]

LONGEST = 100  # characters of the name of a folder
FORMULA = re.compile(r"(^|[;,|\t\r\n])(\s*)([=+\-@])")  # at the start of a cell, whatever separates cells
KEPT = "\n\t\u200c\u200d"  # the last two join letters
ODD = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b;
       background: #fff }
table { border-collapse: collapse } th, td { text-align: left; padding: .25rem .75rem; border-bottom: 1px solid #ccc }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
section { margin: 2.5rem 0 } article { margin: 1rem 0; padding: .5rem 1rem; border-left: 4px solid #767676 }
article.right { border-color: #1a7f37 } article.nearly { border-color: #9a6700 } article.wrong { border-color: #cf222e }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f2f2f2; padding: .5rem; margin: .5rem 0 }
p { margin: .25rem 0; overflow-wrap: anywhere } .note { color: #6e4a00 }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #161616 } pre { background: #262626 }
  th, td { border-color: #444 } .note { color: #e3b341 } a { color: #79b8ff } }
"""


def write_scores(folder: Path, scores: Sequence[SubmissionScore], exercises: Sequence[GradedExercise]) -> None:
    """Write all files of the scores into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "scores.csv", scores_csv(scores, exercises))
    fields = [_as_fields(score) for score in scores]
    _write(folder / "scores.json", json.dumps(fields, indent=2, ensure_ascii=False) + "\n")
    _write(folder / "scores.html", score_page(scores))
    for score in scores:
        place = folder / "gradescope" / _safe(score.name)
        place.mkdir(parents=True, exist_ok=True)
        _write(place / "results.json", json.dumps(gradescope(score), indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> None:
    replace_file(path, _plain(text))


def _plain(text: str) -> str:
    """Return a text in which what has no sign of its own, or changes the order of others, is written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in KEPT or unicodedata.category(c) not in ODD else f"\\u{ord(c):04x}" for c in text)


def _as_fields(score: SubmissionScore) -> dict[str, Any]:
    return {"name": score.name, "points": score.points, "of": score.of, **asdict(score)}


def _safe(name: str) -> str:
    """Return a name that is one folder, and no other one's."""
    plain = re.sub(r"[^\w.@+-]", "_", name, flags=re.ASCII).lstrip(".")[:LONGEST]
    number = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return plain if plain == name else f"{plain}-{number}"


def scores_csv(scores: Sequence[SubmissionScore], exercises: Sequence[GradedExercise]) -> str:
    """Return a table with one line for each submission."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["submission", "points", "of", *(exercise.name for exercise in exercises), "notes"])
    for score in scores:
        notes = [*score.wrong, *(f"{e.name}: {note}" for e in score.exercises for note in notes_on(e))]
        points = ["?" if e.unsure else e.points for e in score.exercises]
        row = [_cell_text(score.name), score.points, score.of, *points]
        table.writerow([*row, _cell_text(" ".join(notes))])
    return out.getvalue()


def _cell_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return FORMULA.sub(r"\1\2'\3", " ".join(_plain(text.strip()).splitlines()))


def notes_on(exercise: ExerciseScore) -> list[str]:
    """Return what a teacher should know, each line once."""
    unsure = [f"LOOK AT THIS, it does not count yet: {exercise.unsure}"] if exercise.unsure else []
    return [note for note in dict.fromkeys([*unsure, *exercise.notes]) if note not in exercise.said]


def gradescope(score: SubmissionScore) -> dict[str, Any]:
    """Return the content of Gradescope's results.json."""
    tests = [
        {
            "name": f"{exercise.name} {exercise.title}",
            "score": exercise.points_for_now,
            "max_score": exercise.of,
            "output": "\n".join([exercise.said, *notes_on(exercise)]),
            "output_format": "text",
        }
        for exercise in score.exercises
    ]
    return {"score": score.points_for_now, "output": "\n".join(score.wrong), "output_format": "text", "tests": tests}


def score_page(scores: Sequence[SubmissionScore]) -> str:
    """Return a page with the answers, the scores and the hints of all submissions; every text of theirs is escaped."""
    names = [exercise.name for exercise in scores[0].exercises] if scores else []
    head = "".join(f'<th class="n">{html.escape(name)}</th>' for name in names)
    rows = "\n".join(_row(i, score) for i, score in enumerate(scores))
    mistakes = _mistakes(scores)
    sections = "\n".join(_section(i, score) for i, score in enumerate(scores))
    body = f"""<h1>Scores</h1>
<p>An exercise counts by the share of its cases that are right, fresh ones included. The hints are those of check. A ?
stands where the grader cannot know: the exercise counts neither in the points nor in their sum. Look at it.</p>
<table>
<tr><th>submission</th><th class="n">points</th>{head}</tr>
{rows}
</table>
{mistakes}
{sections}"""
    return html_page("Scores", STYLE, body)


def _mistakes(scores: Sequence[SubmissionScore]) -> str:
    """Return a table of what is wrong, and for how many learners, the most frequent first."""
    every = [e for score in scores for e in score.exercises if e.mistake and e.code and not e.unsure]
    # the case in brackets differs from learner to learner
    counts = Counter((e.name, e.title, re.sub(r" \(case: .*\)", "", e.mistake)) for e in every)
    lines = [
        f'<tr><td class="n">{count}</td><td>{html.escape(f"{name} {title}")}</td><td>{html.escape(wrong)}</td></tr>'
        for (name, title, wrong), count in counts.most_common()
        if count > 1
    ]
    if not lines:
        return ""
    head = '<tr><th class="n">learners</th><th>exercise</th><th>what is wrong</th></tr>'
    return "\n".join(["<h2>What more than one learner has wrong</h2>", "<table>", head, *lines, "</table>"])


def _row(i: int, score: SubmissionScore) -> str:
    shown = ["?" if exercise.unsure else f"{exercise.points:g}" for exercise in score.exercises]
    cells = "".join(f'<td class="n">{points}</td>' for points in shown)
    name = html.escape(score.name)
    return f'<tr><td><a href="#s{i}">{name}</a></td><td class="n">{score.points:g} of {score.of:g}</td>{cells}</tr>'


def _section(i: int, score: SubmissionScore) -> str:
    wrong = "".join(f'<p class="note">{html.escape(text)}</p>' for text in score.wrong)
    articles = "\n".join(_article(exercise) for exercise in score.exercises)
    title = f"{html.escape(score.name)}: {score.points:g} of {score.of:g} points"
    return f'<section id="s{i}"><h2>{title}</h2>{wrong}\n{articles}</section>'


def _article(exercise: ExerciseScore) -> str:
    share = exercise.points / exercise.of if exercise.of else 0
    kind = "right" if share == 1 else "nearly" if share > 0.5 else "wrong"
    said = "".join(f"<p>{html.escape(line)}</p>" for line in exercise.said.splitlines())
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes_on(exercise))
    code = f"<pre>{html.escape(exercise.code)}</pre>" if exercise.code else ""
    printed = f"<p>It printed:</p><pre>{html.escape(exercise.printed)}</pre>" if exercise.printed else ""
    points = "?" if exercise.unsure else f"{exercise.points:g}"
    title = f"{html.escape(exercise.name)} {html.escape(exercise.title)}: {points} of {exercise.of:g}"
    return f'<article class="{kind}"><h3>{title}</h3>{said}{notes}{code}{printed}</article>'
