"""The report's arithmetic, and that each benchmark runs; nothing here depends on how fast the machine is."""

import json
import math

import pytest
import torch

import benchmarks.__main__ as bench
from benchmarks import gpu, imports, iterator, lenet, peers
from benchmarks.records import accuracies
from benchmarks.report import Row, machine, rounds, save, table
from d2lite import load_data_fashion_mnist, resnet18, train_concise
from d2lite.models import lenet as from_scratch


def test_rounds_begin_with_another_contestant_each_and_drop_the_warm_up():
    calls = []
    contestants = {name: lambda name=name: calls.append(name) or len(calls) for name in "abc"}
    results = rounds(contestants, 4, warm_up={"a": lambda: calls.append("warm")})
    assert "".join(calls[1:]) == "abc" + "bca" + "cab" + "abc" and calls[0] == "warm"
    assert results == {"a": [2, 7, 9, 11], "b": [3, 5, 10, 12], "c": [4, 6, 8, 13]}


@pytest.mark.parametrize(
    ("target", "ratios", "met"),
    [
        (("ratio", 0.5), [0.5, 0.25, 1.0], True),
        (("ratio", 0.49), [0.5, 0.25, 1.0], False),
        (("speed-up", 2), [2.0, 4.0, 1.0], True),
        (("speed-up", 2.1), [2.0, 4.0, 1.0], False),
        (("ours", 2.5), [0.5, 0.25, 1.0], True),
        (("ours", 2.0), [0.5, 0.25, 1.0], False),  # below, not at it
        (("at least", 2.0), [0.5, 0.25, 1.0], True),
        (("at least", 2.1), [0.5, 0.25, 1.0], False),
        (("ratio of at least", 0.5), [0.5, 0.25, 1.0], True),
        (("ratio of at least", 0.51), [0.5, 0.25, 1.0], False),
        (("worst", 3.1), [0.5, 0.25, 1.0], True),
        (("worst", 3.0), [0.5, 0.25, 1.0], False),  # the median would do
        (None, [0.5, 0.25, 1.0], None),
    ],
)
def test_a_target_is_held_against_the_median_of_the_rounds(target, ratios, met):
    row = Row("row", "s", ours=[2.0, 1.0, 3.0], peer=[4.0, 4.0, 3.0], target=target)
    assert row.ratios == ratios and row.met is met


def test_a_row_needs_its_conditions_and_its_measurement():
    assert Row("row", ours=[1.0], target=("ours", 2), holds=False).met is False
    assert Row("row", target=("ours", 2), skipped="no card").met is None


def test_the_table_says_what_was_measured_and_on_what():
    rows = [
        Row("two", "s", [2.0, 1.0, 3.0], [4.0, 4.0, 3.0], "one", ("speed-up", 1.8), note="well"),
        Row("alone", "MB", [2000.0], target=("ours", 1000)),
        Row("card", skipped="no CUDA GPU here"),
    ]
    text = table({"torch": "2.15", "data set": "toys"}, rows)
    assert text.startswith("torch 2.15 · data set toys\n")
    assert "| two | 2 (1 - 3) s | 4 (3 - 4) s, one | 2 (1 - 4) | speed-up >= 1.8 | yes; well |" in text
    assert "| alone | 2,000 MB | - | - | ours < 1000 MB | NO |" in text
    assert "skipped: no CUDA GPU here" in text


def test_what_is_saved_can_be_read_again(tmp_path):
    path = save("run", "make bench", machine("toys"), [Row("two", "s", [1.0], [2.0], "one", ("ratio", 1))], tmp_path)
    record = json.loads(path.read_text())
    assert record["rows"][0]["ratios"] == [0.5] and record["rows"][0]["met"] is True
    assert record["machine"]["data set"] == "toys" and record["machine"]["devices"]
    assert path.with_suffix(".md").read_text().startswith("`make bench`\n")


def test_the_peer_is_the_same_network_on_the_same_data(tmp_path):
    net = peers.usual_lenet()
    params = [p.T if p.dim() == 2 else p for p in net.parameters()]
    data_iter, _ = load_data_fashion_mnist(64, 130)
    data = peers.loader(tmp_path, 64, 130, workers=0)
    assert len(data.dataset) == 130 and len(peers.loader(tmp_path, 64, train=False, workers=0).dataset) == 22
    X = torch.stack([data.dataset[i][0] for i in range(130)])
    assert torch.equal(X, data_iter.examples.float() / 255)
    assert [data.dataset[i][1] for i in range(130)] == data_iter.labels.tolist()
    torch.testing.assert_close(net(X), from_scratch(X, params))


@pytest.mark.slow
def test_lenet():
    rows = lenet.rows(512, n=2, workers=0)
    assert [len(row.ours) for row in rows] == [2] * 8
    assert rows[1].target == ("ratio", 0.5) and rows[4].peer == rows[0].ours and rows[7].peer == rows[1].ours
    assert rows[6].ours == rows[5].ours and rows[6].peer == rows[1].ours
    assert all(math.isfinite(ratio) and ratio > 0 for row in rows for ratio in row.ratios)


