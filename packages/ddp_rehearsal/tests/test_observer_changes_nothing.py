"""The updates of a right script are the same, bit for bit, whether a rehearsal observes it or not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_rehearsal import rehearse, report_text
from ddp_rehearsal.pretend_gpus import pretend_gpus_environment

FOLDER = Path(__file__).parent / "strangers" / "right"
# left out: processes of its own, which do not run the lines below; one process; other numbers in each run
LEFT_OUT = (
    "spawn",
    "Process(",
    "Popen",
    "launch(",
    "nn.DataParallel(",
    "one process",
    "time.time()) %",
    "random.random() <",
)
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if not any(w in path.read_text() for w in LEFT_OUT)]
pytestmark = [pytest.mark.release, pytest.mark.skipif(os.name == "nt", reason="ranks need Linux or macOS")]
NOTING = """
import gc, hashlib, json, os, random, runpy, sys
import numpy
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

folder, script = sys.argv[1:]
torch.set_num_threads(1)
for seed in (random.seed, numpy.random.seed, torch.manual_seed):
    seed(0)
noted = []

def digest(t):
    t = (t.to_local() if hasattr(t, "to_local") else t).detach().cpu()
    return hashlib.sha256(t.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()

def note(optimizer, args, kwargs):
    noted.append([digest(p) for group in optimizer.param_groups for p in group["params"]])

register_optimizer_step_post_hook(note)
sys.argv = [script]
sys.path[0] = os.path.dirname(script)
try:
    kept = runpy.run_path(script, run_name="__main__")
    if not noted:  # updates by hand
        found = (t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.is_leaf and t.requires_grad)
        noted.append(sorted({digest(t) for t in found}))
finally:
    with open(os.path.join(folder, os.environ.get("RANK", "0")), "w") as f:
        json.dump(noted, f)
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_updates_are_the_same(script, tmp_path, monkeypatch):
    program = tmp_path / "noting.py"
    program.write_text(NOTING)
    updates = {}
    for name in ("observed", "alone"):
        (folder := tmp_path / name).mkdir()
        monkeypatch.chdir(folder)
        arguments = [str(program), str(folder), str(script)]
        if name == "observed":
            found = rehearse(arguments[0], arguments[1:], steps=10_000)
            assert not found.error, report_text(found)
        else:
            env = os.environ | pretend_gpus_environment(2)
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            done = subprocess.run([*torchrun, *arguments], env=env, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr[-2000:]
        updates[name] = {rank: json.loads((folder / rank).read_text()) for rank in ("0", "1")}
    assert updates["observed"] == updates["alone"]
    assert updates["alone"]["0"] and updates["alone"]["0"][-1]
