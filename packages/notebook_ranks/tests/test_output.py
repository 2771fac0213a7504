"""What a rank writes reaches the cell: lines, bars, and what C code and child processes write."""

import os
import re
import subprocess
import sys
import time

import pytest

from notebook_ranks.output import LAST_CHARS, Cell, Output, append_output, last_output
from tests.by_value import by_value

TIMEOUT_S = 20  # of the pool

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")


@pytest.fixture
def written(tmp_path):
    """Return (output, messages, path): what is written to `path` counts as written past Python's streams."""
    path, messages = tmp_path / "rank-0.txt", []
    path.touch()
    with open(path, "rb+") as file:
        yield Output(lambda *message: messages.append(message), file), messages, path


def lines(messages):
    return [text for kind, text in messages if kind == "print"]


def test_lines_are_sent_when_they_end_and_the_rest_at_the_end_of_the_call(written):
    output, messages, _ = written
    print("a", "b", file=output)
    print("no end", end="", file=output)
    assert messages == [("print", "a b")]
    print(" yet\n\nthe rest", end="", file=output)
    output.end()
    output.end()
    assert lines(messages) == ["a b", "no end yet", "", "the rest"]


def test_many_pieces_of_one_line_take_linear_time(written):
    output, messages, _ = written

    def seconds(n):
        began = time.process_time()
        for i in range(n):
            print(i % 10, end="", file=output)
        output.end()
        return time.process_time() - began

    few, many = seconds(20_000), seconds(200_000)
    assert [len(line) for line in lines(messages)] == [20_000, 200_000]
    assert many < 40 * max(few, 0.01)  # 10 times the work; quadratic time is 100 times as long


def test_the_file_is_read_in_order_with_the_stream_and_in_whole_characters(written):
    output, messages, path = written
    for data in (b"from a child\n", "é".encode()[:1], "é".encode()[1:] + b"\n", b"\xff\n"):
        with open(path, "ab") as file:
            file.write(data)
        output.write("")
    output.write("from Python\n")
    assert lines(messages) == ["from a child", "é", "\ufffd", "from Python"]


def test_the_file_is_emptied_after_a_call_that_wrote_much(written, monkeypatch):
    output, messages, path = written
    monkeypatch.setattr("notebook_ranks.output.MOST_BYTES", 100)
    for call, size in enumerate((0, 50, 0)):
        with open(path, "ab") as child:
            child.write(b"x" * (150 if call == 0 else 49) + b"\n")
            if call == 2:
                child.write(b"x" * 49 + b"\n")
        output.end()
        assert path.stat().st_size == size
    assert [len(line) for line in lines(messages)] == [150, 49, 49, 49]


@pytest.mark.slow
def test_a_rank_s_file_is_emptied_and_written_again(pool):
    def fn(n):
        os.system(f"head -c {n} /dev/zero | tr '\\0' x; echo; echo end")

    size = by_value(lambda: os.fstat(1).st_size)
    pool.run(by_value(fn), 11_000_000)
    assert pool.run(size) == [0, 0]
    pool.run(by_value(fn), 10)
    assert pool.run(size) == [15, 15]


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        (["\r 1/2", "\r 2/2", "\n"], " 2/2"),
        ([" 1/2\r", " 2/2\r", "\n"], " 2/2"),
        (["\rab", "cd\n"], "abcd"),
        (["ab\r", "cd\n"], "cd"),
        (["of Windows\r\n"], "of Windows"),
    ],
)
def test_a_carriage_return_overwrites_the_line(written, pieces, line):
    output, messages, _ = written
    for piece in pieces:
        output.write(piece)
    output.end()
    assert lines(messages) == [line]


def test_the_states_of_a_bar_are_sent_but_not_more_than_ten_a_second(written):
    output, messages, _ = written
    began = time.monotonic()
    for i in range(1000):
        output.write(f"\r{i}/1000")
    output.write("\r1000/1000\n")
    bars = [text for kind, text in messages if kind == "bar"]
    assert bars[0] == "0/1000" and len(bars) <= 2 + 10 * (time.monotonic() - began)
    assert lines(messages) == ["1000/1000"]


