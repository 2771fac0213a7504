"""Compare what `snippets.py` prints with `snippets-h200.json`, the record of a real GPU."""

import builtins
import json
import math
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["RECORD", "differs", "outcomes"]

HERE = Path(__file__).parent
RECORD = json.loads((HERE / "snippets-h200.json").read_text())["outcomes"]


def outcomes(**environment):
    """Return what the snippets print in a process with these variables."""
    env, command = {**os.environ, **environment}, [sys.executable, str(HERE / "snippets.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _close(a, b):
    if isinstance(a, float) and isinstance(b, (float, int)):
        return math.isclose(a, b, rel_tol=2e-3, abs_tol=2e-3) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_close(a[key], b[key]) for key in a)
    return a == b


def _is_a(name, recorded):
    """Whether an error is of the recorded type: some PyTorch raises its subclass, or has no AcceleratorError."""
    kinds = [getattr(builtins, n, RuntimeError if n == "AcceleratorError" else None) for n in (name, recorded)]
    return name == recorded or (None not in kinds and issubclass(kinds[0], kinds[1]))


def differs(name, found, words=True):
    """Say how the outcome of a snippet differs from the recorded one; None if it does not.

    `words` compares the first lines of errors as well; two that name a device are alike.
    """
    recorded = RECORD[name]
    if ("error" in recorded) != ("error" in found):
        return f"recorded {recorded}, found {found}"
    if "value" in recorded:
        return None if _close(recorded["value"], found["value"]) else f"recorded {recorded}, found {found}"
    if not _is_a(found["error"], recorded["error"]):
        return f"recorded {recorded['error']}, found {found['error']}: {found['says']}"
    says = recorded["says"], found["says"]
    alike = says[0][:35] == says[1][:35] or all("device" in text for text in says)
    return None if alike or not words else f"recorded {says[0]!r}, found {says[1]!r}"
