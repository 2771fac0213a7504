import json
import re

import pytest

from benchmarks import quotes
from benchmarks.quotes import QUOTES, Quote


@pytest.mark.parametrize("quote", QUOTES, ids=lambda q: q.template[:50])
def test_figures_in_the_words_are_those_of_the_results(quote):
    found = [quote.find(text) for text in quotes.texts(quotes.ROOT / quote.file)]
    (match,) = [m for m in found if m]
    assert list(match.groups()) == quote.figures_now(), "run: python -m benchmarks.quotes"


def test_every_row_of_the_measurements_is_quoted():
    page = quotes.texts(quotes.ROOT / "docs" / "measurements.md")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ") and re.search(r"\d", line.split("|")[2])]
    covered = [row for row in rows if any(quote.find(row) for quote in QUOTES)]
    assert len(rows) > 10 and rows == covered, [row for row in rows if row not in covered]


def test_a_quote_is_written_into_markdown_and_notebooks(tmp_path, monkeypatch):
    monkeypatch.setattr(quotes, "RESULTS", tmp_path)
    rows = [{"name": "row", "peer_name": "peer", "ours": [1.0, 2.0, 4.0], "peer": [8.0], "ratios": [0.5]}]
    (tmp_path / "run.json").write_text(json.dumps({"rows": rows}))
    figures = (("run", "row", "peer", "median ours"), ("run", "row", "peer", "max peer"))
    for name in ("a.md", "a.ipynb"):
        quote = Quote(name, "it took {:.1f} s, not {:.0f} s.", figures)
        text = "Before.\nIt is so: it took 17.25 s,\nnot 3 s. After 5 s."
        cells = {"cells": [{"cell_type": "markdown", "source": text.splitlines(keepends=True)}]}
        (tmp_path / name).write_text(text if name == "a.md" else json.dumps(cells))
        quotes.write(quote, tmp_path)
        assert quotes.texts(tmp_path / name) == ["Before.\nIt is so: it took 2.0 s,\nnot 8 s. After 5 s."]
        with pytest.raises(LookupError, match="expected the words 'gone {:.1f}'"):
            quotes.write(Quote(name, "gone {:.1f}", figures[:1]), tmp_path)
    with pytest.raises(LookupError, match="expected one row 'other'"):
        quotes.value("run", "other", "peer", "min ours")
