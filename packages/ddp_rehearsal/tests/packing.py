"""Values of made-up prints, as those that an observer writes."""

import struct


def packed(*values):
    """Return numbers as one text, 16 hexadecimal digits each."""
    return struct.pack(f"{len(values)}d", *values).hex()
