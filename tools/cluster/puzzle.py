"""Chapter 7's puzzle: a job that is started with one mistake, which the reader finds in its log. Do not read on."""

__all__ = ["PUZZLE"]

PUZZLE = {"interface": "eth7", "join_timeout_s": 10}
