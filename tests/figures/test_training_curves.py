"""Figures and tables show the numbers of the runs, and can be read on light and dark pages."""

import errno
import itertools
import json
import math
import os
import re

import numpy as np
import pytest

from d2lite.figures import figure_layout, palette, training_curves
from d2lite.figures.palette import stroke
from d2lite.figures.speed_up import speed_up_card, speed_ups
from d2lite.figures.table import runs_table
from d2lite.figures.ticks import tick_step, ticks
from d2lite.training.run_record import SCHEMA, Run, legends, save
from d2lite.widgets.style import _CSS


def make_run(k=1, lr=0.2, batch_size=512, seconds=(4.0, 2.0, 3.0), accuracies=(0.5, 0.6, 0.7), **settings):
    settings = {"num_gpus": k, "lr": lr, "batch_size": batch_size, "num_epochs": 5, "seed": 0, **settings}
    return Run(
        settings=settings,
        devices=f"{k} on toys",
        dataset="toys",
        num_examples=6000,
        losses=[2.0],
        accuracies=list(accuracies),
        seconds=list(seconds),
        status="finished",
    )


def test_curves_hold_the_runs_numbers():
    runs = [make_run(1), make_run(2, accuracies=(0.1, 0.2))]
    figure = training_curves.curves(runs)
    assert [trace.name for trace in figure.data] == ["1 device · lr 0.2 · batch 512", "2 devices · lr 0.2 · batch 512"]
    assert [list(trace.y) for trace in figure.data] == [[0.5, 0.6, 0.7], [0.1, 0.2]]
    assert list(figure.data[0].x) == [1, 2, 3]
    assert "toys" in figure.layout.title.text and "2 on toys" in figure.data[1].hovertemplate
    assert list(figure.layout.yaxis.range) == [0, 0.8]
    assert figure.layout.xaxis.range[0] < 1 and figure.layout.xaxis.range[1] > 5  # as long as was asked for


def test_what_an_animator_was_given_is_drawn_one_curve_each():
    run = make_run()
    run.curves = {"train loss": {"x": [0.5, 1.0], "y": [2.0, 1.5]}, "test acc": {"x": [1], "y": [0.5]}}
    loss, accuracy = training_curves.curves([run]).data
    assert list(loss.x) == [0.5, 1.0] and list(loss.y) == [2.0, 1.5] and loss.name.endswith("train loss")
    assert list(accuracy.y) == [0.5] and accuracy.line.dash != loss.line.dash
    low, high = training_curves.curves([run]).layout.yaxis.range  # the axis of a loss fits what is there
    assert 0.4 < low < 0.5 and 2.0 < high < 2.1


def test_the_names_of_equal_curves_lie_beside_each_other():
    runs = [make_run(split=name) for name in ("data", "tensor", "tensor and sequence")]
    for run in runs:
        run.curves = {"loss": {"x": [1, 2], "y": [4.0, 3.0]}}
    figure = training_curves.curves(runs)
    low, high = figure.layout.yaxis.range
    per_pixel = (high - low) / (figure.layout.height - figure.layout.margin.t - figure.layout.margin.b)
    places = sorted(note.y + note.yshift * per_pixel for note in figure.layout.annotations)
    assert len(places) == 3 and min(b - a for a, b in itertools.pairwise(places)) >= 17 * per_pixel


def test_curves_of_several_ranks_share_the_name_of_their_axis():
    run = make_run()
    run.curves = {
        f"test accuracy, rank {rank}": {"x": [1], "y": [0.5], "rank": rank, "quantity": "test accuracy"}
        for rank in (0, 1)
    }
    assert training_curves.axes([run])[2]["title"]["text"] == "test accuracy"


def test_no_runs_give_empty_figures():
    assert len(training_curves.curves([]).data) == len(training_curves.losses([]).data) == 0
    assert speed_up_card([]) == speed_up_card([make_run(seconds=())]) == ""


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ((0.731, 0.829), (0.7, 0.9)),
        ((0.05, 0.95), (0, 1)),
        ((0.8,), (0.7, 0.9)),
        ((1.0,), (0.8, 1)),
        ((0.0,), (0, 0.2)),
    ],
)
def test_an_axis_of_accuracies_fits_them(values, ends):
    low, high = training_curves.curves([make_run(accuracies=values)]).layout.yaxis.range
    assert (low, high) == pytest.approx(ends)
    assert low <= min(values) and max(values) <= high


