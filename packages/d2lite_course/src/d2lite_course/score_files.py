"""The files of the scores: CSV, JSON, Gradescope's results.json for each submission, and a page for the teacher."""

import csv
import hashlib
import html
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from d2lite_course.course_folder import GradedExercise
from d2lite_course.scores import ExerciseScore, SubmissionScore
from notebook_ranks.shared.files import replace_file
from notebook_ranks.shared.html_page import html_page

__all__ = ["gradescope", "score_page", "scores_csv", "write_scores"]

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
    replace_file(path, text.encode("utf-8", errors="replace").decode("utf-8"))


def _as_fields(score: SubmissionScore) -> dict[str, Any]:
    return {"name": score.name, "points": score.points, "of": score.of, **asdict(score)}


def _safe(name: str) -> str:
    """Return a name that is one folder, and no other one's."""
    plain = re.sub(r"[^\w.@+-]", "_", name).lstrip(".")
    number = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return plain if plain == name else f"{plain}-{number}"


def scores_csv(scores: Sequence[SubmissionScore], exercises: Sequence[GradedExercise]) -> str:
    """Return a table with one line for each submission."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["submission", "points", "of", *(exercise.name for exercise in exercises), "notes"])
    for score in scores:
        notes = [*score.wrong, *(f"{e.name}: {note}" for e in score.exercises for note in e.notes)]
        row = [_cell_text(score.name), score.points, score.of, *(e.points for e in score.exercises)]
        table.writerow([*row, _cell_text(" ".join(notes))])
    return out.getvalue()


def _cell_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    line = " ".join(text.splitlines())
    return f"'{line}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else line


def gradescope(score: SubmissionScore) -> dict[str, Any]:
    """Return the content of Gradescope's results.json."""
    tests = [
        {
            "name": f"{exercise.name} {exercise.title}",
            "score": exercise.points,
            "max_score": exercise.of,
            "output": "\n".join([exercise.said, *exercise.notes]),
            "output_format": "text",
        }
        for exercise in score.exercises
    ]
    return {"score": score.points, "output": "\n".join(score.wrong), "output_format": "text", "tests": tests}


def score_page(scores: Sequence[SubmissionScore]) -> str:
    """Return a page with the answers, the scores and the hints of all submissions; every text of theirs is escaped."""
    names = [exercise.name for exercise in scores[0].exercises] if scores else []
    head = "".join(f'<th class="n">{html.escape(name)}</th>' for name in names)
    rows = "\n".join(_row(i, score) for i, score in enumerate(scores))
    sections = "\n".join(_section(i, score) for i, score in enumerate(scores))
    body = f"""<h1>Scores</h1>
<p>An exercise counts by the share of its cases that are right, fresh ones included. The hints are those of check.</p>
<table>
<tr><th>submission</th><th class="n">points</th>{head}</tr>
{rows}
</table>
{sections}"""
    return html_page("Scores", STYLE, body)


def _row(i: int, score: SubmissionScore) -> str:
    cells = "".join(f'<td class="n">{exercise.points:g}</td>' for exercise in score.exercises)
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
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in exercise.notes)
    code = f"<pre>{html.escape(exercise.code)}</pre>" if exercise.code else ""
    printed = f"<p>It printed:</p><pre>{html.escape(exercise.printed)}</pre>" if exercise.printed else ""
    title = f"{html.escape(exercise.name)} {html.escape(exercise.title)}: {exercise.points:g} of {exercise.of:g}"
    return f'<article class="{kind}"><h3>{title}</h3>{said}{notes}{code}{printed}</article>'
