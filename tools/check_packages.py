"""Install each package beside d2lite alone into a fresh environment, and use it there, far from the repository.

`make packages` runs it. notebook_ranks: two ranks in a plain notebook, without d2lite. ddp_rehearsal: its console
command names the bug of a script. d2lite_course: its console command hands out a chapter. Third-party packages are
linked from the environment that runs this script. With `--torch 2.11.0` pip downloads that torch instead (5 GB).
"""

import argparse
import sys
import tempfile
import time
import venv
from pathlib import Path

from packaging.requirements import Requirement

from tools.check_install import clean_environment, closure, link, pip, python_of, run, site_of

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent
THIRD_PARTY = {  # what pip would download for each
    "notebook_ranks": ["torch", "numpy", "cloudpickle"],
    "ddp_rehearsal": ["torch", "numpy", "cloudpickle"],
    "d2lite_course": ["torch", "numpy", "cloudpickle"],
}
WITH_NOTEBOOK = ["nbval", "pytest", "ipykernel"]
CELLS = (
    "import sys\nimport torch\nimport torch.distributed as dist\nfrom notebook_ranks import Workers",
    "def total():\n    x = torch.tensor(dist.get_rank() + 1)\n    dist.all_reduce(x)\n    return x.item()",
    "with Workers(2) as workers:\n    assert workers.run(total) == [3, 3]",
    "assert not [name for name in sys.modules if name.split('.')[0].startswith('d2lite')]",
)
SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group()
torch.manual_seed(0)
device = torch.device("cuda", dist.get_rank())
net = nn.parallel.DistributedDataParallel(nn.Linear(4, 2).to(device), device_ids=[device])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
examples = TensorDataset(torch.randn(256, 4), torch.randint(2, (256,)))
for X, y in DataLoader(examples, 32, shuffle=True):  # no sampler: each rank reads the same examples
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(X.to(device)), y.to(device)).backward()
    optimizer.step()
dist.destroy_process_group()
"""


def environment_with(folder, package, torch_version):
    """Return a fresh environment with one package, installed from the checkout by pip."""
    venv.create(folder, with_pip=True)
    needs, notebook = THIRD_PARTY[package], WITH_NOTEBOOK if package == "notebook_ranks" else []
    if torch_version:
        pip(folder, "install", "-q", f"torch=={torch_version}", *needs[1:], *notebook, limit_s=1800)
    else:
        link(closure([str(Requirement(name)) for name in [*needs, *notebook]]), site_of(folder))
    pip(folder, "install", "-q", "hatchling")
    pip(folder, "install", "-q", "--no-build-isolation", ROOT / "packages" / package)
    return folder


def use_ranks(folder, at):
    """Run two ranks in a plain notebook."""
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbformat.write(notebook, at / "ranks.ipynb")
    command = [python_of(folder), "-m", "pytest", "-q", "--nbval-lax", "-W", "default", "-p", "no:cacheprovider"]
    said = run([*command, "ranks.ipynb"], cwd=at, env=clean_environment())
    return said.strip().splitlines()[-1]


def use_rehearsal(folder, at):
    """Rehearse a script on two pretend GPUs: each rank reads the same examples."""
    (at / "train.py").write_text(SCRIPT)
    alone = "import importlib.util as u; assert u.find_spec('ddp_rehearsal') and not u.find_spec('d2lite')"
    run([python_of(folder), "-c", alone], cwd=at, env=clean_environment())
    program = python_of(folder).with_name("ddp-rehearsal")
    words = ["import subprocess, sys", f"done = subprocess.run([{str(program)!r}, '--gpus', '2', 'train.py'])"]
    words.append("assert done.returncode == 1, done.returncode")
    said = run([sys.executable, "-c", "\n".join(words)], cwd=at, env=clean_environment())
    assert "same" in said and "train.py" in said, said
    return next(line for line in said.splitlines() if "same" in line)


def use_course(folder, at):
    """Hand out chapter 2."""
    program = python_of(folder).with_name("d2lite-course")
    said = run([program, "hand-out", "out", "--chapters", "2"], cwd=at, env=clean_environment())
    assert (at / "out" / "students" / "book" / "02-data-parallel-from-scratch.ipynb").is_file(), said
    return said.strip().splitlines()[0]


USES = {"notebook_ranks": use_ranks, "ddp_rehearsal": use_rehearsal, "d2lite_course": use_course}


def main(arguments=None):
    """Try each package in a temporary folder, and print what it printed."""
    parser = argparse.ArgumentParser(description="Install each package alone, and use it.")
    parser.add_argument("--torch", metavar="VERSION", help="let pip download this torch, such as the oldest one")
    parser.add_argument("--only", nargs="+", choices=USES, default=list(USES), help="these packages")
    given = parser.parse_args(arguments)
    for package in given.only:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="d2lite-packages-") as name:
            folder = Path(name).resolve()
            (folder / "elsewhere").mkdir()
            environment = environment_with(folder / "env", package, given.torch)
            said = USES[package](environment, folder / "elsewhere")
            version = run([python_of(environment), "-c", "import torch; print(torch.__version__)"]).strip()
        print(f"{package} alone, torch {version}: {said} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
