"""Tables of what a cell has computed: HTML in a notebook, aligned columns in a terminal."""

import pytest

from d2lite.figures import html_table
from d2lite.figures.table import Table

HEADER = ["net", "size", "remark"]


def test_numbers_are_aligned_on_the_right_and_texts_on_the_left():
    table = html_table([("LeNet", "516 KB", "small"), ("MLP, wide", "1.2 MB", "")], HEADER)
    assert isinstance(table, Table)
    assert str(table).splitlines() == ["net          size  remark", "LeNet      516 KB  small", "MLP, wide  1.2 MB"]
    html = table._repr_html_()
    assert '<td class="number">516 KB</td><td>small</td>' in html and html.count('scope="row"') == 2
    assert "word-break: normal" in html  # what is printed wraps between words, on a page without widgets, too


def test_signs_powers_and_missing_numbers_are_numbers_and_shapes_are_none():
    html = html_table([("a", "-1.5e-07", (1, 2)), ("b", "–", (3, 4)), ("c", "+12%", (5,))], HEADER)._repr_html_()
    assert html.count('<td class="number">') == 3 and "<td>(1, 2)</td>" in html


def test_nothing_in_a_cell_is_markup_and_no_row_is_shown():
    html = html_table([("<img src=x>", 1, "&")], ["<b>", "n", "&"])._repr_html_()
    assert "<img" not in html and "&lt;img" in html and "<b>" not in html
    assert (
        str(html_table([], HEADER)) == "net  size  remark" and "<tbody></tbody>" in html_table([], HEADER)._repr_html_()
    )


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="rows: expected 3 cells, as there are heads, got 2 in row 1"):
        html_table([(1, 2, 3), (1, 2)], HEADER)
    with pytest.raises(ValueError, match="header: expected the head of each column, got none"):
        html_table([], [])
