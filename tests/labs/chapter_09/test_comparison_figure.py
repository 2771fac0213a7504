"""Bands over seeds, and the heat map: every number in them is given."""

import pytest

from d2lite.figures.alternative_text import alternative_text
from d2lite.figures.palette import GREY, PALETTE
from d2lite.figures.svg import figure_svg
from d2lite.labs.chapter_09 import Arm, Trial, bands_figure, compare_arms, heat_map_figure, intervals_figure

TRIALS = {
    "a <b>": [Trial(Arm("a"), 0, [0.2, 0.6]), Trial(Arm("a"), 1, [0.4, 0.8])],
    "b": [Trial(Arm("b"), 0, [0.5, 0.5])],
    "c": [],
}


def test_bands_are_from_the_lowest_to_the_highest_seed_around_the_mean():
    figure = bands_figure(TRIALS, 6000, "examples seen", "title")
    low, high, mean = figure.data[:3]
    assert (list(low.y), list(high.y), list(mean.y)) == ([0.2, 0.6], [0.4, 0.8], pytest.approx([0.3, 0.7]))
    assert list(mean.x) == [3000, 6000] and high.fill == "tonexty"
    assert mean.name == "a &lt;b&gt; (2 seeds)" and figure.data[5].name == "b (1 seed)"
    assert len(figure.data) == 9 and len(figure.data[8].x) == 0
    assert "a <b> (2 seeds): 2 points, from 0.3 at 3000" in alternative_text(figure)
    assert "a &lt;b&gt;</text>" in figure_svg(figure)


def test_seeds_that_are_not_done_shorten_the_curve():
    figure = bands_figure({"a": [Trial(Arm("a"), 0, [0.2, 0.6]), Trial(Arm("a"), 1, [0.4])]}, 10, "seconds")
    assert list(figure.data[2].y) == pytest.approx([0.3])


def test_a_star_marks_the_best_rate_of_each_complete_column():
    cells = {(32, 0.1): 0.7, (32, 0.2): 0.8, (64, 0.1): 0.9, (64, 0.2): 0.6, (128, 0.1): 0.5}
    figure = heat_map_figure([32, 64, 128], [0.1, 0.2], cells, "title")
    heat, stars = figure.data
    assert [list(row) for row in heat.z] == [[70.0, 90.0, 50.0], [80.0, 60.0, None]]
    assert list(stars.y) == [1, 0] and [round(x) for x in stars.x] == [0, 1]
    assert list(figure.layout.xaxis.ticktext) == ["32", "64", "128"]
    assert list(figure.layout.yaxis.ticktext) == ["0.1", "0.2"]
    words = alternative_text(figure)
    assert "70 90 50" in words and "80 60" in words
    assert ">90</text>" in figure_svg(figure)


def test_an_empty_heat_map_can_be_drawn():
    figure = heat_map_figure([32], [0.1], {})
    assert figure.data[0].z[0][0] is None and "svg" in figure_svg(figure)


def test_a_lane_has_the_interval_of_its_pair_and_a_dot_for_each_seed():
    one, other = [0.7013, 0.7224, 0.7131, 0.7052], [0.6513, 0.6714, 0.6641, 0.6552]
    figure = intervals_figure({"<b>": (one, other), "equal": (one, one[::-1])}, "title")
    interval, seeds, mean = figure.data[:3]
    found = compare_arms(one, other, paired=True)
    assert list(interval.x) == [round(100 * found.low, 1), round(100 * found.high, 1)]
    assert list(seeds.x) == [-5, -5.1, -4.9, -5] and list(mean.x) == [-5]
    assert found.is_shown and {y for trace in figure.data[:3] for y in trace.y} == {"&lt;b&gt;: -5.0, shown"}
    low, high = figure.layout.xaxis.range
    assert low < min(interval.x) and high > 0
    assert "equal: +0.0, not shown: 99% interval" in alternative_text(figure)
    assert figure_svg(figure).count("<circle") == 10


def test_only_what_is_shown_has_a_colour():
    base = [0.7013, 0.7224, 0.7131, 0.7052]
    figure = intervals_figure(
        {"higher": (base, [x + 0.05 + 0.002 * (x - 0.7) for x in base]), "equal": (base, base[::-1])}
    )
    assert [trace.line.color or trace.marker.color for trace in figure.data] == [PALETTE[0]] * 3 + [GREY] * 3


def test_arms_of_different_numbers_of_seeds_are_no_pair():
    with pytest.raises(ValueError, match="one per seed of a, got 1|two seeds or more"):
        intervals_figure({"a": ([0.7, 0.8], [0.7])})
