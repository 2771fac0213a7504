import json
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2lite.costs.alpha_beta import Device, Link
from d2lite.labs.chapter_08.step import predict_step
from d2lite.labs.chapter_08.workloads import Workload
from d2lite.labs.chapter_16.prediction_card import (
    Measured,
    PredictionCard,
    card_from_json,
    card_of_step,
    compare_with_measured,
    measured_from_json,
)

CARD = PredictionCard(
    "an MLP, 512 examples",
    {"data": 2},
    compute_s=0.2,
    num_messages=4,
    latency_s=0.005,
    n_bytes=10_000_000,
    bandwidth_bytes_per_s=1e8,
    hidden_s=0.05,
    straggler_s=0.01,
)
AS_PREDICTED = {"compute_s": [0.2, 0.21], "latency_s": 0.005, "bandwidth_bytes_per_s": 1e8, "communication_s": 0.12}


def cluster(compute=0.2, straggler=0.05, latency=0.005, bandwidth=1e8, congestion=1.0, hidden=0.05, k=2, messages=4):
    """The fields of a cluster whose step is the sum of its ingredients, an oracle that knows no card.

    `congestion` is by how much communication is slower than latency and bandwidth explain.
    """
    n_bytes = 10_000_000
    communication_s = congestion * (messages * latency + n_bytes / bandwidth)
    compute_s = [compute] * (k - 1) + [compute + straggler]
    return {
        "step_s": [max(compute_s) + communication_s - hidden],
        "compute_s": compute_s,
        "latency_s": latency,
        "bandwidth_bytes_per_s": bandwidth,
        "communication_s": communication_s,
    }


def card_of(compute=0.2, straggler=0.05, latency=0.005, bandwidth=1e8, congestion=1.0, hidden=0.05, k=2, messages=4):
    """The card that predicts this cluster; without congestion, which no card can predict."""
    assert congestion == 1
    return PredictionCard(
        "",
        {"data": k},
        compute_s=compute,
        num_messages=messages,
        latency_s=latency,
        n_bytes=10_000_000,
        bandwidth_bytes_per_s=bandwidth,
        hidden_s=hidden,
        straggler_s=straggler,
    )


ingredients = st.fixed_dictionaries(
    {
        "compute": st.floats(0.1, 1),
        "straggler": st.floats(0.05, 0.3),
        "latency": st.floats(1e-3, 0.05),
        "bandwidth": st.floats(1e7, 1e9),
        "k": st.integers(2, 9),
        "messages": st.integers(1, 20),
    }
)
TERMS = ("compute", "straggler", "latency", "bandwidth", "congestion", "overlap")
factors = st.floats(0.02, 0.5) | st.floats(2, 50)


def changed(drawn, name, factor, hidden):
    """Return (the cluster as predicted, the cluster with one ingredient changed): arguments of `cluster`."""
    drawn = drawn | {"congestion": 1.0}
    field = "hidden" if name == "overlap" else name
    other = drawn | ({field: factor * drawn[field]} if field != "hidden" else {})
    most = min(
        least
        for args in (drawn, other)
        for least in (args["compute"], args["messages"] * args["latency"] + 1e7 / args["bandwidth"])
    ) * min(1.0, other["congestion"])
    drawn, other = drawn | {"hidden": hidden * most}, other | {"hidden": hidden * most}
    if field == "hidden":
        other["hidden"] = min(factor * drawn["hidden"], most)
    return drawn, other


@given(drawn=ingredients, name=st.sampled_from(TERMS), factor=factors, hidden=st.floats(0.3, 1))
def test_one_wrong_ingredient_is_the_culprit_and_no_other(drawn, name, factor, hidden):
    right, wrong = changed(drawn, name, factor, hidden)
    card, measured = card_of(**right), Measured(**cluster(**wrong))
    verdict = compare_with_measured(card, measured)
    difference = measured.step_s[0] - card.seconds
    assert math.isclose(sum(verdict.terms.values()), difference, abs_tol=1e-9 * (card.seconds + measured.step_s[0]))
    assert verdict.terms["not known"] == 0 and verdict.factors == {}
    if abs(difference) > 0.1001 * card.seconds:
        assert not verdict.holds and verdict.culprit == name
        assert math.isclose(verdict.terms[name], difference, rel_tol=1e-6)
        assert f"The culprit is the {name}" in verdict.words and str(verdict) == verdict.words
    elif abs(difference) < 0.0999 * card.seconds:
        assert verdict.holds and verdict.culprit is None and "The prediction holds." in verdict.words


