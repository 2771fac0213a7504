"""The comparison of four frameworks, without them: rules, differences, how arrays travel, what is kept."""

import ast
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.records import frameworks
from benchmarks.records.chapter_code import chapter_code
from benchmarks.records.frameworks import BOUND, FRAMEWORKS, Framework, compared, nearest_rule, our_rules
from benchmarks.report import RESULTS

ROOT = RESULTS.parents[1]
LOSSES = [torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), torch.tensor([4.0, 8.0], dtype=torch.float64)]
ECHO = """
import sys
import numpy as np
data = np.load(sys.argv[1])
np.savez(sys.argv[2], **{"after each step, echo": data["weights"], "accuracy, echo": 0.5, "version": "echo 1"})
"""


def test_the_rules_divide_by_the_minibatch_by_its_usual_size_and_by_each_shard():
    values = {name: rule(LOSSES, 32).item() for name, rule in our_rules(0.1).items()}
    assert values["by_example"] == pytest.approx(18 / 5, rel=1e-15)
    assert values["by_batch_size"] == pytest.approx(18 / 32, rel=1e-15)
    assert values["by_shard"] == pytest.approx((2 + 6) / 2, rel=1e-15)
    lr, fifth = (float(np.float32(x)) for x in (0.1, 0.2))
    assert values["by_example, factors of 32 bits"] == pytest.approx(18 * fifth * lr / 0.1, rel=1e-14)
    assert values["by_batch_size, factors of 32 bits"] == pytest.approx(18 / 32 * lr / 0.1, rel=1e-14)
    assert abs(fifth * lr / 0.1 - 0.2) > 1e-9, "the rounding must be larger than the bound"


def test_equal_shards_hide_which_rule_a_program_follows():
    even = [LOSSES[0][:2], LOSSES[1]]
    rules = our_rules(0.1)
    assert len({round(rules[name](even, 4).item(), 12) for name in frameworks.RULES}) == 1


def test_the_difference_is_the_largest_of_each_step():
    ours = np.zeros((2, 3))
    assert compared(np.array([[0.0, -3.0, 1.0], [0.0, 0.5, 0.0]]), ours) == [3.0, 0.5]
    large = np.full((1, 1), 2.0**24, "float32")
    assert compared(large, large + np.float32(2)) == [2.0]


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (np.zeros((2, 4)), "shape: expected .2, 3., as ours, got .2, 4."),
        (np.zeros((2, 3), "float32"), "dtype: expected float64, as ours, got float32"),
        (np.full((2, 3), np.nan), "expected finite numbers, got NaN"),
    ],
)
def test_weights_that_cannot_be_compared_are_refused(theirs, said):
    with pytest.raises(ValueError, match=said):
        compared(theirs, np.zeros((2, 3)))


def test_the_nearest_rule_is_the_one_whose_worst_step_is_nearest():
    ours = {"first": np.array([[1.0], [5.0]]), "second": np.array([[2.0], [2.0]])}
    assert nearest_rule(np.array([[1.0], [2.5]]), ours) == "second"


def echo(tmp_path, monkeypatch, program=ECHO):
    """A framework whose program returns the weights that it gets."""
    (tmp_path / "book" / "scripts").mkdir(parents=True)
    (tmp_path / "book" / "scripts" / "step_in_echo.py").write_text(program)
    monkeypatch.setattr(frameworks, "ROOT", tmp_path)
    return Framework("Echo", "step_in_echo.py", (), (0, 99))


def test_arrays_reach_a_program_and_come_back_unchanged_without_pickle(tmp_path, monkeypatch):
    weights = np.random.default_rng(0).normal(size=(2, 3))
    out = echo(tmp_path, monkeypatch).run(sys.executable, {"weights": weights})
    assert np.array_equal(out["after each step, echo"], weights) and out["version"].item() == "echo 1"


def test_what_would_be_unpickled_is_refused(tmp_path, monkeypatch):
    program = ECHO.replace('"echo 1"', "np.array([sys.path], dtype=object)")
    with pytest.raises(ValueError, match="allow_pickle=False"):
        echo(tmp_path, monkeypatch, program).run(sys.executable, {"weights": np.zeros(1)})


def test_a_program_that_fails_is_named_with_its_last_lines(tmp_path, monkeypatch):
    failing = echo(tmp_path, monkeypatch, "raise SystemExit('no such device')")
    with pytest.raises(RuntimeError, match=r"Echo: step_in_echo.py failed:\nno such device"):
        failing.run(sys.executable, {"weights": np.zeros(1)})


def test_a_missing_python_is_said_and_the_newest_that_fits_is_taken():
    old = Framework("Old", "step_in_old.py", (), (1, 3))
    with pytest.raises(RuntimeError, match="Old: expected a Python from 3.1 to 3.3, got none. Install one of them"):
        old.python(which=lambda name: None)
    assert old.python(which=lambda name: f"/bin/{name}" if name != "python3.3" else None) == "/bin/python3.2"
    assert Framework("Any", "step_in_any.py", (), (0, 99)).python() == sys.executable


