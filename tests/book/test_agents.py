"""The rules for assistants: short, and true of the book that they speak about."""

import json
import re
from pathlib import Path

import d2lite.__main__ as commands
from d2lite.learner_ledger import FILE

BOOK = Path(__file__).parents[2] / "book"
RULES = (BOOK / "AGENTS.md").read_text()


def test_they_are_short_and_say_first_what_never_to_do():
    assert len(RULES.splitlines()) <= 60 and len(RULES.split()) <= 600
    assert re.findall(r"^## (.*)$", RULES, flags=re.M)[:2] == ["Never", "Instead"]
    never = RULES.split("## Instead")[0]
    for word in (
        "body of an exercise",
        "`solutions/`",
        "`exercises/`",
        "**Predict**",
        "`check(...)`",
        "just this once",
    ):
        assert word in never


def test_the_files_and_commands_that_they_name_are_there(capsys, tmp_path):
    for name in ("solutions", "exercises", "glossary.md", "messages.md"):
        assert name in RULES and (BOOK / name).exists()
    assert FILE in RULES
    commands.main(["progress", str(tmp_path)])
    assert FILE in capsys.readouterr().out


def test_the_cells_of_exercises_have_the_ids_that_they_name():
    for path in sorted(BOOK.glob("[0-9]*.ipynb")):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        checks = [cell["id"] for cell in cells if re.search(r"^check\(", "".join(cell["source"]), flags=re.M)]
        assert all(cell.startswith("exercise-") for cell in checks), (path.name, checks)
