"""The figures that pages and chapters quote: `python -m benchmarks.quotes` writes them from the result files.

Each quote is a template for a few words of a file, and the values for its gaps. A test compares the words with the
results, so that neither changes without the other.
"""

import argparse
import json
import math
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.records.accuracies import label
from benchmarks.records.published_accuracy import column
from benchmarks.report import RESULTS
from d2lite.labs.chapter_09 import compare_arms
from tools.cluster import rings, speed

__all__ = ["QUOTES", "Quote", "main", "texts", "value", "write"]

ROOT = RESULTS.parents[1]
LENET = "lenet-2-cores"
BINDER = "binder-2-cores"
CARD, RESNET = "card-h200", "ResNet-18 (width 64), s/epoch"
BINDER_CUDA = "binder-cuda-build-2-cores"  # the chapters that the other environment cannot run
RATES = "learning-rates-2-cores"
GROUP_NORM = "GroupNorm, one device"  # an arm of batchnorm-2-cores
PUBLISHED = "published-accuracy-small"
OTHER_CHANGES = "the learning rate", "BatchNorm per device", "what the reset left"  # but half as many steps
PAIRS = "published-pairs"
RUN_ALL = "chapters-2-cores"
ARMS = "horovod-arms-2-cores"
FOUR_FRAMEWORKS = "frameworks"
APPENDIX_9 = "book/appendix/09-more-comparisons.ipynb"
APPENDIX_3 = "book/appendix/03-the-same-step-in-gluon-tensorflow-and-jax.ipynb"
SCALED = "small, 0.02", "large, 0.02", "large, 0.04"  # arms: the minibatch, then the rate as well
FORGOTTEN = "no broadcast, 0.02", "small, 0.02"
TWO, ONE = "LeNet, s/epoch, 2 replicas", "LeNet, s/epoch, 1 replica"
PLAIN, FOUR = f"{TWO}, train_batch in a plain loop", "LeNet, s/epoch, 4 replicas"
RIGHT_RANK = "right", "right rank, cause open", "wrong cause"  # columns of what was said without a doubt
USUAL = "usual loop, DataLoader with 4 workers"
SAME_DATA = "usual loop, our iterator"
MEASURED, PREDICTED = "measured_factor", "predicted_factor"  # times as fast as the naive algorithm
DDP = "DDP in a notebook, LeNet, 2 ranks, 256 a rank, the fastest epoch"


@dataclass(frozen=True)
class Quote:
    """Words of `file` with gaps for figures, such as "{:.1f} s per epoch".

    Each of `figures` is (result file, row, peer of the row, what): "median ours", "min ratios", ... "max peer"; or a
    function that reads it from another kind of result file.
    """

    file: str
    template: str
    figures: tuple[tuple[str, str, str, str] | Callable[[], float], ...]

    def figures_now(self):
        """Return the texts of the figures, from the result files."""
        gaps = re.findall(r"\{:[^}]*\}", self.template)
        values = [figure() if callable(figure) else value(*figure) for figure in self.figures]
        return [gap.format(number) for gap, number in zip(gaps, values, strict=True)]

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
            raise self.missing()
        for i, figure in reversed(list(enumerate(self.figures_now(), start=1))):
            text = text[: found.start(i)] + figure + text[found.end(i) :]
        return text

    def missing(self):
        """Return the error for a text without the words."""
        return LookupError(f"{self.file}: expected the words {self.template!r}. Change the template with the words.")


def value(result, row, peer, what):
    """Return one figure of a result file: the median, min or max of a row's ours, peer or ratios.

    Raises LookupError unless the file has exactly one row with this name and this peer.
    """
    rows = _kept(result)["rows"]
    found = [r for r in rows if r["name"] == row and r["peer_name"] == peer]
    if len(found) != 1:
        raise LookupError(f"{result}: expected one row {row!r} with the peer {peer!r}, got {len(found)}.")
    how, field = what.split()
    return {"median": statistics.median, "min": min, "max": max}[how](found[0][field])


