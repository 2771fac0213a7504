"""Wait for a server on this machine that another program has started."""

import time
import urllib.error
import urllib.request

__all__ = ["is_up"]


def is_up(process, url, seconds=120):
    """Wait until the server of a process answers; False if the process has ended, or does not answer in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    return False
