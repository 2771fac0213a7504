import json
import re
import subprocess
import sys

import nbformat
import psutil
import pytest

from benchmarks.memory import memory_of
from benchmarks.records import memory_per_learner
from benchmarks.records.memory_per_learner import TABLE, chapter_peaks, needed_megabytes, table
from benchmarks.report import RESULTS

RECORD = {
    "server": {"private": 100, "files": 30, "hub": 200},
    "chapters": {"10": {"private": 900, "files": 300}, "2": {"private": 500, "files": 400}},
}
KEPT = RESULTS / "memory-per-learner-2-cores.json"


def test_each_learner_needs_a_server_and_a_kernel_and_all_share_the_files():
    assert needed_megabytes(RECORD, "2", 1) == 500 + 100 + 400 + 30 + 200
    assert needed_megabytes(RECORD, "2", 5) == 5 * (500 + 100) + 400 + 30 + 200


def test_the_table_has_the_chapters_in_their_order():
    rows = [line.strip("| ").split(" | ") for line in table(RECORD).splitlines()[2:]]
    assert rows[0] == ["2", "0.50 GB", "0.40 GB", "2.4 GB", "6.6 GB", "18.6 GB"]
    assert rows[1][0] == "10"


def test_the_table_for_teachers_is_that_of_the_record():
    _, shown, _ = memory_per_learner.TEACHING.read_text().split(TABLE)
    assert shown.strip() == table(json.loads(KEPT.read_text())), "run the command in the record once more"


def test_a_server_with_any_chapter_fits_into_the_limit_on_the_page_for_teachers():
    record, words = json.loads(KEPT.read_text()), memory_per_learner.TEACHING.read_text()
    limit = float(re.search(r'c.Spawner.mem_limit = "(\d+)G"', words)[1])
    peak = max(peaks["private"] for peaks in record["chapters"].values()) + record["server"]["private"]
    assert peak / 1000 < limit - 0.5


MAKES_60_MB = "import sys; kept = bytearray(60_000_000); print(len(kept), flush=True); sys.stdin.read()"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_the_memory_of_a_child_counts_and_its_files_do_not_count_twice():
    me = psutil.Process()
    before = memory_of(me)
    command = [sys.executable, "-c", MAKES_60_MB]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        found = memory_of(me)
        child.stdin.close()
    assert found["private"] - before["private"] > 50e6
    assert abs(found["files"] - before["files"]) < 20e6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_the_peak_of_a_notebook_is_found(tmp_path):
    cells = [
        nbformat.v4.new_code_cell(code) for code in ("import time", "x = b'1' * 200_000_000; time.sleep(2); del x")
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebook.ipynb")
    peaks = chapter_peaks(tmp_path / "notebook.ipynb")
    assert 200 < peaks["private"] < 400 and 0 < peaks["files"] < 400