def test_the_loss_of_each_step_is_drawn_for_the_runs_that_have_losses():
    runs = [make_run(1), make_run(2), make_run(4)]
    runs[0].losses, runs[1].losses, runs[2].losses = [2.0, 1.0, 0.5], [], [float(i) for i in range(2000)]
    one, four = training_curves.losses(runs).data
    assert list(one.x) == [1, 2, 3] and list(one.y) == [2.0, 1.0, 0.5]
    assert len(four.x) <= 400 and (four.x[0], four.x[-1], four.y[-1]) == (1, 2000, 1999)
    assert one.line.color == palette.style(0)[0] and four.line.color == palette.style(2)[0]


def test_up_to_six_curves_have_their_names_at_their_ends_and_more_have_a_legend():
    for n, at_ends in ((1, True), (6, True), (7, False)):
        figure = training_curves.curves([make_run(seed=seed, accuracies=(0.5,)) for seed in range(n)])
        assert [trace.showlegend for trace in figure.data] == [not at_ends] * n
        assert len(figure.layout.annotations) == (n if at_ends else 0)
    texts = [
        note.text.partition("</span> ")[2]
        for note in training_curves.curves([make_run(1), make_run(2)]).layout.annotations
    ]
    assert sorted(texts) == ["1 device", "2 devices"]


def test_names_at_the_ends_of_equal_curves_do_not_lie_on_each_other():
    figure = training_curves.curves([make_run(seed=seed) for seed in range(6)])
    (low, high), height = figure.layout.yaxis.range, figure.layout.height - 82
    places = sorted(note.y / (high - low) * height + note.yshift for note in figure.layout.annotations)
    assert (np.diff(places) > 15.9).all()


def test_legends_are_all_different_and_show_what_differs():
    runs = [make_run(), make_run(), make_run(seed=1), make_run(k=2)]
    assert legends(runs) == [
        "1 device · lr 0.2 · batch 512 · seed 0",
        "1 device · lr 0.2 · batch 512 · seed 0 (2)",
        "1 device · lr 0.2 · batch 512 · seed 1",
        "2 devices · lr 0.2 · batch 512",
    ]
    assert legends([make_run(), make_run()]) == ["1 device · lr 0.2 · batch 512", "1 device · lr 0.2 · batch 512 (2)"]


def test_legends_do_not_tell_rounding_errors_apart():
    nearly = make_run()
    nearly.settings["lr"] *= 1 + 1e-15
    assert legends([make_run(), nearly]) == ["1 device · lr 0.2 · batch 512", "1 device · lr 0.2 · batch 512 (2)"]


def test_legends_of_other_parameters():
    runs = [Run(settings={"width": width}, devices="", dataset="", num_examples=0) for width in (8, 16)]
    assert legends(runs) == [
        "run · width 8",
        "run · width 16",
    ]


@pytest.mark.parametrize("n", [0, 1, 2000, 2001, 123_456])
def test_thinning_keeps_the_first_and_the_last_point(n):
    x, y = figure_layout.thin(range(n), [math.sin(i) for i in range(n)])
    assert len(x) == len(y) == min(n, 2000)
    if n:
        assert (x[0], x[-1]) == (0, n - 1) and y[-1] == math.sin(n - 1)
    assert (np.diff(x) > 0).all()


def test_every_colour_can_be_seen_on_white_and_on_jupyters_dark():
    for colour in palette.PALETTE:
        assert min(palette.contrast(colour, "#ffffff"), palette.contrast(colour, "#111111")) >= 3
    # the best that one grey can do for text on both; a panel takes the theme's own colour instead
    assert min(palette.contrast(palette.GREY, "#ffffff"), palette.contrast(palette.GREY, "#111111")) > 4.3


def test_neighbours_differ_in_colour_dash_and_marker():
    for i in range(40):
        assert all(a != b for a, b in zip(palette.style(i), palette.style(i + 1), strict=True))
    assert len({palette.style(i)[:2] for i in range(20)}) == 20


def test_nothing_in_a_name_is_taken_for_markup():
    run = make_run()
    run.dataset, run.settings["lr"] = "<b>toys</b>", "<i>"
    figure = training_curves.curves([run])
    assert "<b>toys" not in figure.layout.title.text and "<i>" not in figure.data[0].name
    assert "<b>toys" not in runs_table([run]) and "<i>" not in runs_table([run])


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 10), (-3, 1234), (0.131, 0.132), (5, 5), (1e-9, 3e-9)])
def test_ticks_are_few_and_inside(low, high):
    found = ticks(low, high)
    span = high - low
    assert 1 <= len(found) <= 6 and all(low - 1e-6 * span <= t <= high + 1e-6 * span for t in found)


