"""A plugin of pytest for nbval: a kernel that dies while it starts is started once more.

jupyter_client chooses ports that are free, and the kernel opens them a second later: another kernel or rank may have
taken one meanwhile. In a run of all tests one kernel died while it started; why was not printed.
"""

import functools

import nbval.kernel

__all__ = ["once_more"]


def once_more(start):
    """Return a function that calls `start` again if it raises a RuntimeError."""

    @functools.wraps(start)
    def started(*args, **kwargs):
        try:
            return start(*args, **kwargs)
        except RuntimeError:
            return start(*args, **kwargs)

    return started


def pytest_configure():
    nbval.kernel.start_new_kernel = once_more(nbval.kernel.start_new_kernel)
