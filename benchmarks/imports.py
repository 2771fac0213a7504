"""What the import of d2lite's training costs over `import torch`, each in a process of its own."""

import subprocess
import sys
from pathlib import Path

from benchmarks.report import Row, rounds

__all__ = ["HEAVY", "rows"]

ROOT = Path(__file__).parent.parent
HEAVY = ("torchvision", "plotly", "ipywidgets", "IPython")  # not loaded before they are used
_STATEMENTS = {"d2lite": "from d2lite import Workers, train", "torch": "import torch"}
_CODE = """
import sys, time
start = time.perf_counter()
{statement}
print(time.perf_counter() - start, *(name for name in {heavy} if name in sys.modules))
"""


def rows(n=7):
    """Return the row of the import, of `n` pairs of fresh processes after one of each."""
    loaded = set()

    def seconds(module):
        code = _CODE.format(statement=_STATEMENTS[module], heavy=HEAVY)
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        time_s, *heavy = done.stdout.split()
        loaded.update(heavy if module == "d2lite" else ())
        return float(time_s)

    contestants = {name: lambda name=name: seconds(name) for name in ("d2lite", "torch")}
    times = rounds(contestants, n, warm_up=contestants)
    note = "loaded with it: " + ", ".join(sorted(loaded)) if loaded else "none of " + ", ".join(HEAVY) + " loaded"
    return [
        Row(
            "import d2lite",
            "s",
            times["d2lite"],
            times["torch"],
            "import torch",
            ("ratio", 1.1),
            holds=not loaded,
            note=note,
        )
    ]