@given(
    drawn=ingredients,
    changes=st.lists(st.tuples(st.sampled_from(TERMS[:5]), factors), min_size=2, max_size=4),
    hidden=st.floats(0, 1),
)
def test_of_several_wrong_ingredients_none_that_was_right_is_accused(drawn, changes, hidden):
    drawn = drawn | {"congestion": 1.0}
    wrong = dict(drawn)
    for name, factor in changes:
        wrong[name] *= factor
    most = min(min(cluster(**args)["communication_s"], args["compute"]) for args in (drawn, wrong))
    measured = Measured(**cluster(**wrong, hidden=hidden * most))
    verdict = compare_with_measured(card_of(**drawn, hidden=hidden * most), measured)
    assert verdict.culprit in (None, *(name for name, _ in changes))
    if verdict.culprit:
        blamed = verdict.terms[verdict.culprit]
        assert blamed / (verdict.measured_s - verdict.predicted_s) > 0.5
        assert all(2 * abs(s) <= abs(blamed) for name, s in verdict.terms.items() if name != verdict.culprit)


NETS = st.lists(st.tuples(st.integers(10**5, 10**7), st.integers(10**4, 10**7)), min_size=2, max_size=6).map(
    lambda found: Workload("drawn", *zip(*found, strict=True))
)


@given(
    net=NETS,
    k=st.integers(2, 8),
    compute_s=st.floats(0.01, 1),
    link=st.builds(Link, st.floats(1e-5, 1e-2), st.floats(1e7, 1e9)),
    name=st.sampled_from(["compute", "latency", "bandwidth", "overlap"]),
    factor=factors,
)
def test_a_step_with_buckets_never_accuses_what_is_right(net, k, compute_s, link, name, factor):
    def step(compute_s, latency_s, bandwidth, overlap):
        device = Device(net.flops / compute_s)
        return predict_step(net, 1, k, device, Link(latency_s, bandwidth), overlap=overlap, caps=(1,))

    right = {"compute": compute_s, "latency": link.latency_s, "bandwidth": link.bandwidth_bytes_per_s, "overlap": True}
    wrong = right | {name: False if name == "overlap" else factor * right[name]}
    real = step(*wrong.values())
    card = card_of_step("drawn", step(*right.values()), k, link)
    measured = Measured([real.seconds], [wrong["compute"]] * k, wrong["latency"], wrong["bandwidth"])
    measured = Measured(**vars(measured) | {"communication_s": real.communication_s})
    verdict = compare_with_measured(card, measured)
    assert verdict.culprit in (None, name)
    if name == "overlap":
        assert verdict.holds or verdict.culprit == name


def test_a_card_is_the_predicted_step():
    net, link = Workload("two layers", (1_000_000, 3_000_000), (1, 1)), Link(0.25, 1e6)
    step = predict_step(net, 1, 4, Device(6.0, 0.5), link, caps=(1,), wait_s=0.125)
    card = card_of_step("two layers, one example", step, 4, link)
    assert card.mesh == {"data": 4} and card.num_messages == 12 and card.n_bytes == 6_000_000
    assert card.compute_s == 2.5 and card.straggler_s == 0.125 and card.hidden_s > 0
    assert math.isclose(card.seconds, step.seconds)
    for k, other in ((2, link), (4, Link(0.5, 1e6))):
        with pytest.raises(ValueError, match=r"step: expected .* of communication, that of the ring on .*, got 9 s"):
            card_of_step("", step, k, other)
    with pytest.raises(TypeError, match="step: expected StepPrediction"):
        card_of_step("", 1.0, 4, link)
    with pytest.raises(TypeError, match="link: expected Link"):
        card_of_step("", step, 4, 1.0)