def trial(weights, ours, accuracy):
    """The record of a program that has these weights in both types."""
    theirs = {
        dtype: {
            "after each step, x": weights.astype(dtype),
            "accuracy, x": np.array(accuracy),
            "version": np.array("1"),
        }
        for dtype in BOUND
    }
    ours = {dtype: {name: after.astype(dtype) for name, after in ours.items()} for dtype in BOUND}
    return frameworks._framework(theirs, ours, {"by_example": 0.5, "by_shard": 0.25})


def test_a_program_is_explained_by_a_rule_that_gives_its_weights_and_its_accuracy():
    generator = np.random.default_rng(0)
    ours = {name: generator.normal(size=(5, 12)) for name in ("by_example", "by_shard")}
    kept = trial(ours["by_shard"] + 1e-15, ours, 0.25)
    assert json.loads(json.dumps(kept)) == kept and kept["version"] == "1"
    row = kept["variants"]["x"]
    assert row["rule"] == "by_shard" and row["explained"] and max(row["from_by_example"]) > 0.1
    assert len(row["last_bias"]) == 10 and len(row["float64"]) == 5
    assert not trial(ours["by_shard"] + 1e-9, ours, 0.25)["variants"]["x"]["explained"], "more than rounding"
    assert not trial(ours["by_shard"], ours, 0.5)["variants"]["x"]["explained"], "the accuracy of another rule"


def test_ours_starts_from_the_given_weights_and_has_an_uneven_last_minibatch():
    names = chapter_code(frameworks.APPENDIX, {})
    inputs = names["make_inputs"]("float64")
    n, batch_size = len(inputs["y"]), int(inputs["batch_size"])
    assert all(array.dtype != object for array in inputs.values())
    assert -(-n // batch_size) * inputs["num_epochs"] == 10 and n % batch_size % 2 == 1
    inputs |= {"X": inputs["X"][:5], "y": inputs["y"][:5], "num_epochs": np.array(1)}
    after, accuracy = names["ten_steps"](inputs)
    still, _ = names["ten_steps"](inputs | {"lr": np.array(0.0)})
    assert still.flatten().tolist() == np.concatenate([inputs[f"weights_{i}"].ravel() for i in range(4)]).tolist()
    assert after.shape == still.shape and not torch.equal(after, still) and 0 <= accuracy <= 1
    one, _ = names["ten_steps"](inputs, num_devices=1)
    assert torch.allclose(one, after, rtol=0, atol=1e-12)
    by_shard, _ = names["ten_steps"](inputs, our_rules(0.1)["by_shard"])
    assert not torch.allclose(by_shard, after, rtol=0, atol=1e-6)


def test_the_kept_record_explains_every_program_by_the_rule_that_the_words_name():
    kept = json.loads((RESULTS / "frameworks.json").read_text())
    assert kept["command"] == "python -m benchmarks.records.frameworks --save frameworks"
    assert list(kept["frameworks"]) == [framework.name for framework in FRAMEWORKS]
    rows = {name: row for found in kept["frameworks"].values() for name, row in found["variants"].items()}
    assert {name: row["rule"] for name, row in rows.items()} == {
        "trainer.step(len(y))": "by_example, factors of 32 bits",
        "trainer.step(batch_size)": "by_batch_size, factors of 32 bits",
        "fit": "by_shard",
        "a loop of its own": "by_example",
        "NamedSharding": "by_example",
    }
    for row in rows.values():
        assert row["explained"] and all(len(row[dtype]) == 10 and max(row[dtype]) < BOUND[dtype] for dtype in BOUND)
    gluon = kept["frameworks"]["Gluon"]
    assert "was not initialized on context cpu(0)" in gluon["message, weight.data()"]
    assert kept["frameworks"]["JAX"]["message, device_put"] and kept["frameworks"]["JAX"]["all-reduces of a step"] == 2
    for found, framework in zip(kept["frameworks"].values(), FRAMEWORKS, strict=True):
        assert all(part.replace("==", " ") in found["version"] for part in framework.requirements[:1])


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_appendix_shows_functions_of_the_program_that_runs(framework):
    notebook = json.loads((ROOT / "book" / frameworks.APPENDIX).read_text(encoding="utf-8"))
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    calls = [
        node for node in ast.walk(ast.parse(code)) if getattr(getattr(node, "func", None), "id", "") == "show_script"
    ]
    shown = {name.value for call in calls if call.args[0].value == framework.program for name in call.args[1:]}
    tree = ast.parse(Path(ROOT, "book", "scripts", framework.program).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert shown and shown <= defined, shown - defined
    assert defined - shown <= {"main", "message", "num_correct"}, defined - shown
