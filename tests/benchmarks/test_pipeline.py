"""The record of pipelines: one short measurement, whose counts are those of the plan."""

import pytest

from benchmarks.records import pipeline
from tests.ranks import NEEDS_RANKS

pytestmark = NEEDS_RANKS


@pytest.mark.slow
def test_a_row_has_the_memory_of_the_plan_and_a_bubble(capsys):
    pipeline.main(["--steps", "2", "--microbatches", "4"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[2].startswith("| GPipe | 4 |") and lines[3].startswith("| 1F1B | 4 |")
    for line, planned in zip(lines[2:], ((4, 4), (2, 1)), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert 0 < float(cells[4]) < 1 and cells[6] == "0.200"
        held = [float(cell.removesuffix(" MB")) for cell in cells[7:]]
        assert held[0] == pytest.approx(held[1], rel=0.01) and held[2] == pytest.approx(held[3], rel=0.01)
        assert held[1] / held[3] == pytest.approx(planned[0] / planned[1], rel=0.1)
