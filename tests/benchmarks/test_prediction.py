import pytest

from benchmarks import prediction
from d2lite.costs.alpha_beta import Device
from d2lite.labs.chapter_08 import calibration as this_machine
from d2lite.labs.chapter_08.workloads import named_workload


def test_no_step_is_predicted_from_itself():
    for _, sizes, others in prediction.NETWORKS.values():
        for k in prediction.RANKS:
            assert not {size / k for size in sizes} & {size // k for size in others}
            assert all(size % k == 0 for size in sizes)


def test_the_wide_mlp_is_bound_by_sending():
    found = prediction._workload("wide MLP")
    assert found.total_n_bytes == 4 * (784 * 2048 + 2048 + 2048**2 + 2048 + 2048 * 10 + 10)
    assert found.flops / found.total_n_bytes < named_workload("LeNet").flops / named_workload("LeNet").total_n_bytes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_are_measured_and_predicted_on_this_machine(monkeypatch):
    make_net = prediction.NETWORKS["LeNet"][0]
    monkeypatch.setattr(prediction, "NETWORKS", {"LeNet": (make_net, (4,), (2, 6, 8))})
    monkeypatch.setattr(prediction, "RANKS", (1, 2))
    # made-up fits, however busy the machine is; steps are really measured
    monkeypatch.setattr(this_machine, "time_all_reduces", _made_up)
    monkeypatch.setattr(
        this_machine, "fit_device", lambda times, flops, name: Device(flops * max(n / s for n, s in times))
    )
    rows = prediction.rows(n=1, num_steps=4)
    assert [row.name for row in rows] == [f"LeNet, minibatch 4, {k}, step" for k in ("1 rank", "2 ranks")]
    for row in rows:
        assert row.peer_name == "predicted" and row.unit == "ms"
        error = row.peer[0] / row.ours[0] - 1
        assert row.note == f"prediction {error:+.0%}"
        assert row.holds == (abs(error) <= prediction.TOLERANCE)


def _made_up(sizes):
    return [(n_bytes, 1e-4 + n_bytes / 1e9) for n_bytes in sizes]
