"""Ten steps in Gluon, TensorFlow and JAX against the same ten steps of ours, for the appendix to chapter 3.

`make frameworks` keeps the figures in `benchmarks/results/frameworks.json`.
Each framework is installed once, into an environment of its own in `.bench/frameworks/`: 2.5 GB in all. Its program is
the one that the appendix shows; ours is the function of the appendix's cells. Initial weights and images reach all of
them in one .npz file, which holds plain arrays. The exit status is 1 if a program could not run, or if rounding does
not explain how far it is from all of our rules.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.records.chapter_code import chapter_code
from benchmarks.report import RESULTS, command_line, keep, machine
from d2lite.data import FASHION_MNIST

__all__ = ["APPENDIX", "BOUND", "FRAMEWORKS", "Framework", "compared", "main", "nearest_rule", "our_rules", "record"]

ROOT = RESULTS.parents[1]
APPENDIX = "appendix/03-the-same-step-in-gluon-tensorflow-and-jax.ipynb"
ENVIRONMENTS = ROOT / ".bench" / "frameworks"
AFTER = "after each step, "  # what a program calls its weights; then the name of the variant
BOUND = {"float64": 1e-12, "float32": 1e-4}  # the largest difference of a weight that counts as rounding
RULES = ("by_example", "by_batch_size", "by_shard")  # functions of the appendix


@dataclass(frozen=True)
class Framework:
    """A framework: its name, its program in book/scripts, what pip installs, and its first and last Python 3.x."""

    name: str
    program: str
    requirements: tuple[str, ...]
    pythons: tuple[int, int]

    def python(self, which=shutil.which):
        """Return a Python that the framework has builds for; raise RuntimeError if there is none."""
        first, last = self.pythons
        if first <= sys.version_info.minor <= last:
            return sys.executable
        for minor in range(last, first - 1, -1):
            if found := which(f"python3.{minor}"):
                return found
        raise RuntimeError(f"{self.name}: expected a Python from 3.{first} to 3.{last}, got none. Install one of them.")

    def install(self, folder=ENVIRONMENTS):
        """Make the environment, once, and return its Python; raise RuntimeError in one line if that fails."""
        home = folder / self.program.removeprefix("step_in_").removesuffix(".py")
        stamp, python = home / "installed", home / ("Scripts" if os.name == "nt" else "bin") / "python"
        if stamp.exists() and stamp.read_text() == "\n".join(self.requirements):
            return python
        print(f"installing {' '.join(self.requirements)}, once", file=sys.stderr, flush=True)
        subprocess.run([self.python(), "-m", "venv", "--clear", str(home)], check=True)
        (folder.parent / ".gitignore").write_text("*\n")  # it ignores itself
        pip = [python, "-m", "pip", "install", "--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *self.requirements], env=_environment(home), capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise RuntimeError(f"{self.name}: pip could not install it ({said[-1] if said else 'no network?'}).")
        stamp.write_text("\n".join(self.requirements))
        return python

    def run(self, python, inputs):
        """Return the arrays that the program writes for these inputs; raise RuntimeError with its last lines."""
        with tempfile.TemporaryDirectory() as folder:
            given, written = Path(folder, "in.npz"), Path(folder, "out.npz")
            np.savez(given, **inputs)
            # -I: without PYTHONPATH and the user's own packages
            command = [python, "-I", ROOT / "book" / "scripts" / self.program, given, written]
            done = subprocess.run(command, env=_environment(folder), capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise RuntimeError(f"{self.name}: {self.program} failed:\n" + "\n".join(done.stderr.splitlines()[-5:]))
            with np.load(written, allow_pickle=False) as arrays:
                return dict(arrays)


FRAMEWORKS = (
    Framework("Gluon", "step_in_gluon.py", ("mxnet==1.9.1", "numpy==1.23.5"), (8, 11)),
    Framework("TensorFlow", "step_in_tensorflow.py", ("tensorflow-cpu==2.21.0",), (10, 13)),
    Framework("JAX", "step_in_jax.py", ("jax==0.10.2", "jaxlib==0.10.2"), (11, 14)),
)


def _environment(home):
    """The variables of a program: pip installs for nobody else, and Keras writes its settings into `home`."""
    return os.environ | {"PIP_USER": "0", "KERAS_HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"}


def _in_32_bits(rule, lr):
    """Return a rule with the learning rate and the divisor's reciprocal rounded to 32 bits, as MXNet keeps them."""

    def rounded(losses, batch_size):
        loss = rule(losses, batch_size)
        factor = (loss / torch.cat(losses).sum()).item()  # 1 / divisor
        exact = 1 / round(1 / factor)
        return loss * (float(np.float32(exact)) / exact) * (float(np.float32(lr)) / lr)

    return rounded


