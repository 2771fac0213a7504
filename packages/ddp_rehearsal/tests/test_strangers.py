"""Scripts that were written without knowledge of the rules: 120 right ones, and 123 after public bug reports.

`strangers/wrong/expected.json` has the address of each report, what is wrong, and words of which a report that names it
has one at least. A right script gets no finding, whatever its style. Those in `strangers/aimed` are right, too, and
were written with the rules open, in order to hit them: each was accused once.
"""

import json
import os
from pathlib import Path

import pytest

from ddp_rehearsal import rehearse, report_text

FOLDER = Path(__file__).parent / "strangers"
EXPECTED = json.loads((FOLDER / "wrong" / "expected.json").read_text())
# what two ranks in a few steps do not show: numbers of a metric that are averaged or put together in a wrong way, and
# reductions that one line of a loop calls in another order; or what needs a comparison with one GPU (--same)
SILENT = (
    "52_metric_of_rank0_only.py",
    "53_mean_of_means.py",
    "65_collect_predictions.py",
    "78_multitask.py",
    "85_comm_hook.py",
    "86_loss_scale.py",
    "93_hash_group_ids.py",
    "96_rng_state_of_rank0.py",
    "104_token_mean_of_means.py",
    "106_total_steps_ignore_world.py",
    "122_accuracy_over_whole_set.py",
)
NOT_PRETENDED = "33_cuda_graph_after_warm_up"  # a rehearsal ends there: 2
FOUR_GPUS = "12_two_pairs_of_gpus"
pytestmark = [pytest.mark.release, pytest.mark.skipif(os.name == "nt", reason="ranks need Linux or macOS")]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", sorted(path.name for path in (FOLDER / "right").glob("*.py")))
def test_a_right_script_is_not_accused(name):
    found = rehearse(str(FOLDER / "right" / name), patience_s=6)
    assert found.exit_code == 0, report_text(found)


@pytest.mark.parametrize("name", sorted(path.stem for path in (FOLDER / "aimed").glob("*.py")))
def test_a_right_script_that_was_aimed_at_a_rule_is_not_accused(name):
    found = rehearse(str(FOLDER / "aimed" / f"{name}.py"), gpus=4 if name == FOUR_GPUS else 2)
    assert found.exit_code == (2 if name == NOT_PRETENDED else 0), report_text(found)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_reported_bug_is_named(name):
    found = rehearse(str(FOLDER / "wrong" / name), patience_s=6)
    said = report_text(found).lower()
    is_named = any(word.lower() in said for word in EXPECTED[name]["words"]) and bool(found.findings or found.notes)
    assert is_named is (name not in SILENT), said
