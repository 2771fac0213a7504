"""A fork does one thing and ends, whatever happens in it; the caller goes on."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no fork")
CODE = """
import os, sys
from notebook_ranks.forked import run_in_fork

def write(words):
    os.write(1, words)

def fail(number):
    raise ValueError(f"no {number}")

for function, argument in ((write, b"in the fork, "), (fail, 7), (sys.exit, 3), (os._exit, 5)):
    pid = run_in_fork(function, argument)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ", flush=True)
print("the end")
"""


def test_a_fork_never_comes_back():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.stdout == "in the fork, 1 1 1 5 the end\n"
    assert done.stderr.count("ValueError: no 7") == 1 and "SystemExit: 3" in done.stderr