def test_two_terms_of_like_size_leave_it_open():
    measured = cluster(latency=0.035, bandwidth=5e7, straggler=0.01)
    verdict = compare_with_measured(CARD, Measured(**measured))
    assert verdict.culprit is None and not verdict.holds
    assert "Not sure which term is wrong: the largest are latency (+120 ms) and bandwidth (+100 ms)." in verdict.words
    assert "measure" not in verdict.words.partition("Not sure")[2]  # all was measured


def test_a_term_that_is_smaller_than_the_others_together_is_no_culprit():
    card = card_of(straggler=0)
    verdict = compare_with_measured(card, Measured(**cluster(compute=0.245, straggler=0.045, bandwidth=5e7)))
    assert verdict.culprit == "bandwidth" and verdict.terms["bandwidth"] == pytest.approx(0.1)
    measured = cluster(compute=0.245, straggler=0.045, bandwidth=5e7, latency=0.016)
    verdict = compare_with_measured(card, Measured(**measured))
    assert verdict.culprit is None and "the largest are bandwidth (+100 ms) and compute (+45 ms)" in verdict.words


def test_errors_that_cancel_are_named():
    verdict = compare_with_measured(CARD, Measured(**cluster(compute=0.3, straggler=0.01, bandwidth=1e9)))
    assert verdict.holds and verdict.culprit is None
    assert "The prediction holds. But its terms do not: compute +100 ms and bandwidth -90 ms cancel." in verdict.words


def test_an_error_in_one_direction_cancels_nothing():
    measured = cluster(straggler=0.01, bandwidth=1e9)
    verdict = compare_with_measured(CARD, Measured([CARD.seconds, *measured.pop("step_s") * 2], **measured))
    assert verdict.holds and verdict.terms["bandwidth"] == pytest.approx(-0.09) and "cancel" not in verdict.words


def test_steps_of_a_wide_spread_do_not_contradict():
    steps = [0.2 + 0.02 * i for i in range(30)]  # 0.2 to 0.78, the median is 0.49
    assert statistics.median(steps) > 1.5 * CARD.seconds
    verdict = compare_with_measured(CARD, Measured(steps, **AS_PREDICTED))
    assert verdict.holds and "The prediction holds: most steps take 260 ms to 720 ms." in verdict.words
    for n in (5, 20):  # one step that is as long as predicted is no spread
        assert not compare_with_measured(CARD, Measured([0.5] * (n - 1) + [CARD.seconds])).holds
    assert compare_with_measured(CARD, Measured([0.5, 0.5, CARD.seconds])).holds


@given(noise=st.lists(st.floats(-0.09, 0.09), min_size=1, max_size=20))
def test_noise_is_no_error(noise):
    steps = [CARD.seconds * (1 + x) for x in noise]
    verdict = compare_with_measured(CARD, Measured(steps, **AS_PREDICTED))
    assert verdict.holds and verdict.culprit is None


def test_the_step_alone_accuses_nobody_and_says_what_each_term_would_have_to_be():
    verdict = compare_with_measured(CARD, Measured([CARD.seconds + 0.1]))
    assert verdict.culprit is None and list(verdict.terms) == ["not known"]
    expected = {"compute": 1.5, "straggler": 11, "latency": 6, "bandwidth": 0.5, "congestion": 0.22 / 0.12}
    assert verdict.factors == pytest.approx(expected)  # the overlap of 50 ms cannot be 100 ms less
    assert "The step time alone names no term." in verdict.words
    assert "compute 1.5 times as long; straggler 11 times as long; latency 6 times as long" in verdict.words
    assert "bandwidth 0.5 times as large; congestion 1.83 times as long as latency and bandwidth" in verdict.words
    assert "To decide, measure compute_s (each rank's step without communication), latency_s" in verdict.words


