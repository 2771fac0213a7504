"""The bounds of a submission that is graded: time, memory, processes, files, and what it may print or send.

The time of one answer is a part of its exercise (`limit_s`); the memory that it may add is bounded there, too.
"""

from d2lite.exercises.bounded import MEMORY_BYTES

__all__ = [
    "FILE_BYTES",
    "FOLDER_BYTES",
    "JOIN_S",
    "LINE_BYTES",
    "LOAD_S",
    "MEMORY_BYTES",
    "MEMORY_BYTES_OF_ALL",
    "PRINTED_BYTES",
    "PROCESSES",
    "SENT_BYTES",
    "SPARE_S",
    "START_S",
    "WHOLE_S",
]

MEMORY_BYTES_OF_ALL = 4 * 2**30  # of all processes of a submission
PROCESSES = 100  # and threads, of all answers together
FOLDER_BYTES = 64 * 2**20  # of the only folder that can be written
FILE_BYTES = 16 * 2**20  # of a file that it may write
SENT_BYTES = 8_000_000  # that the process of an answer may send
LINE_BYTES = 64_000_000  # of one message of the sandbox
PRINTED_BYTES = 100_000_000  # that the whole sandbox may print
START_S = 120.0  # to import PyTorch, on a machine that is busy
SPARE_S = 25.0  # for each exercise, on top of its own limit
LOAD_S = 20.0  # for the statements that an answer depends on
WHOLE_S = 60.0  # for all cells before the check
JOIN_S = 20.0  # for the ranks of an answer to find each other