def test_the_table_has_the_runs_numbers_and_speed_ups_over_one_device():
    runs = [make_run(1), make_run(2, seconds=(1.5,), accuracies=(0.8,)), make_run(4, seconds=(), accuracies=())]
    runs[2].status = "diverged at step 3, lr 9"
    text = runs_table(runs)
    assert speed_ups(runs)[:2] == [1.0, 2.0] and math.isnan(speed_ups(runs)[2])
    rows = [[cell.split("<")[0] for cell in re.split("<td.*?>", row)[1:]] for row in text.split("<tr>")[2:]]
    assert rows[0] == ["70.0%", "3", "2,000", "1.00×", "finished", "1 on toys", "toys"]
    assert rows[1] == ["80.0%", "1.5", "4,000", "2.00×", "finished", "2 on toys", "toys"]
    assert rows[2] == ["–", "–", "–", "–", "diverged at step 3, lr 9", "4 on toys", "toys"]


def test_what_no_run_has_has_no_column_once_a_run_has_ended():
    run = Run(settings={"lr": 0.1}, devices="", dataset="a text", num_examples=0)
    run.status = "running"
    assert "test accuracy" in runs_table([run]) and "examples/s" in runs_table([run])
    run.status = "finished"
    heads = re.findall('<th scope="col".*?>(.*?)</th>', runs_table([run]))
    assert heads == ["run", "status", "data"]
    other = Run(settings={"lr": 0.2}, devices="", dataset="a text", num_examples=0)
    other.status = "running"  # the table keeps its form
    assert re.findall('<th scope="col".*?>(.*?)</th>', runs_table([run, other])) == heads


def test_the_style_sheet_finds_columns_by_their_class_whichever_are_shown():
    run = Run(settings={"lr": 0.1}, devices="2 on toys", dataset="toys", num_examples=0, status="finished")
    for runs in ([run], [run, make_run()]):
        heads = re.findall(r'<th scope="col"(?: class="(\w+)")?>(.*?)</th>', runs_table(runs))
        cells = re.findall(r'<td(?: class="(\w+)")?>', runs_table(runs))
        assert [kind for kind, _ in heads][1:] * len(runs) == cells
        assert {kind: text for kind, text in heads if kind} == {name: name for name in ("status", "devices", "data")}
    assert "nth-child" not in _CSS and all(f".{name}" in _CSS for name in ("status", "devices", "data"))


def test_a_speed_up_is_over_one_device_with_the_same_work_and_never_over_what_ran_first():
    two, one = make_run(2, seconds=(2.0,)), make_run(1, seconds=(3.0,), lr=0.1, seed=3, num_epochs=9)
    assert np.isnan(speed_ups([two])).all() and speed_ups([two, one]) == [1.5, 1.0]
    other_batch, other_data = make_run(1, seconds=(9.0,), batch_size=64), make_run(1, seconds=(9.0,))
    other_data.num_examples = 12_000
    without_time = make_run(1, seconds=())
    assert np.isnan(speed_ups([two, other_batch, other_data, without_time])[0])
    assert speed_ups([two, one, make_run(1, seconds=(4.0,))])[0] == 2.0  # the newest one


def test_the_card_has_one_number_or_says_what_to_run():
    two, one = make_run(2, seconds=(2.0,)), make_run(1, seconds=(3.0,))
    assert "2 s<" in speed_up_card([two]) and "num_gpus</b> 1 to compare" in speed_up_card([two])
    assert "num_gpus</b> 2 to compare" in speed_up_card([one])
    for runs in ([two, one], [one, two], [make_run(4, seconds=(1.0,)), one, two]):
        card = speed_up_card(runs)
        assert "1.50×" in card and "as fast as one device" in card and "2 on toys" in card
        assert "2 devices</b>: 2 s per epoch" in card and "1 device</b>: 3 s per epoch" in card
        assert stroke(runs.index(two)) in card and stroke(runs.index(one)) in card  # which curves they are
    assert "2 s<" in speed_up_card([two], ["lr"]) and "to compare" not in speed_up_card([two], ["lr"])
    no_number_of_devices = Run(settings={"width": 8}, devices="", dataset="", num_examples=0, seconds=[1.0])
    assert speed_up_card([no_number_of_devices]) == ""


