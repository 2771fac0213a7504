"""The table of ranks: every number is a recorded one."""

from d2lite.figures.alternative_text import alternative_text
from d2lite.figures.svg import figure_svg
from d2lite.labs.chapter_14 import rank_traffic_figure
from d2lite.profiling import CollectiveCall


def test_cells_are_the_bytes_of_common_groups():
    pair, everyone = CollectiveCall("all_reduce", (0, 2), 4000.0), CollectiveCall("all_gather", (0, 1, 2), 600.0)
    figure = rank_traffic_figure([[pair, pair, everyone], [everyone], [pair, everyone]], "sent")
    assert [list(row) for row in figure.data[0].z] == [[0, 300, 8300], [300, 0, 300], [4300, 300, 0]]
    assert [list(row) for row in figure.data[0].text] == [
        ["", "300 B", "8.30 KB"],
        ["300 B", "", "300 B"],
        ["4.30 KB", "300 B", ""],
    ]
    words = alternative_text(figure)
    assert "rank 0 sends 8.30 KB in collectives with rank 2" in words
    assert "8.30 KB" in figure_svg(figure)


def test_nothing_sent():
    assert "no rank has sent anything" in alternative_text(rank_traffic_figure([[], []]))
