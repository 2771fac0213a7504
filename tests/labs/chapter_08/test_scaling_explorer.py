import pytest

pytest.importorskip("ipywidgets")
pytest.importorskip("plotly")
pytest.importorskip("anywidget")

from d2lite.costs.alpha_beta import COST_FORMULAS, Device, Link  # noqa: E402
from d2lite.costs.hardware import DEVICES, LINKS, find_device, find_link  # noqa: E402
from d2lite.labs.chapter_08.scaling import Setup, describe_scaling, predict_scaling  # noqa: E402
from d2lite.labs.chapter_08.scaling_explorer import ScalingExplorer  # noqa: E402
from d2lite.labs.chapter_08.scaling_figure import STEP_PARTS, efficiency_figure, predicted_and_measured, step_figure  # noqa: E402
from d2lite.widgets.live_figure import close_all  # noqa: E402

LENET = Setup("LeNet", 256, is_global=True)


@pytest.fixture
def explorer():
    """A Scaling explorer of LeNet, its widgets closed afterwards."""
    explorer = ScalingExplorer(k=8, network="LeNet", batch_size=256, is_global=True)
    yield explorer
    close_all(explorer.view)


def drawn(explorer):
    """What both figures show: {GPUs: efficiency}, the mark, and {part: milliseconds of each bar}."""
    line, mark = explorer.efficiency.figure.data
    bars = {bar.name: list(bar.x) for bar in explorer.step.figure.data}
    return dict(zip(line.x, line.y, strict=True)), (mark.x[0], mark.y[0]), bars


def check(explorer, setup, k):
    assert explorer.setup == setup
    efficiencies, mark, bars = drawn(explorer)
    expected = {n: predict_scaling(setup, n) for n in efficiencies}
    assert efficiencies == {n: found and found.efficiency for n, found in expected.items()}
    assert mark == (k, expected[k] and expected[k].efficiency)
    shown = [o for o in (predict_scaling(setup, 1), expected[k] if k > 1 else None) if o]
    parts = [(o.step.overhead_s, o.step.compute_s, o.step.exposed_s, o.step.wait_s) for o in shown]
    assert [tuple(bars[part][i] for part in STEP_PARTS) for i in range(len(shown))] == [
        tuple(1e3 * value for value in values) for values in parts
    ]
    assert explorer.summary.value == describe_scaling(setup, k, explorer.controls["price"].value)


def test_it_shows_the_model_of_what_its_controls_say(explorer):
    check(explorer, LENET, 8)
    changes = {
        "network": ("MLP, three layers of 4096", "network"),
        "device": (find_device("A100, TF32"), "device"),
        "batch_size": (512, "batch_size"),
        "per_host": (4, "per_host"),
        "inside": (find_link("PCIe 3 x16"), "inside"),
        "across": (find_link("Ethernet 10 Gb/s, RDMA"), "across"),
        "algorithm": ("two-level", "algorithm"),
        "overlap": (False, "overlap"),
    }
    expected = dict(network="LeNet", batch_size=256, is_global=True)
    for control, (value, field) in changes.items():
        explorer.controls[control].value = value
        expected[field] = value
        check(explorer, Setup(**expected), 8)
    explorer.controls["overhead_ms"].value = 5.0
    explorer.controls["spread"].value = 10.0
    explorer.controls["price"].value = 2.5
    check(explorer, Setup(**expected, overhead_s=0.005, spread=0.1), 8)
    explorer.controls["shared"].value = "each GPU"
    check(explorer, Setup(**expected | {"is_global": False}, overhead_s=0.005, spread=0.1), 8)


@pytest.mark.parametrize("k", (1, 2, 256, 512, 10_000))
def test_any_number_of_gpus(explorer, k):
    explorer.controls["k"].value = k
    check(explorer, LENET, k)


def test_wrong_numbers_do_no_harm(explorer):
    for name in ("overhead_ms", "spread", "price"):
        explorer.controls[name].value = -1.0
        assert explorer.controls[name].value == 0.0
    check(explorer, LENET, 8)


def test_all_presets_and_algorithms_can_be_chosen(explorer):
    for name, presets in (("device", DEVICES), ("inside", LINKS), ("across", LINKS)):
        assert [preset for _, preset in explorer.controls[name].options] == list(presets)
    assert tuple(explorer.controls["algorithm"].options) == tuple(COST_FORMULAS)


def test_the_learners_own_machine_can_be_explored():
    own = dict(device=Device(5e10, name="one core"), inside=Link(3e-4, 1e9, "loopback"))
    explorer = ScalingExplorer(k=2, network="LeNet", batch_size=100, **own)
    assert explorer.controls["device"].options[-1][0] == "one core"
    check(explorer, Setup("LeNet", 100, **own), 2)
    close_all(explorer.view)


def test_figures_say_predicted():
    found = {n: predict_scaling(LENET, n) for n in (1, 2, 8)}
    for figure in (efficiency_figure(found, 8), step_figure(found[1], found[8])):
        assert "predicted" in figure.layout.title.text
        assert all("predicted" in trace.hovertemplate for trace in figure.data)
    lanes = [note.text for note in step_figure(found[1], found[8]).layout.annotations if "ms" in note.text]
    assert lanes == [f"{name}: {1e3 * found[k].step.seconds:.3g} ms" for k, name in ((1, "1 GPU"), (8, "8 GPUs"))]


def test_predicted_and_measured_stand_on_the_same_axes():
    predicted = {(64, 1): 0.02, (128, 1): 0.04, (64, 2): 0.015}
    measured = {(64, 1): 0.021, (64, 2): 0.016}
    figure = predicted_and_measured(predicted, measured, "LeNet")
    shown = {trace.name: dict(zip(trace.x, trace.y, strict=True)) for trace in figure.data}
    assert shown == {
        "1 rank, predicted": {64: 20.0, 128: 40.0},
        "1 rank, measured": {64: 21.0},
        "2 ranks, predicted": {64: 15.0},
        "2 ranks, measured": {64: 16.0},
    }
    assert {trace.mode for trace in figure.data if "measured" in trace.name} == {"markers"}
    assert figure.data[0].line.dash == "dash" and figure.layout.title.text == "LeNet"
