"""Build the sdist and the wheel, install them into fresh environments, and use them there, far from the repository.

`make wheels` runs it. The wheel is built from the sdist, so that both are tried. One environment has the base
requirements only; there a plain training runs, `Animator` prints, and nothing that shows things can be imported.
The other has the extra `book`; there chapters run from a copy made by `python -m d2lite book FOLDER`.

torch is large. So both environments take their third-party packages from the environment that runs this script, one
link per installed file tree: only those that the wheel requires, and pip checks that nothing is lacking. With
`--python` the base environment is also tried on other interpreters, where pip downloads torch (minutes and 6 GB each).
"""

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

from d2lite.data import SHIPPED

__all__ = ["build", "closure", "fresh", "link", "main"]

ROOT = Path(__file__).resolve().parent.parent
# a loop of the learner's own; scripts and helpers that the wheel carries; a kept record that it carries
CHAPTERS = ("02-data-parallel-from-scratch", "07-many-machines", "10-batch-normalisation")
TRAINING = """
import sys
import d2lite
animator = d2lite.Animator("epoch", "accuracy", legend="test accuracy")
run = d2lite.train(num_gpus=2, batch_size=64, lr=0.1, num_epochs=2, num_examples=512, animator=animator)
animator.flush()
assert run.status == "finished" and len(run.accuracies) == 2 and run.dataset == "Fashion-MNIST, 512 + 86 images"
assert "_book" in str(d2lite.book_root()) and "site-packages" in d2lite.__file__, d2lite.__file__
shown = [m for m in ("torchvision", "plotly", "ipywidgets", "anywidget", "IPython") if m in sys.modules]
assert not shown, shown
if sys.argv[1:] == ["base"]:
    import d2lite.labs.chapter_08
    for place, name in ((d2lite, "Panel"), (d2lite.labs.chapter_08, "ScalingExplorer")):
        try:
            getattr(place, name)
        except ImportError as error:
            assert "make lab" not in str(error) and 'pip install "' in str(error) and '"d2lite' not in str(error), error
        else:
            raise SystemExit(f"{name} was imported without plotly and ipywidgets")
"""


def closure(requirements):
    """Return the names of the installed distributions that some requirements lead to, in their own words' spelling."""
    found, todo = set(), [Requirement(line) for line in requirements]
    done = set()
    while todo:
        wanted = todo.pop()
        key = (wanted.name.lower(), frozenset(wanted.extras))
        if key in done:
            continue
        done.add(key)
        try:
            about = importlib.metadata.distribution(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            continue  # pip says so in the environment
        found.add(about.metadata["Name"])
        for line in about.requires or []:
            more = Requirement(line)
            extras = wanted.extras or {""}
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(more)
    return found


def link(names, into):
    """Link every top-level file or folder of the named distributions into another environment's site-packages."""
    for name in names:
        about = importlib.metadata.distribution(name)
        site = Path(str(about.locate_file("")))
        for top in sorted({file.parts[0] for file in about.files or [] if file.parts[0] not in ("..", "__pycache__")}):
            if (site / top).exists() and not (into / top).exists():
                (into / top).symlink_to(site / top)


def python_of(folder):
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def site_of(folder):
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    return Path(run([python_of(folder), "-c", code]).strip())


def run(command, limit_s=300, **options):
    """Run a command and return what it wrote; its last words are in the error if it fails or takes too long."""
    words = [str(word) for word in command]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    done = subprocess.run(words, stdin=subprocess.DEVNULL, timeout=limit_s, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)[:400]} ended with {done.returncode}:\n{(done.stdout or '')[-4000:]}")
    return done.stdout or ""


def build(folder):
    """Build the sdist, and from it the wheel; return the path of the wheel."""
    tools = folder / "build-tools"
    venv.create(tools, with_pip=True)
    pip(tools, "install", "-q", "build", "hatchling")
    run([python_of(tools), "-m", "build", "--no-isolation", "--outdir", folder / "dist", ROOT])
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        for path in SHIPPED.iterdir():
            assert files.getinfo(f"d2lite/data/shipped/{path.name}").file_size == path.stat().st_size, path
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB")
    return wheel


