"""Chapter 7's puzzle: a job that is started with one mistake, which the reader finds in its log. Do not read on."""

__all__ = ["PUZZLE", "is_cause", "mistake_in"]

PUZZLE = {"interface": "eth7", "join_timeout_s": 10}
_SIGNS = ("client socket has timed out", "EADDRINUSE", "Unable to find address", "Signal 9")  # one per mistake


def mistake_in(log):
    """Return the number of the mistake whose sign is in a log, in the order of the chapter's choices; None for none."""
    return next((i for i, sign in enumerate(_SIGNS) if sign in log), None)


def is_cause(line):
    """Return whether a line of the log is the worker's own error."""
    return _SIGNS[2] in line
