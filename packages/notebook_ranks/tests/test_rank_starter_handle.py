"""A fork of the notebook gives up the starters, and closes nothing else."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
BEGIN = """
    import os, warnings
    from notebook_ranks.rank_starter_handle import StarterHandle
    warnings.simplefilter("ignore")  # a fork in a process with threads
    starter = StarterHandle(1)
    number = starter.tempdir[1]

    def open_file_with_the_number():
        os.dup2(os.open(os.devnull, os.O_RDONLY), number)

    def status_of_a_fork():
        if pid := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.fstat(number)  # raises OSError if it is closed
        os._exit(7)
"""
AFTER_THE_END = """
    starter.end()  # and kept: as the traceback of a failed call keeps it
    open_file_with_the_number()
    print(status_of_a_fork())
"""
IN_A_FORK_OF_A_FORK = """
    if pid := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        starter.end()
    else:
        open_file_with_the_number()
        os._exit(status_of_a_fork())
"""


@pytest.mark.slow
@pytest.mark.parametrize("then", [AFTER_THE_END, IN_A_FORK_OF_A_FORK], ids=["after the end", "in a fork of a fork"])
def test_a_fork_closes_no_file_that_got_the_number_of_a_lock(then):
    code = "".join(map(textwrap.dedent, (BEGIN, then)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
