import math
import re
from pathlib import Path

import pytest

from book import papers
from book.papers import _MACS, CASES, TOLERANCE, compare, comparison_table, needed, predicted_efficiency

pytest.importorskip("torchvision")


@pytest.fixture(scope="module")
def rows():
    """Return {name of a case: row}."""
    return {row["case"]: row for row in compare()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_prediction_is_close_or_the_row_says_what_fails(case, rows):
    row = rows[case.name]
    assert 0 < row["predicted"] <= 100.1
    assert row["without overlap"] <= row["predicted"] + 1e-9
    assert math.isclose(row["difference"], row["predicted"] - case.published)
    if abs(row["difference"]) <= TOLERANCE:
        assert "needed" not in row and not case.fails
    else:
        assert len(case.fails) > 50
        assert row["needed"] and any(row["needed"].values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_input_has_a_source_or_is_called_assumed(case):
    assert {"published", "speed", "hosts", "links", "parameters"} <= set(case.sources)
    assert {"batch"} <= {*case.sources, *case.assumed}
    assert all(len(text) > 8 for text in (*case.sources.values(), *case.assumed.values()))
    for text in case.sources.values():
        assert "assum" not in text.lower() and "not in the paper" not in text


def test_the_largest_miss_of_each_publication_is_what_the_appendix_of_chapter_8_says(rows):
    chapter = (Path(papers.__file__).parent / "appendix" / "08-more-measurements.ipynb").read_text()
    for name, shown in (
        ("Horovod, VGG-16, 512 GPUs", "Horovod, VGG-16, 512 GPUs"),
        ("Goyal et al., ResNet-50, 8 to 256 GPUs", "Goyal et al., ResNet-50, 256 GPUs compared with 8"),
        ("DDP (NCCL), ResNet-50, 256 GPUs", "DDP, ResNet-50, 256 GPUs"),
    ):
        theirs = [row for row in rows.values() if row["case"].split()[0] == name.split()[0]]
        worst = max(theirs, key=lambda row: abs(row["difference"]))
        assert worst["case"] == name
        assert f"| {shown} | {worst['predicted']:.1f}% | {worst['published']:.0f}% |" in chapter


@pytest.mark.parametrize("case", [c for c in CASES if c.fails], ids=lambda case: case.name)
def test_what_is_needed_gives_the_published_figure(case):
    found = {what: value for what, value in needed(case).items() if value is not None}
    assert found
    for what, value in found.items():
        assert math.isclose(predicted_efficiency(case, **{what: value}), case.published, abs_tol=0.05)


def test_the_claim_about_vgg_stands_on_the_row_next_to_it(rows):
    assert abs(rows["Horovod, VGG-16, 128 GPUs"]["difference"]) < TOLERANCE
    assert rows["Horovod, VGG-16, 512 GPUs"]["difference"] > TOLERANCE


def test_the_table_shows_the_rows(rows):
    text = comparison_table(rows.values())
    for case in CASES:
        row = rows[case.name]
        line = next(line for line in text.splitlines() if line.startswith(f"| {case.name} |"))
        numbers = [float(found) for found in re.findall(r"\| ([-+]?[\d.]+)%? (?=\|)", line)]
        assert numbers[:3] == [round(row[name], 1) for name in ("predicted", "published", "difference")]
        assert (case.fails in text) == ("fails" in row or not case.fails)
    assert "predicted" in text and "arXiv:1706.02677" in text
    sourced, assumed = text.split("\nAssumed:\n")
    for case in CASES:
        assert all(said in sourced for said in case.sources.values())
        assert all(said in assumed for said in case.assumed.values())


def test_the_interpolation_stands_on_torchvision():
    from torchvision.models import ResNet50_Weights, ResNet101_Weights, ResNet152_Weights

    weights = {"ResNet-50": ResNet50_Weights, "ResNet-101": ResNet101_Weights, "ResNet-152": ResNet152_Weights}
    assert {name: 1e9 * w.IMAGENET1K_V1.meta["_ops"] for name, w in weights.items()} == pytest.approx(_MACS)