def test_iterator():
    (row,) = iterator.rows(512, n=1, workers=0)
    assert "512 examples" in row.name and row.ours[0] > 0 and row.peer[0] > 0


@pytest.mark.slow
def test_import_loads_nothing_heavy():
    (row,) = imports.rows(n=1)
    assert row.holds and row.note.startswith("none of torchvision")


@pytest.mark.slow
def test_the_rows_of_the_card_without_a_card():
    rows = gpu.rows(256, width=2, epochs=2, n=2, workers=0, compiled=False)
    assert [len(row.ours) for row in rows] == [2, 2, 1]
    assert rows[0].target == ("speed-up", 5) and rows[2].target is None  # 0.9 is for ten epochs


def test_the_mean_of_the_compiled_run_counts_its_compilation():
    results = {name: [([1.0, 1.0, 1.0], 0.5, 4.0)] for name in ("peer", "tf32", "bf16")}
    results["compiled"] = [([8.0, 0.5, 0.5], 0.5, 11.0)]
    row = gpu._rows(results, 64, 3)[2]
    assert row.ours == [3.0] and row.peer == [1.0] and row.note.startswith("does not win")


def test_seconds_and_memory_of_a_kernel():
    nbformat = pytest.importorskip("nbformat")
    memory = pytest.importorskip("benchmarks.memory")
    cells = ["import os, time; pid = os.getpid(); block = bytes(range(250)) * 800_000", "time.sleep(0.2); del block"]
    cells += ["assert os.environ.get('D2LITE_QUICK') is None, 'as a learner'"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    seconds, megabytes = memory.run_all(notebook)
    assert 200 < megabytes < 600 and seconds > 0.2


def test_each_chapter_has_its_seconds_and_its_memory(monkeypatch, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    chapters = pytest.importorskip("benchmarks.chapters")
    cells = [nbformat.v4.new_code_cell("assert __import__('os').environ.get('D2LITE_QUICK') == '1'")]
    for name in ("02-b", "11-a", "index"):
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    monkeypatch.setattr(chapters, "BOOK", tmp_path)
    monkeypatch.setattr(chapters, "EXECUTED", tmp_path / "executed")
    names = [row.name for row in chapters.rows(quick=True)]
    assert [name.split(",")[0] for name in names] == ["chapter 2", "chapter 2", "chapter 11", "chapter 11"]
    assert len(list((tmp_path / "executed").glob("*.ipynb"))) == 2


@pytest.mark.slow
def test_animator(monkeypatch):
    animator = pytest.importorskip("benchmarks.animator")
    monkeypatch.setattr(animator, "install_d2l", lambda: "pip could not install d2l")
    (row,) = animator.rows(n=1, calls=10)
    assert row.ours[0] > 0 and not row.peer and "pip could not install d2l" in row.note


def test_d2l_that_cannot_be_installed_leaves_nothing_behind(monkeypatch, tmp_path):
    animator = pytest.importorskip("benchmarks.animator")
    monkeypatch.setattr(animator, "D2L_VERSION", "0.0.0.nothing")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "pip could not install" in animator.install_d2l(tmp_path / "bench" / "d2l")
    assert not list(tmp_path.rglob("d2l*"))


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="this machine has a GPU, which is measured")
def test_a_broken_row_does_not_take_the_others_along(monkeypatch, capsys):
    def measure(name, args):
        if name == "lenet":
            raise ValueError("first\n\x1b[31mlast\x1b[39m line")
        if name == "memory":
            raise ModuleNotFoundError("no", name="nbclient")
        return [Row(name, "s", [1.0])]

    monkeypatch.setattr(bench, "_measure", measure)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert bench.main(["--only", "lenet", "memory", "iterator", "gpu"]) == 1
    printed = capsys.readouterr().out
    assert "failed: ValueError: last line" in printed and "nbclient is not installed" in printed
    assert "| iterator | 1 s |" in printed and "no CUDA GPU here" in printed


@pytest.mark.parametrize("wrong", [["--epoch-share", "0"], ["--epoch-share", "2"], ["--rounds", "0"], ["--only", "x"]])
def test_wrong_arguments(wrong, capsys):
    with pytest.raises(SystemExit):
        bench.main(wrong)
    assert "expected" in capsys.readouterr().err or wrong[0] == "--only"


def test_accuracies_are_those_of_the_chapter_s_own_call(monkeypatch):
    monkeypatch.setattr(accuracies, "RUNS", [("ResNet-18", 1, 128, 0.1, 0), ("SimpleCNN", 2, 256, 0.001, 0)])
    one, two = accuracies.rows(num_epochs=1, num_examples=256)
    assert one.name == "ResNet-18, 1 replica, minibatch 128, lr 0.1, seed 0: accuracy" and not one.unit
    again = train_concise(resnet18(10, width=8), 1, 128, 0.1, num_epochs=1, num_examples=256)
    assert one.ours == [again.accuracy] and 0 < two.ours[0] < 1


def test_lanes():
    lanes = pytest.importorskip("benchmarks.lanes")
    (row,) = lanes.rows(n=1, num_examples=200, num_epochs=1)
    assert row.target == ("ratio", 1.02) and len(row.ours) == len(row.peer) == 1 and row.ours[0] > 0