def pip(folder, *arguments, limit_s=300, **options):
    return run([python_of(folder), "-m", "pip", "--disable-pip-version-check", *arguments], limit_s, **options)


def fresh(folder, wheel, extra="", more=()):
    """Make an environment with a wheel, its requirements linked; pip installs without an index, or says what lacks."""
    venv.create(folder, with_pip=True)
    site = site_of(folder)
    lines = [
        requirement
        for requirement in map(Requirement, requires(wheel))
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    ]
    link(closure([f"{r.name}{'[' + ','.join(r.extras) + ']' if r.extras else ''}" for r in lines] + list(more)), site)
    # Settings of this machine may name folders with newer wheels. pip would then remove the linked files: ours.
    settings = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    pip(folder, "--isolated", "install", "-q", "--no-index", f"{wheel}[{extra}]" if extra else wheel, env=settings)
    return folder


def requires(wheel):
    """Return the requirements in a wheel's metadata."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(files.read(name).decode()).get_all("Requires-Dist")


def clean_environment():
    """Return this process's environment without what would lead back to the repository."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "D2LITE_DATA")
    }
    return kept | {
        "D2LITE_QUICK": "1",
        "D2LITE_LEDGER": "off",
        "D2LITE_OFFLINE": "1",
        "PYTHONSAFEPATH": "1",
        "MALLOC_ARENA_MAX": "1",
    }


def use_base(folder, at):
    """Train in plain Python, and print the report: neither plotly nor the Makefile is there."""
    said = run([python_of(folder), "-c", TRAINING, "base"], cwd=at, env=clean_environment())
    assert "epoch 1: test accuracy" in said and "epoch 2: test accuracy" in said, said
    report = run([python_of(folder), "-m", "d2lite"], cwd=at, env=clean_environment())
    assert "make lab" not in report and 'run pip install "' in report and "torchvision is missing" in report, report
    return said


def use_book(folder, at, chapters):
    """Copy the book out, and run chapters of the copy as `make test` does."""
    python, environment = python_of(folder), clean_environment()
    run([python, "-c", TRAINING, "book"], cwd=at, env=environment)
    run([python, "-m", "d2lite", "book", "mine"], cwd=at, env=environment)
    run([python, "-m", "jupyterlab", "--version"], cwd=at, env=environment)
    command = [python, "-m", "pytest", "-q", "--nbval-lax", "-W", "default", "--nbval-cell-timeout=120"]
    paths = [f"mine/book/{chapter}.ipynb" for chapter in chapters]
    return run([*command, "-p", "no:cacheprovider", *paths], 600, cwd=at, env=environment)


def main(arguments=None):
    """Do all of it in a temporary folder, and print what was tried and how long it took."""
    parser = argparse.ArgumentParser(description="Build wheels and use them in fresh environments.")
    parser.add_argument("--python", nargs="*", default=[], help="interpreters on which pip is to download torch")
    parser.add_argument("--chapters", nargs="*", default=CHAPTERS, help="the notebooks to run, without .ipynb")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="d2lite-wheels-") as name:
        folder = Path(name).resolve()
        wheel = build(folder)
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        use_base(fresh(folder / "base", wheel), elsewhere)
        print(f"base requirements, Python {sys.version.split()[0]}: trained, printed, {time.monotonic() - began:.0f} s")
        with_book = fresh(folder / "with-book", wheel, "book", ("nbval", "pytest", "ipykernel"))
        said = use_book(with_book, elsewhere, given.chapters)
        print(said.strip().splitlines()[-1])
        for python in given.python:
            env = folder / "other"
            run([python, "-m", "venv", "--clear", env])
            pip(env, "install", "-q", wheel, limit_s=1200)
            use_base(env, elsewhere)
            version = run([python_of(env), "-c", "import sys, torch; print(sys.version.split()[0], torch.__version__)"])
            print("downloaded, base requirements, Python and torch", version.strip())
            shutil.rmtree(env)
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