def test_a_bar_that_clears_itself_leaves_no_line(written):
    output, messages, _ = written
    output.write("\r1/2")
    output.write("\r   \r")
    output.end()
    assert lines(messages) == []


def test_the_cell_overwrites_a_bar_wholly(capsys):
    cell = Cell()
    cell.show(0, "bar", "a long bar")
    cell.show(1, "print", "short")
    cell.show(0, "print", "x")
    assert capsys.readouterr().out == "[rank 0] a long bar\r[rank 1] short     \n[rank 0] x\n"


def test_all_that_a_rank_and_its_children_write_reaches_the_cell_in_order(pool, capfd):
    def speak():
        import logging
        import multiprocessing
        import subprocess
        import sys

        print("one")
        os.system("echo two")
        os.write(2, b"three\n")
        subprocess.run(["echo", "four"], stdout=sys.stdout, check=True)
        sys.stdout.buffer.write(b"five\n")
        logging.warning("six")  # its handler keeps the stream of the first call
        child = multiprocessing.get_context("fork").Process(target=print, args=("seven",))
        child.start()
        child.join()
        pid = os.fork()
        if pid == 0:
            print("eight")
            os._exit(0)
        os.waitpid(pid, 0)

    for _ in range(2):
        pool.run(by_value(speak))
        out = capfd.readouterr().out
        for rank in (0, 1):
            mine = re.findall(rf"^\[rank {rank}\] (.*)$", out, re.M)
            assert mine == ["one", "two", "three", "four", "five", "WARNING:root:six", "seven", "eight"]


def test_output_of_a_child_and_a_bar_move_while_the_rank_computes(pool, monkeypatch):
    def slow():
        import subprocess
        import sys

        from tqdm import tqdm

        subprocess.run(["sh", "-c", "echo begins; sleep 0.6; echo ends"], check=True)
        for _ in tqdm(range(6), file=sys.stderr, mininterval=0):
            time.sleep(0.1)

    shown = []
    monkeypatch.setattr(Cell, "show", lambda self, rank, kind, text: shown.append((time.monotonic(), rank, kind, text)))
    pool.run(by_value(slow))
    mine = [(at, kind, text) for at, rank, kind, text in shown if rank == 1]
    begins, ends = (next(at for at, _, text in mine if text == name) for name in ("begins", "ends"))
    assert 0.3 < ends - begins
    bars = [text for _, kind, text in mine if kind == "bar"]
    assert len(bars) >= 3 and bars[0].startswith("  0%")
    assert mine[-1][1] == "print" and mine[-1][2].startswith("100%")


def test_the_last_words_of_a_rank_that_dies_are_kept(pool):
    from notebook_ranks.failures import WorkersError

    def die():
        os.system("echo last words >&2")
        os._exit(3)

    with pytest.raises(WorkersError, match=r"rank \d died \(exit code 3\)\. Its last output: last words"):
        pool.run(by_value(die))


def test_the_last_output_of_a_process_is_bounded(tmp_path):
    path = tmp_path / "rank-0.txt"
    assert last_output(path) == ""
    path.write_bytes(b"begin\xff\r\nend")
    assert last_output(path) == "begin\ufffd\r\nend"
    path.write_text("a" + "\N{GRINNING FACE}" * LAST_CHARS, encoding="utf-8")  # of four bytes each
    assert last_output(path) == "\N{GRINNING FACE}" * LAST_CHARS


def test_what_a_process_and_its_children_write_is_appended(tmp_path):
    path = tmp_path / "rank-0.txt"
    path.write_text("before\n")
    code = f"from {append_output.__module__} import append_output; import os; append_output({str(path)!r}); "
    code += "os.write(1, b'one\\n'); os.write(2, b'two\\n'); os.system('echo three')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert path.read_text() == "before\none\ntwo\nthree\n"
