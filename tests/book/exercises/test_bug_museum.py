"""Every exhibit shows its symptom, and no other: lengths of steps, drifts, and where right code would be right."""

import functools

import pytest
import torch

from d2lite import lenet_params, replicate, train_batch
from d2lite.exercises import EXHIBITS, UNNAMED, show_changes
from d2lite.exercises.specifications import find_exercise, load
from d2lite.labs.chapter_11 import replica_drift
from d2lite.labs.chapter_11.bug_exhibit import DRIFT, LATER, LONG, NOTHING, SHORT, SIGNS, SIZES
from d2lite.labs.chapter_11.check_replicas import judge_replicas
from d2lite.labs.chapter_11.check_step import judge_step

noisy = load("bug_museum").noisy
CPU = torch.device("cpu")


def trained(exhibit, k, n, steps=1):
    """The replicas after some steps on the CPU."""
    generator, devices = torch.Generator().manual_seed(0), [CPU] * k
    step, make = (exhibit.train_batch, exhibit.replicate) if exhibit else (train_batch, replicate)
    device_params = make([p.double() for p in lenet_params()], devices)
    for _ in range(steps):
        X = torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64)
        step(X, torch.randint(0, 10, (n,), generator=generator), device_params, devices, 0.05)
    return device_params


def flat(params):
    return torch.cat([p.detach().flatten() for p in params])


def length(name, k, n=8):
    """How many times as long a step is as that of one device with right code, if it has the same direction."""
    begin = flat([p.double() for p in lenet_params()])
    own, right = flat(trained(EXHIBITS[name], k, n)[0]) - begin, flat(trained(None, 1, n)[0]) - begin
    assert torch.nn.functional.cosine_similarity(own, right, dim=0) > 1 - 1e-9
    return float(own.norm() / right.norm())


def is_right(name, k, n, steps=1):
    own, right = trained(EXHIBITS[name], k, n, steps), trained(None, 1, n, steps)[0]
    return all(torch.allclose(flat(params), flat(right), rtol=0, atol=1e-10) for params in own)


@pytest.mark.parametrize(
    ("name", "power"), [("sum for mean", 1), ("lr times k twice", 2), ("mean for sum", -1)]
)  # fmt: skip
def test_the_length_of_the_step_is_a_power_of_k(name, power):
    for k in (1, 2, 4):
        assert length(name, k) == pytest.approx(k**power)


@pytest.mark.parametrize("name", ["aliased replicas", "the published loop, on CPUs"])
def test_aliased_replicas_double_the_step_with_each_further_one(name):
    for k in (1, 2, 3, 4):
        assert length(name, k) == pytest.approx(2 ** (k - 1))
    replicas = trained(EXHIBITS[name], 2, 8)
    assert replica_drift(replicas) == 0 and judge_replicas(replicas).name == "aliased replicas"


@pytest.mark.parametrize(
    ("name", "right_at", "wrong_at"),
    [
        ("loss divided by the local batch", (2, 8), (2, 7)),
        ("examples left over are dropped", (2, 8), (2, 7)),
        ("pieces divided by their number", (2, 64), (2, 70)),
        ("pieces divided by their number", (1, 32), (1, 33)),
        ("chunk loses a device", (4, 7), (4, 6)),
    ],
)
def test_some_are_right_until_the_sizes_do_not_fit(name, right_at, wrong_at):
    assert is_right(name, *right_at) and not is_right(name, *wrong_at)


@pytest.mark.parametrize(
    "name", ["rebinding all-reduce", "no all-reduce", "update before all-reduce", "different initial weights"]
)
def test_some_let_replicas_drift_apart(name):
    drifts = [replica_drift(trained(EXHIBITS[name], 2, 8, steps)) for steps in (1, 3)]
    assert drifts[0] > 1e-4
    if name == "different initial weights":  # the updates are the same: they remain apart
        assert drifts[1] == pytest.approx(drifts[0], rel=0.05)
    else:
        assert drifts[1] > drifts[0]


def test_chunk_leaves_the_last_replica_behind():
    replicas = trained(EXHIBITS["chunk loses a device"], 4, 6)
    assert replica_drift(replicas[:3]) == 0 < replica_drift(replicas)
    assert torch.equal(flat(replicas[3]), flat([p.double() for p in lenet_params()]))


def test_the_first_replica_is_right_where_the_all_reduce_rebinds():
    first, second = trained(EXHIBITS["rebinding all-reduce"], 2, 8)
    right = flat(trained(None, 1, 8)[0])
    assert torch.allclose(flat(first), right, rtol=0, atol=1e-12)
    assert not torch.allclose(flat(second), right, rtol=0, atol=1e-5)


def test_a_forgotten_zero_grad_is_right_once():
    name = "forgotten zero_grad"
    assert is_right(name, 2, 7) and not is_right(name, 2, 7, steps=2)