def test_the_card_names_the_control_that_sets_the_number_of_stages():
    two, one = make_run(2, seconds=(2.0,), num_stages=2), make_run(1, seconds=(3.0,), num_stages=1)
    assert "num_stages</b> 1 to compare" in speed_up_card([two]) and "num_gpus" not in speed_up_card([two])
    assert "1.50×" in speed_up_card([two, one]) and speed_ups([two, one]) == [1.5, 1.0]


def test_a_busy_machine_is_named_in_the_card_and_in_the_table(monkeypatch):
    monkeypatch.setattr("d2lite.training.run_record.num_cores", lambda: 2)
    two, one = make_run(2, seconds=(2.0,)), make_run(1, seconds=(3.0,))
    two.devices, two.other_programs = "2 replicas on 2 CPU cores", 0.83
    assert "Other programs, this page included, used 0.8 of 2 CPU cores" in speed_up_card([one, two])
    assert '<td class="devices">2 replicas on 2 CPU cores, busy with other programs</td>' in runs_table([one, two])
    for devices, cores in (
        ("2 replicas on 2 CPU cores", 0.2),
        ("2 GPUs", 5.0),
        ("2 replicas on 2 CPU cores", math.nan),
    ):
        two.devices, two.other_programs = devices, cores
        assert "Other programs" not in speed_up_card([one, two])
    one.devices, one.other_programs = "1 replica on 2 CPU cores", 1.2
    assert "Other programs" not in speed_up_card([one])  # it needs one core of two
    one.other_programs = 1.7
    assert "used 1.7 of 2" in speed_up_card([one])


def test_a_run_file_holds_everything_and_is_strict_json(tmp_path):
    runs = [make_run(1), make_run(2, seconds=(), accuracies=())]
    runs[1].losses.append(math.nan)
    path = save(runs, tmp_path / "runs.json", "train")
    saved = json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)
    assert saved["schema"] == SCHEMA and saved["function"] == "train" and "d2lite" in saved["versions"]
    one, two = saved["runs"]
    assert one["settings"]["lr"] == 0.2 and one["seed"] == 0 and one["label"] == "1 device · lr 0.2 · batch 512"
    assert one["accuracies"] == [0.5, 0.6, 0.7] and one["seconds"] == [4.0, 2.0, 3.0] and one["losses"] == [2.0]
    assert (one["devices"], one["dataset"], one["status"]) == ("1 on toys", "toys", "finished")
    assert one["examples_per_s"] == 2000 and one["versions"]["torch"]
    assert two["losses"] == [2.0, None] and two["test_accuracy"] is None and two["examples_per_s"] is None


def test_a_file_that_cannot_be_written_leaves_nothing_behind_and_the_old_one_complete(tmp_path, monkeypatch):
    path = save([make_run()], tmp_path / "runs.json")
    before = path.read_text()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save([make_run(), make_run()], path)
    assert os.listdir(tmp_path) == ["runs.json"] and path.read_text() == before


def test_two_saves_in_a_second_are_two_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-120000")
    names = [save([make_run()]).name for _ in range(3)]
    assert names == ["d2lite-runs-20260101-120000" + end for end in (".json", "-2.json", "-3.json")]


@pytest.mark.parametrize(
    ("ends", "step"),
    [((1, 2), 1), ((1, 3), 1), ((1, 10), 2), ((1, 500), 100), ((0, 100_000), 20_000), ((0, 0.3), 0.05), ((5, 5), 1)],
)
def test_ticks_stand_at_whole_numbers_and_are_few(ends, step):
    assert tick_step(*ends) == step


@pytest.mark.parametrize(("num_epochs", "step"), [(2, 1), (20, 5), (500, 100)])
def test_a_long_run_gets_few_ticks_from_its_start_on(num_epochs, step):
    """Hundreds of ticks would stop the page."""
    runs = [make_run(num_epochs=2), make_run(num_epochs=num_epochs, accuracies=())]
    assert training_curves.axes(runs)[1]["dtick"] == step


def test_the_ticks_of_curves_of_unknown_length_follow_their_points():
    run = Run(settings={}, devices="", dataset="", num_examples=0)
    assert training_curves.axes([run])[1]["dtick"] == 1
    for last, step in ((3, 1), (10_000, 2000)):
        run.curves = {"loss": {"x": [1, last], "y": [1.0, 0.5]}}
        assert training_curves.axes([run])[1]["dtick"] == step
