"""Compare real Horovod with chapter 6's forty lines, with DDP and with one process: the chapter's own cells do it.

make horovod runs this after tools/build_horovod.py. The exit status is 1 if the weights differ by more than rounding.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

BOOK = Path(__file__).resolve().parent.parent / "book"
CELLS = ["setup", "names", "broadcast", "optimizer", "hvd", "steps", "check-alone", "check-ours"]
CELLS += ["ask-same", "check-ddp"]


def real_weights():
    """Run `book/scripts/horovod_lenet.py` on two ranks of real Horovod, and return its weights; None if not built."""
    horovod = BOOK.parent / ".horovod"
    if not (horovod / ".d2lite-stamp").exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        horovodrun = [horovod / "bin/horovodrun", "--gloo", "-np", "2", horovod / "bin/python"]
        command = [*horovodrun, BOOK / "scripts/horovod_lenet.py", f"{folder}/weights.pt"]
        subprocess.run(command, check=True, timeout=120)
        return torch.load(f"{folder}/weights.pt")


def main():
    notebook = json.loads((BOOK / "06-horovod.ipynb").read_text(encoding="utf-8"))
    sources = {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"]}
    os.chdir(BOOK)
    os.environ["D2LITE_LEDGER"] = "off"  # nobody answers the chapter's question here
    namespace = sys.modules["__main__"].__dict__  # functions of __main__ travel to the ranks by value
    try:
        for name in CELLS:
            exec(compile(sources[name], f"cell {name}", "exec"), namespace)
        namespace["workers"].close()  # their memory and cores are for other ranks now
        real = real_weights()
        if real is None:
            print("Real Horovod is not built here: make horovod", file=sys.stderr)
            return 1
        given = {"our forty lines": namespace["ours"][0], "DDP": namespace["ddp"][0], "one process": namespace["alone"]}
        for name, weights in given.items():
            differ = namespace["difference"](real, weights)
            print(f"real Horovod and {name} differ by {differ:.0e}")
            assert differ < 1e-9, f"real Horovod and {name} disagree"
        return 0
    except AssertionError as error:
        print(f"d2lite horovod: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
