"""Right scripts that a rehearsal still accuses: `strangers/accused/README.md` says of each which rule does, and why."""

import os
from pathlib import Path

import pytest

from ddp_rehearsal import rehearse, report_text

FOLDER = Path(__file__).parent / "strangers" / "accused"
GPUS = {"12_two_pairs_of_gpus": 4}
pytestmark = [pytest.mark.release, pytest.mark.skipif(os.name == "nt", reason="ranks need Linux or macOS")]


@pytest.mark.xfail(strict=True, reason="the rule is not mended yet")
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_right_script_is_not_accused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = rehearse(str(FOLDER / f"{name}.py"), gpus=GPUS.get(name, 2))
    assert found.exit_code == 0, report_text(found)