def test_a_factor_is_what_the_card_would_need():
    for seconds in (0.23, 0.34, 0.5):
        factors = compare_with_measured(CARD, Measured([seconds])).factors
        fields = {"compute": "compute_s", "straggler": "straggler_s", "latency": "latency_s", "overlap": "hidden_s"}
        fields["bandwidth"] = "bandwidth_bytes_per_s"
        for name, factor in factors.items():
            if name != "congestion":
                other = PredictionCard(**vars(CARD) | {fields[name]: factor * getattr(CARD, fields[name])})
                assert math.isclose(other.seconds, seconds)


def test_what_cannot_make_a_step_so_short_is_left_out():
    factors = compare_with_measured(CARD, Measured([CARD.seconds - 0.08])).factors
    assert factors == pytest.approx({"compute": 0.6, "bandwidth": 5})  # the latency is 20 ms, the rest of hidden 70 ms


def test_a_term_of_which_nothing_is_predicted_has_no_finite_factor():
    card = PredictionCard(
        "", {"data": 2}, compute_s=0.2, num_messages=4, latency_s=0.0, n_bytes=10_000_000, bandwidth_bytes_per_s=1e8
    )
    verdict = compare_with_measured(card, Measured([0.5]))
    assert verdict.factors["straggler"] == verdict.factors["latency"] == math.inf
    assert "straggler +200 ms, where none is predicted" in verdict.words
    alone = PredictionCard(
        "", {"data": 1}, compute_s=0.2, num_messages=0, latency_s=0.0, n_bytes=0, bandwidth_bytes_per_s=1e8
    )
    assert set(compare_with_measured(alone, Measured([0.5])).factors) == {"compute", "straggler"}


def test_what_is_measured_is_told_from_what_is_not():
    compute_s = [0.4, 0.41]
    verdict = compare_with_measured(CARD, Measured([CARD.seconds + 0.2], compute_s))
    assert verdict.culprit == "compute" and verdict.terms["not known"] == 0
    verdict = compare_with_measured(CARD, Measured([CARD.seconds + 0.4], compute_s))
    assert verdict.culprit is None and verdict.terms["not known"] == pytest.approx(0.2)
    assert "compute" not in verdict.factors and "latency" in verdict.factors
    assert "To decide, measure latency_s (of one message), bandwidth_bytes_per_s and communication_s" in verdict.words
    # communication was measured, but not its parts
    verdict = compare_with_measured(CARD, Measured([CARD.seconds + 0.2], [0.2, 0.21], communication_s=0.32))
    assert verdict.culprit is None and verdict.terms["overlap"] == pytest.approx(0)
    assert set(verdict.factors) == {"latency", "bandwidth", "congestion"}


def test_a_step_that_is_longer_than_its_parts_accuses_no_term():
    verdict = compare_with_measured(CARD, Measured([1.0], **AS_PREDICTED))
    assert verdict.culprit is None and verdict.terms["overlap"] == pytest.approx(CARD.hidden_s)
    assert verdict.terms["not known"] == pytest.approx(1 - 0.21 - 0.12)
    assert "none of the measurements: reading the data, for example." in verdict.words
    # and one that is shorter than its computation
    verdict = compare_with_measured(CARD, Measured([0.1], **AS_PREDICTED))
    assert verdict.culprit is None and verdict.terms["not known"] == pytest.approx(0.1 - 0.21)


def test_one_slow_rank_of_many_is_a_straggler_and_all_slow_ranks_are_compute():
    card = card_of(k=4, straggler=0)
    rest = {name: value for name, value in cluster(k=4, straggler=0).items() if name not in ("step_s", "compute_s")}
    slow = Measured([card.seconds + 0.3], [0.2, 0.5, 0.2, 0.2], **rest)
    assert compare_with_measured(card, slow).culprit == "straggler"
    slow = Measured([card.seconds + 0.3], [0.5, 0.5, 0.5, 0.5], **rest)
    assert compare_with_measured(card, slow).culprit == "compute"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compute": 0.4}, "compute: +200 ms. A typical rank computes for 400 ms, predicted 200 ms."),
        ({"straggler": 0.4}, "straggler: +350 ms. The slowest rank takes longer by 400 ms, predicted 50 ms."),
        ({"latency": 0.1}, "latency: +380 ms. That of a message is 100 ms, predicted 5 ms."),
        ({"bandwidth": 2.5e7}, "bandwidth: +300 ms. It is 25.0 MB/s, predicted 100 MB/s."),
        ({"congestion": 2.0}, "congestion: +120 ms. That is the communication beyond what its latency and"),
        ({"hidden": 0}, "overlap: +50 ms. The communication that runs beside the computation takes 0 ms, predicted 50"),
    ],
)
def test_the_words_have_both_values(changes, words):
    assert words in compare_with_measured(card_of(), Measured(**cluster(**changes))).words