def test_the_same_seed_gives_both_halves_the_same_noise():
    X = torch.zeros(4, 1, 28, 28)
    shards = [noisy(shard, seed=3) for shard in X.tensor_split(2)]
    assert torch.equal(*shards) and not torch.equal(*noisy(X, seed=3).tensor_split(2))
    assert replica_drift(trained(EXHIBITS["same random numbers on each replica"], 2, 8)) == 0


def test_there_are_fifteen_with_words_and_four_without_a_name():
    assert len(EXHIBITS) >= 15
    assert all(exhibit.symptom and exhibit.fix and exhibit.signs for exhibit in EXHIBITS.values())
    assert list(UNNAMED) == ["A", "B", "C", "D"] and {step.__name__ for step in UNNAMED.values()} == {"train_batch"}


@pytest.mark.parametrize("letter", ["A", "B", "C"])
def test_an_exhibit_without_a_name_is_what_the_exercise_takes_it_for(letter):
    assert judge_step(UNNAMED[letter]).name == find_exercise("11.3").solution(letter)


def test_the_exercise_has_the_names_of_all_exhibits():
    assert load("chapter_11")._NAMES == tuple(EXHIBITS)


def test_the_one_that_the_chapter_asks_about_has_the_symptoms_that_it_reads():
    """Both replicas are wrong after one step, and the gradients that they are left with are equal."""
    assert judge_step(UNNAMED["D"]).name == "update before all-reduce"
    right, replicas = flat(trained(None, 1, 8)[0]), trained(EXHIBITS["update before all-reduce"], 2, 8)
    assert all((flat(params) - right).abs().max() > 1e-9 for params in replicas)
    assert torch.equal(*(flat([p.grad for p in params]) for params in replicas))


def differs(exhibit, n, steps=1):
    """Whether the exhibit differs from its repaired code on four devices."""
    torch.manual_seed(0)
    own = trained(exhibit, 4, n, steps)
    right = trained(repaired(exhibit), 4, n, steps)
    return not all(torch.allclose(flat(p), flat(q), rtol=0, atol=1e-10) for p, q in zip(own, right, strict=True))


def repaired(exhibit):
    class Repaired:
        train_batch, replicate = staticmethod(exhibit.right_step), staticmethod(exhibit.right_replicate)

    return Repaired


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_signs_are_what_can_be_measured(name):
    exhibit = EXHIBITS[name]
    assert set(exhibit.signs) <= set(SIGNS)
    drifts = any(replica_drift(trained(exhibit, 4, n)) > 1e-6 for n in (64, 70, 6))
    assert drifts == (DRIFT in exhibit.signs)
    if LONG in exhibit.signs or SHORT in exhibit.signs:
        assert length(name, 4, 64) > 1.9 if LONG in exhibit.signs else length(name, 4, 64) < 0.6
    elif SIZES in exhibit.signs:
        assert not differs(exhibit, 64) and any(differs(exhibit, n) for n in (70, 6))
    elif LATER in exhibit.signs:
        assert not differs(exhibit, 64) and differs(exhibit, 64, steps=2)
    else:
        assert DRIFT in exhibit.signs or exhibit.signs == (NOTHING,)


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_repaired_code_passes_the_check(name):
    exhibit = EXHIBITS[name]
    step = exhibit.right_step
    if NOTHING in exhibit.signs:  # with its noise it cannot equal one device
        verdict = judge_step(step, exhibit.right_replicate)
        assert verdict.name == "different, cause unknown" and "draws random numbers" in verdict.words
        step = functools.partial(step, noise=0.0)
    verdict = judge_step(step, exhibit.right_replicate)
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_lines_that_differ_are_shown(name, capsys):
    show_changes(name)
    lines = capsys.readouterr().out.splitlines()
    assert 2 <= len(lines) <= 12 and any(line.startswith(("right: ", "wrong: ")) for line in lines)
    assert EXHIBITS[name].symptom in repr(EXHIBITS[name]) and "<details>" in EXHIBITS[name]._repr_html_()


def test_lines_of_the_backward_pass_and_of_the_copies_are_shown(capsys):
    show_changes("forgotten zero_grad")
    assert "in forward_backward:\nright: for param in params:\nright:     param.grad = None" in capsys.readouterr().out
    show_changes("aliased replicas")
    assert capsys.readouterr().out.startswith("in replicate:\nright: ")
    with pytest.raises(ValueError, match="name: expected one of sum for mean, .* got 'zero_grad'"):
        show_changes("zero_grad")


def test_noise_is_another_one_in_each_step():
    exhibit = EXHIBITS["same random numbers on each replica"]
    torch.manual_seed(0)
    first, second = (flat(trained(exhibit, 2, 8)[0]) for _ in range(2))
    assert not torch.equal(first, second)
