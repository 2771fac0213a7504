import pytest

from notebook_ranks.shared.format import format_bytes, format_money, format_number, format_seconds


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 KB"), (904_544, "905 KB"), (999_600, "1.00 MB"), (13_844_480, "13.8 MB"),
     (9_996, "10.0 KB"), (99_960, "100 KB"), (2.06e9, "2.06 GB"), (1e12, "1.00 TB")],
)  # fmt: skip
def test_format_bytes(n_bytes, text):
    assert format_bytes(n_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (1e-12, "0 ms"), (5e-6, "5 µs"), (0.0128, "12.8 ms"), (1, "1 s"), (119, "119 s"), (120, "2 min"),
     (7200, "2 h"), (9_000_000, "2,500 h")],
)  # fmt: skip
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.123"), (99.4, "99.4"), (1234.6, "1,235")])
def test_format_number(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(("amount", "text"), [(0.0123, "0.012"), (0.5, "0.50"), (1234.5, "1,234.50")])
def test_format_money(amount, text):
    assert format_money(amount) == text
