"""Compare real Horovod with chapter 6's forty lines, with DDP and with one process: the chapter's own cells do it.

make horovod runs this after tools/build_horovod.py. The exit status is 1 if the weights differ by more than rounding.
"""

import json
import os
import sys
from pathlib import Path

BOOK = Path(__file__).resolve().parent.parent / "book"
CELLS = ["setup", "names", "broadcast", "optimizer", "hvd", "steps", "check-alone", "check-ours"]
CELLS += ["ask-same", "check-ddp", "real"]


def main():
    notebook = json.loads((BOOK / "06-horovod.ipynb").read_text(encoding="utf-8"))
    sources = {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"]}
    os.chdir(BOOK)
    os.environ["D2LITE_LEDGER"] = "off"  # nobody answers the chapter's question here
    namespace = sys.modules["__main__"].__dict__  # functions of __main__ travel to the ranks by value
    try:
        for name in CELLS:
            exec(compile(sources[name], f"cell {name}", "exec"), namespace)
        return 0 if namespace["real"] is not None else 1
    except AssertionError as error:
        print(f"d2lite horovod: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