def test_cards_and_measurements_travel_as_text():
    assert card_from_json(CARD.to_json()) == CARD
    measured = Measured([0.3, 0.4], **AS_PREDICTED)
    assert measured_from_json(measured.to_json()) == measured
    only = Measured([0.3])
    assert measured_from_json(only.to_json()) == only and "compute_s" not in only.to_json()
    assert only.to_json() == '{"schema": "d2lite-measured/1",\n "step_s": [0.3]}'  # short enough for a cell
    of_numpy = PredictionCard(
        "",
        {"data": np.int64(2)},
        compute_s=np.float32(0.5),
        num_messages=np.int64(4),
        latency_s=0,
        n_bytes=np.int64(10),
        bandwidth_bytes_per_s=np.float64(1),
    )
    assert card_from_json(of_numpy.to_json()) == of_numpy


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"what": 3}, TypeError, "what: expected str, got 3"),
        ({"mesh": [2]}, TypeError, "mesh: expected dict, got"),
        ({"mesh": {}}, ValueError, "mesh: expected one dimension or more, .* got none"),
        ({"mesh": {3: 2}}, TypeError, "mesh: expected str, got 3"),
        ({"mesh": {"data": 0}}, ValueError, r"mesh\['data'\]: expected a positive whole number, got 0"),
        ({"compute_s": 0}, ValueError, "compute_s: expected a finite number above 0, got 0"),
        ({"num_messages": 2.5}, TypeError, "num_messages: expected a whole number from 0 on, got 2.5"),
        ({"latency_s": -1}, ValueError, "latency_s: expected a finite number from 0 on, got -1"),
        ({"n_bytes": math.nan}, ValueError, "n_bytes: expected a finite number from 0 on, got nan"),
        ({"bandwidth_bytes_per_s": 0}, ValueError, "bandwidth_bytes_per_s: expected a finite number above 0, got 0"),
        ({"straggler_s": math.inf}, ValueError, "straggler_s: expected a finite number from 0 on, got inf"),
        ({"hidden_s": "0"}, TypeError, "hidden_s: expected a finite number from 0 on, got '0'"),
        ({"hidden_s": 0.13}, ValueError, r"hidden_s: expected no more than the communication, 120 ms, got 130 ms"),
        ({"compute_s": 0.01}, ValueError, r"hidden_s: expected no more than the computation, 10 ms, got 50 ms"),
        ({"n_bytes": 1e308, "bandwidth_bytes_per_s": 1e-9}, ValueError, "the card: expected a step that ends, got inf"),
    ],
)
def test_a_wrong_card_is_refused(changes, error, text):
    with pytest.raises(error, match=text):
        PredictionCard(**vars(CARD) | changes)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"step_s": []}, ValueError, "step_s: expected 1 or more, got 0"),
        ({"step_s": 0.3}, TypeError, "step_s: expected a list, got 0.3"),
        ({"step_s": [0.3, 0]}, ValueError, r"step_s\[1\]: expected a finite number above 0, got 0"),
        ({"compute_s": []}, ValueError, "compute_s: expected 1 or more, got 0"),
        ({"compute_s": ["1"]}, TypeError, r"compute_s\[0\]: expected a finite number above 0, got '1'"),
        ({"latency_s": -1}, ValueError, "latency_s: expected a finite number from 0 on, got -1"),
        ({"bandwidth_bytes_per_s": 0}, ValueError, "bandwidth_bytes_per_s: expected a finite number above 0, got 0"),
        ({"communication_s": math.inf}, ValueError, "communication_s: expected a finite number from 0 on, got inf"),
    ],
)
def test_a_wrong_measurement_is_refused(fields, error, text):
    with pytest.raises(error, match=text):
        Measured(**{"step_s": [0.3]} | fields)


