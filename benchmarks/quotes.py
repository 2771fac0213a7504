"""The figures that README and chapters quote: `python -m benchmarks.quotes` writes them from the result files.

Each quote is a template for a few words of a file, and the values for its gaps. A test compares the words with the
results, so that neither changes without the other.
"""

import json
import re
import statistics
from dataclasses import dataclass

from benchmarks.report import RESULTS

__all__ = ["QUOTES", "Quote", "main", "texts", "value", "write"]

ROOT = RESULTS.parents[1]
LENET = "lenet-2-cores"
TWO, ONE = "LeNet, s/epoch, 2 replicas", "LeNet, s/epoch, 1 replica"
PLAIN, FOUR = f"{TWO}, train_batch in a plain loop", "LeNet, s/epoch, 4 replicas"
USUAL = "usual loop, DataLoader with 4 workers"
DDP = "DDP in a notebook, LeNet, 2 ranks, 256 a rank, the fastest epoch"


@dataclass(frozen=True)
class Quote:
    """Words of `file` with gaps for figures, such as "{:.1f} s per epoch".

    Each of `figures` is (result file, row, peer of the row, what): "median ours", "min ratios", ... "max peer".
    """

    file: str
    template: str
    figures: tuple[tuple[str, str, str, str], ...]

    def figures_now(self):
        """Return the texts of the figures, from the result files."""
        gaps = re.findall(r"\{:[^}]*\}", self.template)
        return [gap.format(value(*figure)) for gap, figure in zip(gaps, self.figures, strict=True)]

    def find(self, text):
        """Return the match of the words in `text`, one group per figure; None if they are not there.

        A space of the template may be any white space.
        """
        pieces = [r"\s+".join(map(re.escape, piece.split(" "))) for piece in re.split(r"\{:[^}]*\}", self.template)]
        return re.search(r"([\d.,]*\d)".join(pieces), text)

    def written(self, text):
        """Return `text` with the figures of the result files; raise LookupError if the words are not there."""
        found = self.find(text)
        if found is None:
            raise LookupError(f"{self.file}: expected the words {self.template!r}. Change the template with the words.")
        for i, figure in reversed(list(enumerate(self.figures_now(), start=1))):
            text = text[: found.start(i)] + figure + text[found.end(i) :]
        return text


def value(result, row, peer, what):
    """Return one figure of a result file: the median, min or max of a row's ours, peer or ratios."""
    rows = json.loads((RESULTS / f"{result}.json").read_text())["rows"]
    found = [r for r in rows if r["name"] == row and r["peer_name"] == peer]
    if len(found) != 1:
        raise LookupError(f"{result}: expected one row {row!r} with the peer {peer!r}, got {len(found)}.")
    how, field = what.split()
    return {"median": statistics.median, "min": min, "max": max}[how](found[0][field])


def _spread(result, row, peer, field="ratios"):
    return tuple((result, row, peer, f"{how} {field}") for how in ("median", "min", "max"))


QUOTES = (
    Quote(
        "README.md",
        "{:.1f} s per epoch, {:.2f} ({:.2f} to {:.2f}) of the usual loop ({:.1f} s: DataLoader with 4 workers",
        ((LENET, TWO, USUAL, "median ours"), *_spread(LENET, TWO, USUAL), (LENET, TWO, USUAL, "median peer")),
    ),
    Quote(
        "README.md",
        "| the same, two replicas against one, in `train` | {:.2f} times as fast ({:.2f} to {:.2f})",
        _spread(LENET, TWO, "1 replica"),
    ),
    Quote(
        "README.md",
        "| `train_batch` in a plain loop, two replicas against one | {:.2f} times as fast ({:.2f} to {:.2f})",
        _spread(LENET, PLAIN, "1 replica, plain loop"),
    ),
    Quote(
        "README.md",
        "| four replicas on two cores against two | {:.2f} times the time ({:.2f} to {:.2f})",
        _spread(LENET, FOUR, "2 replicas"),
    ),
    Quote(
        "README.md",
        "{:.3f} s (DataLoader: {:.1f} s)",
        tuple(
            (LENET, "iterator, s for 60,000 examples", "DataLoader with 4 workers", f"median {field}")
            for field in ("ours", "peer")
        ),
    ),
    Quote(
        "README.md",
        "| `import d2lite` over `import torch` | {:.2f} ({:.2f} to {:.2f})",
        _spread("cpu-2-cores", "import d2lite", "import torch"),
    ),
    Quote(
        "README.md",
        "against the same under torchrun | {:.3f} times as fast ({:.2f} to {:.2f};",
        _spread("ranks-2-cores", DDP, "torchrun"),
    ),
    Quote(
        "README.md",
        "two ranks against one | {:.2f} times as fast ({:.2f} to {:.2f};",
        _spread("ranks-2-cores", DDP, "1 rank"),
    ),
    Quote(
        "README.md",
        "| two ranks, from nothing to the first all-reduce | {:.1f} s ({:.1f} to {:.1f})",
        _spread("starts-2-cores", "2 ranks, from nothing to the first all-reduce", "", "ours"),
    ),
    Quote(
        "README.md",
        "over the same without [batch mode](d2lite/workers/batch_mode.py) | {:.1f} times as fast ({:.1f} to {:.1f})",
        _spread("starts-2-cores", "all-reduce of 0.4 MB, 2 ranks", "no batch mode"),
    ),
    Quote(
        "README.md",
        "| one `Animator.add` | {:.2f} ms (d2l 1.0.3: {:.0f} ms)",
        tuple(("cpu-2-cores", "Animator.add", "d2l 1.0.3", f"median {field}") for field in ("ours", "peer")),
    ),
    Quote(
        "README.md",
        "| memory of the kernel in chapter 2, peak | {:,.0f} MB",
        (("cpu-2-cores", "chapter 2, kernel, peak", "", "max ours"),),
    ),
    Quote(
        "README.md",
        "one epoch of all pictures, kernel and ranks together | {:,.0f} MB, {:,.0f} MB",
        tuple(
            ("cpu-2-cores", f"a panel and {k} ranks, LeNet, one epoch of all data, peak", "", "max ours")
            for k in (2, 4)
        ),
    ),
    Quote(
        "book/02-data-parallel-from-scratch.ipynb",
        "the medians of five rounds were {:.1f} s per epoch with one device, {:.1f} s with two and {:.1f} s with four.",
        (
            (LENET, ONE, USUAL, "median ours"),
            (LENET, TWO, USUAL, "median ours"),
            (LENET, FOUR, "2 replicas", "median ours"),
        ),
    ),
)


def texts(path):
    """Return the texts of a file: one for Markdown, one per Markdown cell of a notebook."""
    if path.suffix == ".md":
        return [path.read_text()]
    return ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "markdown"]


def write(quote, root=ROOT):
    """Write the figures of a quote into its file."""
    path = root / quote.file
    if path.suffix == ".md":
        path.write_text(quote.written(path.read_text()))
        return
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown" and quote.find("".join(cell["source"])):
            cell["source"] = quote.written("".join(cell["source"])).splitlines(keepends=True)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def main():
    """Write the figures of all quotes into their files, and name the machine and the date of each result."""
    for quote in QUOTES:
        write(quote)
    for name in sorted({figure[0] for quote in QUOTES for figure in quote.figures}):
        facts = json.loads((RESULTS / f"{name}.json").read_text())["machine"]
        print(f"{name}: {facts['date']}, {facts['processor']}, {facts['devices']}, torch {facts['torch']}")


if __name__ == "__main__":
    main()