def _kept(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def ring_figure(hosts, per_host, algorithm, what):
    """Return `what` of an algorithm on hosts with a cable of 100 Mb/s each, from rings.json."""
    rows = rings.rows(_kept("rings")["records"])
    wanted = {"hosts": hosts, "per_host": per_host, "algorithm": algorithm, "mbit": 100}
    (found,) = [row for row in rows if wanted.items() <= row.items()]
    return found[what]


def step_ratio(how, *, limited):
    """Return min or max of measured over predicted steps in cluster.json; `limited` says whether the cable was."""
    rows = [row for row in speed.rows(_kept("cluster")["links"]) if (row["mbit"] is not None) == limited]
    return how(row["step_s"] / row["predicted_s"] for row in rows)


def lenet_on_two_ms(mbit, part):
    """Return the milliseconds of a part of LeNet's step on two hosts without delay, from cluster.json."""
    wanted = {"net": "LeNet", "hosts": 2, "mbit": mbit, "delay_ms": 0}
    (row,) = [row for row in speed.rows(_kept("cluster")["links"]) if wanted.items() <= row.items()]
    return 1000 * row[part]


def resumed_s(how):
    """Return min or max of the seconds from a fault until training goes on, in cluster.json."""
    return how(fault["resumed_s"] for fault in _kept("cluster")["faults"] if fault["resumed_s"] is not None)


def prediction_misses():
    """Return how far each predicted median of prediction-2-cores.json is from the measured one, in whole percent.

    Rounded up, since it is quoted as a bound.
    """
    rows = [row for row in _kept("prediction-2-cores")["rows"] if row["peer_name"] == "predicted"]
    misses = [100 * abs(statistics.median(row["peer"]) / statistics.median(row["ours"]) - 1) for row in rows]
    return [math.ceil(miss) for miss in misses]


def framework_difference(of, frameworks=("Gluon", "TensorFlow", "JAX"), variant=None):
    """Return the largest difference of a weight in frameworks.json; `of` is a column, `variant` None means all."""
    found = [_kept(FOUR_FRAMEWORKS)["frameworks"][name]["variants"] for name in frameworks]
    rows = [row for variants in found for name, row in variants.items() if variant in (None, name)]
    return max(max(row[of]) for row in rows)


def power_of_ten_above(of, *frameworks):
    """Return n, where 10^-n is the smallest power of ten above such a difference."""
    return math.floor(-math.log10(framework_difference(of, frameworks)))


def linear_against_root(base, of="renewed"):
    """Return the comparison of the linear rule with the square root, at 8 times the minibatch.

    `of` is "renewed", accuracies with new statistics, or "accuracies", the last ones.
    """
    rows = {row["settings"]["name"]: row[of] for row in _kept(RATES)["arms"]}
    root, linear = (rows[f"{base}, 8 times the minibatch, {rule} lr"] for rule in ("square root", "linear"))
    return compare_arms(root, linear, paired=True)


def _interval(comparison, signs):
    """Return functions of a comparison: its difference and the ends of its interval, in points, times these signs."""
    ends = zip(("difference", "low", "high"), signs, strict=True)
    return tuple(lambda end=end, sign=sign: 100 * sign * getattr(comparison(), end) for end, sign in ends)


def gains_of_new_statistics():
    """Return by how many points new statistics raise the accuracy of each run with minibatches of 512."""
    rows = [row for row in _kept(RATES)["arms"] if row["settings"]["batch_size"] == 512]
    return [100 * (new - last) for row in rows for last, new in zip(row["accuracies"], row["renewed"], strict=True)]


def of_the_published(name, of="accuracies", num_seeds=20):
    """Return the comparison of an arm of published-accuracy-small.json with one device, seed by seed."""
    trials = [trial for trial in _kept(PUBLISHED)["trials"] if trial["seed"] < num_seeds]
    before, after = (column(trials, arm, of) for arm in ("one device", name))
    return compare_arms(before.values(), after.values(), paired=True)


def gained_by_new_statistics():
    """Return how much less *half as many steps* loses with new statistics, seed by seed."""
    rows = _kept(PUBLISHED)["trials"]
    lost = []
    for of in ("accuracies", "renewed_accuracy"):
        one, half = (column(rows, name, of) for name in ("one device", "half as many steps"))
        lost.append([half[seed] - one[seed] for seed in one])
    return compare_arms(*lost, paired=True)


def worst_second_run():
    """Return the lowest last accuracy with all four changes, and that of one device with the same seed."""
    second = column(_kept(PUBLISHED)["trials"], "all four")
    seed = min(second, key=second.get)
    return second[seed], column(_kept(PUBLISHED)["trials"], "one device")[seed]


def grid_column(batch_size, of="renewed"):
    """Return {learning rate: mean accuracy in percent} of a minibatch."""
    cells = [cell for cell in _kept(RATES)["grid"]["cells"] if cell["batch_size"] == batch_size]
    return {cell["lr"]: 100 * statistics.mean(cell[of]) for cell in cells}


def below_best(batch_size, lr):
    """Return how many points a learning rate is below the best one of its column."""
    column = grid_column(batch_size)
    return max(column.values()) - column[lr]


def batchnorm_loss(*numbers):
    """Return by how many points mean accuracies of batchnorm-2-cores.json differ at most from 64 per replica."""
    means = {arm["name"]: 100 * statistics.mean(arm["accuracies"]) for arm in _kept("batchnorm-2-cores")["arms"]}
    names = [f"BatchNorm, {number} examples per replica" for number in (64, *numbers)]
    return max(abs(means[name] - means[names[0]]) for name in names[1:])


def batchnorm_mean(name):
    """Return the mean accuracy of an arm of batchnorm-2-cores.json."""
    (found,) = [arm["accuracies"] for arm in _kept("batchnorm-2-cores")["arms"] if arm["name"] == name]
    return statistics.mean(found)


def noise_scale(how, epoch):
    """Return min or max of the noise scales after an epoch, in examples."""
    return how(row["examples"] for row in _kept(RATES)["noise"] if row["epoch"] == epoch)


def arm(name, what):
    """Return "losses" or "accuracies" of an arm of horovod-arms-2-cores.json, one after another."""
    (row,) = [row for row in _kept(ARMS)["arms"] if row["name"] == name]
    return [figure for ranks in row[what] for figure in ranks]


def more_than_small(name, what):
    """Return by how much an arm's figures exceed those of the small minibatch at the same rate, one after another."""
    rate = name.rpartition(" ")[2]
    return [figure - small for figure, small in zip(arm(name, what), arm(f"small, {rate}", what), strict=True)]


def recovered(rate):
    """Return the percentages of the lost training loss that twice the rate recovers, one after another."""
    lost = more_than_small(f"large, {rate:g}", "losses")
    twice = zip(arm(f"large, {rate:g}", "losses"), arm(f"large, {2 * rate:g}", "losses"), strict=True)
    return [100 * (once - fixed) / gap for (once, fixed), gap in zip(twice, lost, strict=True)]


def num_seeds():
    """Return how many seeds horovod-arms-2-cores.json has for each arm."""
    return len(_kept(ARMS)["seeds"])


def _arms_setting(name):
    """Return a setting that all arms of horovod-arms-2-cores.json share."""
    return _kept(ARMS)[name]


def _ends(function, *args):
    """Return two figures: the least and the largest of function(*args)."""
    return (lambda: min(function(*args))), (lambda: max(function(*args)))


def accuracy(batch_size, lr, seed, num_gpus):
    """Return (result file, row, peer, what) of a run of ResNet-18 in accuracies-2-cores.json."""
    return "accuracies-2-cores", label("ResNet-18", num_gpus, batch_size, lr, seed), "", "median ours"


def apart(runs):
    """Return by how many points the accuracies of `runs` differ at most; a run is what `accuracy` takes."""
    found = [value(*accuracy(*run)) for run in runs]
    return 100 * (max(found) - min(found))


def published_pairs():
    """Return how many published pairs there are, their median accuracies, and in how many the second run is worse."""
    pairs = [(pair["one"]["accuracy"], pair["two"]["accuracy"]) for pair in _kept(PAIRS)["pairs"]]
    one, two = map(statistics.median, zip(*pairs, strict=True))
    return {"pairs": len(pairs), "one": one, "two": two, "worse": sum(second < first for first, second in pairs)}


def _pairs(*what):
    return tuple(lambda each=each: published_pairs()[each] for each in what)


def _spread(result, row, peer, field="ratios"):
    return tuple((result, row, peer, f"{how} {field}") for how in ("median", "min", "max"))


def binder_peaks():
    """Return ("chapter 5", " MB", figure) for each chapter whose memory was measured in the environment of binder/."""
    rest = ", Run All, peak of all its processes"
    return [
        (row["name"].removesuffix(rest), unit, (record, row["name"], "", "max ours"))
        for record, unit in ((BINDER, " MB"), (BINDER_CUDA, " MB, CUDA build"))
        for row in _kept(record)["rows"]
        if row["name"].endswith(rest) and row["ours"]
    ]


def _hangs(*columns, healthy=False):
    """Return how many jobs of hang-diagnosis-2-cores.json are in these columns; without columns, in all."""
    rows = _kept("hang-diagnosis-2-cores")["by_fault"]
    chosen = [row for fault, row in rows.items() if (fault == "(healthy)") == healthy]
    return sum(n for row in chosen for column, n in row.items() if not columns or column in columns)


def _answers_without_an_error():
    """Return how many answers named a rank without a doubt; the sentence that quotes it is true if none was wrong."""
    if wrong := _hangs("wrong rank", "wrong cause"):
        raise ValueError(f"the appendix says that no answer without a doubt was wrong, and the record has {wrong}")
    return _hangs(*RIGHT_RANK)


QUOTES = (
    Quote(
        "book/appendix/12-fourteen-causes-and-nccl.ipynb",
        "of {:.0f} jobs that failed | |---|---| | the right rank, without a doubt | {:.0f} (in {:.0f} of these the "
        "cause stayed open) | | not sure of the rank | {:.0f} | | a wrong rank, without a doubt | {:.0f} | | a wrong "
        "cause, without a doubt | {:.0f} | Of {:.0f} jobs without a fault it accused a rank in {:.0f}.",
        (
            _hangs,
            partial(_hangs, *RIGHT_RANK),
            partial(_hangs, "right rank, cause open"),
            partial(_hangs, "unsure"),
            partial(_hangs, "wrong rank"),
            partial(_hangs, "wrong cause"),
            partial(_hangs, healthy=True),
            partial(_hangs, "wrong rank", "unsure", healthy=True),
        ),
    ),
    Quote(
        "book/appendix/12-fourteen-causes-and-nccl.ipynb",
        "None of the {:.0f} answers without a doubt was wrong. So for jobs like these the share of wrong ones is below "
        "{:.1f}%, with 95% confidence.",
        (_answers_without_an_error, lambda: 100 * (1 - 0.05 ** (1 / _answers_without_an_error()))),
    ),
    Quote(
        "docs/binder.md", "| the environment | {:,.0f} MB |", ((BINDER, "the whole environment, size", "", "max ours"),)
    ),
    Quote(
        "docs/binder.md",
        "until it asks for its token | {:.1f} s ({:.1f} to {:.1f}) |",
        _spread(BINDER, "binder/start jupyter lab, until it asks for its token", "", "ours"),
    ),
    Quote(
        "docs/binder.md",
        "| the server without a kernel, memory | {:.0f} MB |",
        ((BINDER, "the server without a kernel, memory", "", "max ours"),),
    ),
    Quote(
        "docs/binder.md",
        "to the first point of a curve | {:.1f} s ({:.1f} to {:.1f}) |",
        _spread(BINDER, "index, cell to first curve", "", "ours"),
    ),
    *(
        Quote("docs/binder.md", f"| {chapter}, Run All, peak of all its processes | {{:,.0f}}{unit} |", (peak,))
        for chapter, unit, peak in binder_peaks()
    ),
    Quote(
        "docs/measurements.md",
        "{:.1f} s per epoch, {:.2f} ({:.2f} to {:.2f}) of the usual loop ({:.1f} s: DataLoader with 4 workers",
        ((LENET, TWO, USUAL, "median ours"), *_spread(LENET, TWO, USUAL), (LENET, TWO, USUAL, "median peer")),
    ),
    Quote(
        "docs/measurements.md",
        "`train_concise` with TF32 and with bf16 | {:.2f} s and {:.2f} s per epoch (the loop of D2L 13.6: {:.2f} s)",
        (
            (CARD, f"{RESNET}, float32 with TF32", "the loop of d2l 13.6", "median ours"),
            (CARD, f"{RESNET}, bf16, channels_last", "the loop of d2l 13.6", "median ours"),
            (CARD, f"{RESNET}, float32 with TF32", "the loop of d2l 13.6", "median peer"),
        ),
    ),
    Quote(
        "docs/measurements.md",
        "| the same, two replicas against one, in `train` | {:.2f} times as fast ({:.2f} to {:.2f})",
        _spread(LENET, TWO, "1 replica"),
    ),
    Quote(
        "docs/measurements.md",
        "| `train_batch` in a plain loop, two replicas against one | {:.2f} times as fast ({:.2f} to {:.2f})",
        _spread(LENET, PLAIN, "1 replica, plain loop"),
    ),
    Quote(
        "docs/measurements.md",
        "| four replicas on two cores against two | {:.2f} times the time ({:.2f} to {:.2f})",
        _spread(LENET, FOUR, "2 replicas"),
    ),
    Quote(
        "docs/measurements.md",
        "{:.3f} s (DataLoader: {:.1f} s)",
        tuple(
            (LENET, "iterator, s for 60,000 examples", "DataLoader with 4 workers", f"median {field}")
            for field in ("ours", "peer")
        ),
    ),
    Quote(
        "docs/measurements.md",
        "| `import d2lite` over `import torch` | {:.2f} ({:.2f} to {:.2f})",
        _spread("cpu-2-cores", "import d2lite", "import torch"),
    ),
    Quote(
        "docs/measurements.md",
        "against the same under torchrun | {:.3f} times as fast ({:.2f} to {:.2f};",
        _spread("ranks-2-cores", DDP, "torchrun"),
    ),
    Quote(
        "docs/measurements.md",
        "two ranks against one | {:.2f} times as fast ({:.2f} to {:.2f};",
        _spread("ranks-2-cores", DDP, "1 rank"),
    ),
    Quote(
        "docs/measurements.md",
        "| two ranks, from nothing to the first all-reduce | {:.1f} s ({:.1f} to {:.1f})",
        _spread("starts-2-cores", "2 ranks, from nothing to the first all-reduce", "", "ours"),
    ),
    Quote(
        "docs/measurements.md",
        "over the same without [batch mode](../packages/notebook_ranks/src/notebook_ranks/batch_mode.py) "
        "| {:.1f} times as fast ({:.1f} to {:.1f})",
        _spread("starts-2-cores", "all-reduce of 0.4 MB, 2 ranks", "no batch mode"),
    ),
    Quote(
        "docs/measurements.md",
        "on 1, 2, 4 ranks | all {:.0f} within {:.0f}% (medians of four rounds)",
        (lambda: len(prediction_misses()), lambda: max(prediction_misses())),
    ),
    Quote(
        "docs/measurements.md",
        "| one `Animator.add` | {:.2f} ms (d2l 1.0.3: {:.0f} ms)",
        tuple(("cpu-2-cores", "Animator.add", "d2l 1.0.3", f"median {field}") for field in ("ours", "peer")),
    ),
    Quote(
        "docs/measurements.md",
        "| memory of the kernel in chapter 2, peak | {:,.0f} MB",
        (("cpu-2-cores", "chapter 2, kernel, peak", "", "max ours"),),
    ),
    Quote(
        "docs/measurements.md",
        "one epoch of all images, kernel and ranks together | {:,.0f} MB, {:,.0f} MB",
        tuple(
            ("cpu-2-cores", f"a panel and {k} ranks, LeNet, one epoch of all data, peak", "", "max ours")
            for k in (2, 4)
        ),
    ),
    *(
        Quote(
            f"book/{name}.ipynb",
            "Run All took {:.0f} seconds on two CPU cores.",
            ((RUN_ALL, f"chapter {int(name[:2])}, Run All", "", "median ours"),),
        )
        for name in (
            "01-ways-to-split",
            "02-data-parallel-from-scratch",
            "03-data-parallel-concise",
            "04-all-reduce",
            "09-learning-rate-and-batch-size",
            "10-batch-normalisation",
            "11-bug-museum",
            "12-when-a-job-hangs",
        )
    ),
    Quote(
        "book/02-data-parallel-from-scratch.ipynb",
        "an epoch of all 60,000 images took {:.1f} s with one device, {:.1f} s with two and {:.1f} s with four",
        (
            (LENET, ONE, USUAL, "median ours"),
            (LENET, TWO, USUAL, "median ours"),
            (LENET, FOUR, "2 replicas", "median ours"),
        ),
    ),
    Quote(
        "book/02-data-parallel-from-scratch.ipynb",
        "its usual loop took {:.1f} s. So two replicas were {:.1f} times as fast as one core, but only {:.1f} times as "
        "fast as the same two cores without replicas.",
        (
            (LENET, TWO, SAME_DATA, "median peer"),
            (LENET, TWO, "1 replica", "median ratios"),
            lambda: 1 / value(LENET, TWO, SAME_DATA, "median ratios"),
        ),
    ),
    Quote(
        APPENDIX_9,
        "the accuracies were {:.3f}, {:.3f}, {:.3f} and {:.3f}. The last run is far behind the others.",
        (
            accuracy(128, 0.1, 0, 1),
            *(accuracy(batch_size, lr, 0, 2) for batch_size, lr in ((128, 0.1), (256, 0.1), (256, 0.2))),
        ),
    ),
    *(
        Quote(
            APPENDIX_9,
            f"| {k}, {seed} | {{:.3f}} | {{:.3f}} | {sign}{{:.0f}} |",
            (
                *(accuracy(256, lr, seed, k) for lr in (0.1, 0.2)),
                partial(apart, [(256, lr, seed, k) for lr in (0.1, 0.2)]),
            ),
        )
        for k, seed, sign in ((2, 0, ""), (2, 1, ""), (1, 0, "−"), (1, 1, ""))
    ),
    Quote(
        APPENDIX_9,
        "Where this was written the accuracies were {:.3f} and {:.3f}, and {:.3f} with seed 0.",
        tuple(accuracy(128, 0.1, seed, 2) for seed in (1, 2, 0)),
    ),
    Quote(
        APPENDIX_9,
        "The seed alone moves the accuracy by {:.0f} percentage points.",
        (partial(apart, [(128, 0.1, seed, 2) for seed in (0, 1, 2)]),),
    ),
    Quote(
        APPENDIX_9,
        "another seed changes the accuracy by {:.0f} point at rate 0.1 and by {:.0f} points at rate 0.2. On one device "
        "it changes by {:.0f} and {:.0f} points.",
        tuple(partial(apart, [(256, lr, seed, k) for seed in (0, 1)]) for k in (2, 1) for lr in (0.1, 0.2)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "Over {:.0f} executions the medians are {:.2f} and {:.2f} (listed in",
        _pairs("pairs", "one", "two"),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "There are {:.0f} such pairs. In {:.0f} the second run is worse",
        _pairs("pairs", "worse"),
    ),
    Quote(
        "book/solutions/09-learning-rate-and-batch-size.ipynb",
        "the ranges of one device, {:.3f} to {:.3f} and {:.3f} to {:.3f}, overlap",
        tuple(accuracy(256, lr, seed, 1) for lr in (0.1, 0.2) for seed in (0, 1)),
    ),
    Quote(
        APPENDIX_3,
        "In ten steps the largest change of a weight is {:.2f}. Where the programs ran, `fit` was up to {:.3f} away "
        "from `by_example`, and `trainer.step(batch_size)` up to {:.3f}.",
        (
            lambda: _kept(FOUR_FRAMEWORKS)["largest_change"],
            partial(framework_difference, "from_by_example", variant="fit"),
            partial(framework_difference, "from_by_example", variant="trainer.step(batch_size)"),
        ),
    ),
    Quote(
        APPENDIX_3,
        "In 64-bit numbers TensorFlow and JAX are less than $10^{-{:.0f}}$ away from ours.",
        (partial(power_of_ten_above, "float64", "TensorFlow", "JAX"),),
    ),
    Quote(
        APPENDIX_3,
        "Gluon is farther away, but less than $10^{-{:.0f}}$.",
        (partial(power_of_ten_above, "from_plain_rule", "Gluon"),),
    ),
    Quote(
        APPENDIX_3,
        "With the same two roundings ours is less than $10^{-{:.0f}}$ away from it.",
        (partial(power_of_ten_above, "float64", "Gluon"),),
    ),
    Quote(
        APPENDIX_3,
        "In 32-bit numbers the largest difference is {:.6f}.",
        (partial(framework_difference, "float32"),),
    ),
    Quote(
        "book/04-all-reduce.ipynb",
        "On four hosts the ring is {:.2f} times as fast as the naive way (predicted: {:.2f}).",
        (partial(ring_figure, 4, 1, "ring", MEASURED), partial(ring_figure, 4, 1, "ring", PREDICTED)),
    ),
    Quote(
        "book/04-all-reduce.ipynb",
        "two-level is {:.2f} times as fast (predicted: {:.2f}), and the ring {:.2f} times ({:.2f}).",
        tuple(partial(ring_figure, 2, 2, way, what) for way in ("two-level", "ring") for what in (MEASURED, PREDICTED)),
    ),
    Quote(
        "book/appendix/04-more-algorithms.ipynb",
        "all pairs took {:.3f} s where the ring took {:.3f} s",
        tuple(partial(ring_figure, 4, 1, way, "measured_s") for way in ("all pairs", "ring")),
    ),
    Quote(
        "book/06-horovod.ipynb",
        "with {:.0f} seeds (`benchmarks/results/horovod-arms-2-cores.json`: {:.0f} ranks, {:,.0f} examples, {:.0f} "
        "epochs): | minibatch and rate | loss of the last epoch | test accuracy | |---|---|---| "
        "| small | {:.2f} to {:.2f} | {:.2f} to {:.2f} | | large | {:.2f} to {:.2f} | {:.2f} to {:.2f} | "
        "| large, twice the rate | {:.2f} to {:.2f} | {:.2f} to {:.2f} | "
        "The larger minibatch raised the loss. Doubling the rate took back {:.0f} to {:.0f}% of this rise",
        (
            num_seeds,
            *(partial(_arms_setting, name) for name in ("ranks", "num_examples", "num_epochs")),
            *(end for name in SCALED for what in ("losses", "accuracies") for end in _ends(arm, name, what)),
            *_ends(recovered, 0.02),
        ),
    ),
    Quote(
        "book/06-horovod.ipynb",
        "With {:.0f} seeds doubling the rate took back only {:.0f} to {:.0f}%.",
        (num_seeds, *_ends(recovered, 0.1)),
    ),
    Quote(
        "book/06-horovod.ipynb",
        "with {:.0f} seeds: both ranks learn. They end {:.1f} to {:.1f} points below the run with the broadcast, with "
        "a loss of {:.2f} to {:.2f} against {:.2f} to {:.2f}.",
        (
            num_seeds,
            lambda: -100 * max(more_than_small("no broadcast, 0.02", "accuracies")),
            lambda: -100 * min(more_than_small("no broadcast, 0.02", "accuracies")),
            *(end for name in FORGOTTEN for end in _ends(arm, name, "losses")),
        ),
    ),
    Quote(
        "book/06-horovod.ipynb",
        "with {:.0f} seeds: accuracies of {:.2f} to {:.2f} against {:.2f} to {:.2f}, and a loss that is {:.2f} to "
        "{:.2f} higher.",
        (
            num_seeds,
            *_ends(arm, "mean of parameters, 0.02", "accuracies"),
            *_ends(arm, "small, 0.02", "accuracies"),
            *_ends(more_than_small, "mean of parameters, 0.02", "losses"),
        ),
    ),
    Quote(
        "book/07-many-machines.ipynb",
        "the measured step took {:.2f} to {:.2f} times as long as predicted",
        (partial(step_ratio, min, limited=True), partial(step_ratio, max, limited=True)),
    ),
    Quote(
        "book/07-many-machines.ipynb",
        "the complete step of LeNet on two hosts is even shorter than its computing alone ({:.1f} against {:.1f} ms, "
        "and {:.1f} against {:.1f} ms).",
        tuple(partial(lenet_on_two_ms, mbit, part) for mbit in (1000, None) for part in ("step_s", "compute_s")),
    ),
    Quote(
        "book/07-many-machines.ipynb",
        "{:.0f} to {:.0f} seconds after the fault training goes on",
        (partial(resumed_s, min), partial(resumed_s, max)),
    ),
    Quote(
        "book/07-many-machines.ipynb",
        "the prediction was wrong by a factor of up to {:.1f}",
        (partial(step_ratio, max, limited=False),),
    ),
    Quote(
        "book/appendix/08-predict-your-machine.ipynb",
        "all medians were predicted within {:.0f}%",
        (lambda: max(prediction_misses()),),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "| change | points (99%) | is a loss shown? | |---|---|---| "
        "| half as many steps | -{:.1f} (-{:.1f} to -{:.1f}) | yes | "
        "| the learning rate | -{:.1f} (-{:.1f} to +{:.1f}) | no | "
        "| BatchNorm per device | -{:.1f} (-{:.1f} to +{:.1f}) | no | "
        "| what the reset left | -{:.1f} (-{:.1f} to +{:.1f}) | no | "
        "| all four together | -{:.1f} (-{:.1f} to -{:.1f}) | yes |",
        (
            *_interval(lambda: of_the_published("half as many steps"), (-1, -1, -1)),
            *(end for name in OTHER_CHANGES for end in _interval(partial(of_the_published, name), (-1, -1, 1))),
            *_interval(lambda: of_the_published("all four"), (-1, -1, -1)),
        ),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "| change | points with new statistics (99%) | |---|---| "
        "| half as many steps | -{:.1f} (-{:.1f} to -{:.1f}) | "
        "| the learning rate | -{:.1f} (-{:.1f} to -{:.1f}) | "
        "| BatchNorm per device | -{:.1f} (-{:.1f} to +{:.1f}) | "
        "| what the reset left | -{:.1f} (-{:.1f} to +{:.1f}) | "
        "| all four together | -{:.1f} (-{:.1f} to -{:.1f}) |",
        tuple(
            end
            for name, sign in zip(("half as many steps", *OTHER_CHANGES, "all four"), (-1, -1, 1, 1, -1), strict=True)
            for end in _interval(partial(of_the_published, name, "renewed_accuracy"), (-1, -1, sign))
        ),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "of the loss of *half as many steps*, {:.1f} points (99%: {:.1f} to {:.1f}), was due to statistics that do "
        "not fit.",
        _interval(gained_by_new_statistics, (1, 1, 1)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "64 examples reach {:.1f}% with 0.1 and {:.1f}% with 0.4. From 0.4 the linear rule leads to 3.2, and that is "
        "{:.1f} points below the best rate for 512.",
        (lambda: grid_column(64)[0.1], lambda: grid_column(64)[0.4], partial(below_best, 512, 3.2)),
    ),
    Quote(
        APPENDIX_9,
        "a loss by the doubled rate is shown, but only just (-{:.1f} points, -{:.1f} to -{:.1f})",
        _interval(lambda: of_the_published("the learning rate", "renewed_accuracy"), (-1, -1, -1)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "For this network five seeds gave {:.0f} to {:.0f} examples after four epochs.",
        tuple(partial(noise_scale, how, 4) for how in (min, max)),
    ),
    Quote(
        APPENDIX_9,
        "The worst of the twenty runs with all four ends at {:.3f}, where one device has {:.3f} with the same seed.",
        (lambda: worst_second_run()[0], lambda: worst_second_run()[1]),
    ),
    Quote(
        APPENDIX_9,
        "from 32 and 0.2 it leads to 3.2, which is {:.1f} points below the best of its column",
        (partial(below_best, 512, 3.2),),
    ),
    Quote(
        APPENDIX_9,
        "it was {:.0f} to {:.0f} examples before training, {:.0f} to {:.0f} after four epochs",
        tuple(partial(noise_scale, how, epoch) for epoch in (0, 4) for how in (min, max)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "| SGD with decay | +{:.1f} (+{:.1f} to +{:.1f}) | yes |",
        _interval(lambda: linear_against_root("SGD with decay"), (1, 1, 1)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "| Adam | +{:.1f} (+{:.1f} to +{:.1f}) | yes |",
        _interval(lambda: linear_against_root("Adam"), (1, 1, 1)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "| SGD | -{:.1f} (-{:.1f} to +{:.1f}) | no rule is |",
        _interval(lambda: linear_against_root("SGD"), (-1, -1, 1)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "| SGD with momentum | +{:.1f} (-{:.1f} to +{:.1f}) | no rule is |",
        _interval(lambda: linear_against_root("momentum"), (1, -1, 1)),
    ),
    Quote(
        "book/appendix/09-more-comparisons.ipynb",
        "With *last* accuracies SGD with decay has linear minus square root at {:.1f} points (-{:.1f} to +{:.1f}): not "
        "shown.",
        _interval(lambda: linear_against_root("SGD with decay", "accuracies"), (1, -1, 1)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "Five seeds did not show the loss of *half as many steps* (-{:.1f} points, -{:.1f} to +{:.1f})",
        _interval(lambda: of_the_published("half as many steps", num_seeds=5), (-1, -1, 1)),
    ),
    Quote(
        "book/09-learning-rate-and-batch-size.ipynb",
        "raised the accuracy in {:.0f} of the {:.0f} runs of rules and warm-up with 512, by up to {:.1f} points",
        (
            lambda: sum(gain > 0 for gain in gains_of_new_statistics()),
            lambda: len(gains_of_new_statistics()),
            lambda: max(gains_of_new_statistics()),
        ),
    ),
    Quote(
        "book/10-batch-normalisation.ipynb",
        "the mean accuracy stays within {:.1f} points of 64 examples; at two it is {:.1f} points lower",
        (partial(batchnorm_loss, 32, 16, 8), partial(batchnorm_loss, 2)),
    ),
    Quote(
        "book/10-batch-normalisation.ipynb",
        "(with that of BatchNorm our record has {:.1f} points less)",
        (lambda: 100 * (batchnorm_mean("BatchNorm, 64 examples per replica") - batchnorm_mean(GROUP_NORM)),),
    ),
    Quote(
        "book/10-batch-normalisation.ipynb",
        "In this record GroupNorm has {:.3f} where batch normalisation with 64 examples has {:.3f}, and it is lower "
        "for each seed. With two examples batch normalisation is {:.1f} points below GroupNorm.",
        (
            partial(batchnorm_mean, GROUP_NORM),
            partial(batchnorm_mean, "BatchNorm, 64 examples per replica"),
            lambda: 100 * (batchnorm_mean(GROUP_NORM) - batchnorm_mean("BatchNorm, 2 examples per replica")),
        ),
    ),
)


def texts(path):
    """Return the texts of a file: one for Markdown, one per Markdown cell of a notebook."""
    if path.suffix == ".md":
        return [path.read_text()]
    return ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "markdown"]


def write(quote, root=ROOT):
    """Write the figures of a quote into its file; raise LookupError if its words are not there."""
    path = root / quote.file
    if path.suffix == ".md":
        path.write_text(quote.written(path.read_text()))
        return
    notebook = json.loads(path.read_text())
    words = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    found = [cell for cell in words if quote.find("".join(cell["source"]))]
    if not found:
        raise quote.missing()
    for cell in found:
        cell["source"] = quote.written("".join(cell["source"])).splitlines(keepends=True)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def main(argv=None):
    """Write the figures of all quotes into their files, and print the machine and the date of each result."""
    argparse.ArgumentParser(prog="python -m benchmarks.quotes", description=main.__doc__).parse_args(argv)
    for quote in QUOTES:
        write(quote)
    others = {"rings", "cluster", "prediction-2-cores", RATES, PUBLISHED, ARMS, FOUR_FRAMEWORKS}  # read by functions
    for name in sorted({f[0] for quote in QUOTES for f in quote.figures if not callable(f)} | others):
        facts = _kept(name)["machine"]
        cores = facts.get("devices", f"{facts['cores']} cores")
        print(f"{name}: {facts['date']}, {facts['processor']}, {cores}, torch {facts['torch']}")


if __name__ == "__main__":
    main()
