"""A kernel that dies while it starts is started once more, and not again."""

import pytest

from tests.book.kernel_start import once_more


def test_a_second_start_is_tried_and_no_third():
    ends, calls = [RuntimeError("Kernel died"), "manager and client", RuntimeError("1"), RuntimeError("2")], []

    def start(name, **facts):
        calls.append((name, facts))
        end = ends[len(calls) - 1]
        if isinstance(end, RuntimeError):
            raise end
        return end

    assert once_more(start)("python3", cwd="book") == "manager and client"
    assert calls == [("python3", {"cwd": "book"})] * 2
    with pytest.raises(RuntimeError, match="2"):
        once_more(start)("python3")
    assert len(calls) == 4