def edited(**changes):
    """The text of CARD with some fields changed; those that are None are left out."""
    found = json.loads(CARD.to_json()) | changes
    return json.dumps({name: value for name, value in found.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text: expected JSON, got an error: Expecting value"),
        (CARD.to_json()[:-3], "text: expected JSON, got an error: .* Paste all of it, braces included."),
        ("[" * 100_000, "text: expected JSON, got an error: maximum recursion depth"),
        ("7" * 10_000, "text: expected JSON, got an error: Exceeds the limit"),
        (" " * 1_000_001, "text: expected at most 1,000,000 characters, got 1,000,001"),
        ("[1]", 'text: expected an object with "schema": "d2lite-prediction/1", got \'None\''),
        ("{}", 'text: expected an object with "schema": "d2lite-prediction/1", got \'None\''),
        (edited(schema="d2lite-prediction/2"), "text: expected an object .*, got 'd2lite-prediction/2'"),
        (Measured([0.3]).to_json(), "text: expected an object .*, got 'd2lite-measured/1'"),
        (edited(what=None, hidden_s=None), "text: expected the fields what, .*, got none for what, hidden_s"),
        (edited(price=3), "text: expected no fields but what, .*, got 'price' as well"),
        (edited(compute_s=math.nan), "text: expected JSON, got an error: NaN is not a number"),
        (edited().replace("10000000.0", "1e999"), "n_bytes: expected a finite number from 0 on, got inf"),
        (edited().replace("10000000.0", "9" * 4000), "n_bytes: expected a finite number from 0 on, got inf"),
        (edited(compute_s="0.2"), "text: compute_s: expected a finite number above 0, got '0.2'"),
        (edited(mesh=[2]), "text: mesh: expected dict"),
        (edited(compute_s=0), "compute_s: expected a finite number above 0, got 0"),
        (edited().replace('"mesh"', '"what"'), "text: expected JSON, got an error: a field is there twice"),
    ],
)
def test_a_wrong_text_of_a_card_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        card_from_json(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "d2lite-measured/1"}', "text: expected the fields step_s, got none for step_s"),
        ('{"schema": "d2lite-measured/1", "step_s": ["1"]}', r"text: step_s\[0\]: expected a finite number above 0"),
        ('{"schema": "d2lite-measured/1", "step_s": [1], "x": 1}', "text: expected no fields but step_s, .*, got 'x'"),
        (CARD.to_json(), 'text: expected an object with "schema": "d2lite-measured/1", got \'d2lite-prediction/1\''),
    ],
)
def test_a_wrong_text_of_a_measurement_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        measured_from_json(text)


@given(text=st.text() | st.recursive(st.none() | st.floats() | st.text(), lambda x: st.lists(x)).map(json.dumps))
def test_any_other_text_is_a_value_error(text):
    for read in (card_from_json, measured_from_json):
        with pytest.raises(ValueError, match="^text: expected"):
            read(text)


def test_what_is_no_text_is_refused():
    for read in (card_from_json, measured_from_json):
        with pytest.raises(TypeError, match="text: expected str, got b''"):
            read(b"")


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(ValueError, match=r"measured.compute_s: expected 6 numbers, one per rank of .*, got 2"):
        compare_with_measured(
            PredictionCard(**vars(CARD) | {"mesh": {"data": 3, "tensor": 2}}), Measured([0.3], [0.2, 0.2])
        )
    with pytest.raises(TypeError, match="card: expected PredictionCard"):
        compare_with_measured({}, Measured([0.3]))
    with pytest.raises(TypeError, match="measured: expected Measured"):
        compare_with_measured(CARD, {"step_s": [0.3]})
