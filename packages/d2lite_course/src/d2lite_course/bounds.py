"""The bounds of a submission that is graded: memory, processes, files, and what it may print or send."""

__all__ = [
    "FILE_BYTES",
    "FOLDER_BYTES",
    "MEMORY_BYTES",
    "MEMORY_BYTES_OF_ALL",
    "PRINTED_BYTES",
    "PROCESSES",
    "SENT_BYTES",
]

MEMORY_BYTES = 2 * 2**30  # that an answer may add to its process
MEMORY_BYTES_OF_ALL = 4 * 2**30  # of all processes of a submission
PROCESSES = 100  # and threads, of all answers together
FOLDER_BYTES = 64 * 2**20  # of the only folder that can be written
FILE_BYTES = 16 * 2**20  # of a file that it may write
SENT_BYTES = 8_000_000  # that the process of an answer may send
PRINTED_BYTES = 100_000_000  # that the whole sandbox may print