def our_rules(lr):
    """Return {name: rule}: those of the appendix, then the first two with factors of 32 bits."""
    names = chapter_code(APPENDIX, {})
    rules = {name: names[name] for name in RULES}
    return rules | {f"{name}, factors of 32 bits": _in_32_bits(rules[name], lr) for name in RULES[:2]}


def compared(theirs, ours):
    """Return for each step the largest difference of a weight; both are arrays [steps, weights] of one type.

    Raises ValueError if they differ in shape or type, or if one of them has a number that is not finite.
    """
    for what in ("shape", "dtype"):
        if getattr(theirs, what) != getattr(ours, what):
            raise ValueError(f"{what}: expected {getattr(ours, what)}, as ours, got {getattr(theirs, what)}.")
    if not (np.isfinite(theirs).all() and np.isfinite(ours).all()):
        raise ValueError("weights: expected finite numbers, got NaN or infinity.")
    return np.abs(theirs.astype("float64") - ours.astype("float64")).max(axis=1).tolist()


def nearest_rule(theirs, ours):
    """Return the name of the rule whose weights are nearest to theirs; `ours` is {name: [steps, weights]}."""
    return min(ours, key=lambda name: max(compared(theirs, ours[name])))


def record(frameworks=FRAMEWORKS):
    """Return the comparison as plain numbers."""
    names = chapter_code(APPENDIX, {})
    inputs = {dtype: names["make_inputs"](dtype) for dtype in BOUND}
    lr = float(inputs["float64"]["lr"])
    found = {dtype: {n: names["ten_steps"](inputs[dtype], r) for n, r in our_rules(lr).items()} for dtype in BOUND}
    ours = {dtype: {n: after.numpy() for n, (after, _) in runs.items()} for dtype, runs in found.items()}
    accuracies = {name: accuracy for name, (_, accuracy) in found["float64"].items()}
    first = np.concatenate([inputs["float64"][f"weights_{i}"].ravel() for i in range(4)])
    right = ours["float64"]["by_example"]
    result = {"lr": lr, "largest_change": float(np.abs(right - first).max()), "accuracies": accuracies}
    result["frameworks"] = {}
    for framework in frameworks:
        python = framework.install()
        theirs = {dtype: framework.run(python, inputs[dtype]) for dtype in BOUND}
        print(f"{framework.name}: done", file=sys.stderr, flush=True)
        result["frameworks"][framework.name] = _framework(theirs, ours, accuracies)
    return result


def _framework(theirs, ours, accuracies):
    """What is kept of one framework: its notes, and of each variant the rule that it follows, and how far it is."""
    kept = {"variants": {}}
    for key, array in theirs["float64"].items():
        if not key.startswith((AFTER, "accuracy, ")):
            kept[key] = array.tolist()
    for key in [key for key in theirs["float64"] if key.startswith(AFTER)]:
        name, weights = key.removeprefix(AFTER), theirs["float64"][key]
        rule = nearest_rule(weights, ours["float64"])
        right = ours["float64"]["by_example"]
        plain = rule.split(",")[0]
        variant = {"rule": rule, "last_bias": weights[-1, -10:].tolist()}
        variant |= {dtype: compared(theirs[dtype][key], ours[dtype][rule]) for dtype in BOUND}
        variant["from_plain_rule"] = compared(weights, ours["float64"][plain])
        variant["from_by_example"] = compared(weights, right)
        steps = [np.linalg.norm(after[4] - after[3]) for after in (weights, right)]
        variant["fifth_step_over_ours"] = float(steps[0] / steps[1])
        variant["explained"] = all(max(variant[dtype]) <= bound for dtype, bound in BOUND.items())
        if (accuracy := theirs["float64"].get(f"accuracy, {name}")) is not None:
            variant["accuracy"] = float(accuracy)
            variant["explained"] &= abs(variant["accuracy"] - accuracies[rule]) < 1e-6
        kept["variants"][name] = variant
    return kept


def main(argv=None):
    """Run all, print how far each is from ours, and keep it as JSON if a name is given; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.frameworks", description=__doc__)
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json")
    args = parser.parse_args(argv)
    facts = machine(FASHION_MNIST)
    try:
        found = record()
    except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
        print(f"d2lite frameworks: {error}", file=sys.stderr)
        return 1
    print(f"The largest change of a weight in ten steps of ours: {found['largest_change']:.2f}")
    for name, framework in found["frameworks"].items():
        print(f"{name} ({framework['version']})")
        for variant, row in framework["variants"].items():
            print(f"   {variant}: {row['rule']}" if row["explained"] else f"   {variant}: NOT EXPLAINED")
            for dtype in BOUND:
                print(f"      {dtype}:", *(f"{difference:.0e}" for difference in row[dtype]))
    if args.save:
        keep(args.save, command_line("benchmarks.records.frameworks", argv), facts, found)
    explained = [
        row["explained"] for framework in found["frameworks"].values() for row in framework["variants"].values()
    ]
    return 0 if all(explained) else 1


if __name__ == "__main__":
    raise SystemExit(main())
