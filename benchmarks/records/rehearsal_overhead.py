"""What a rehearsal adds to a step of a script: two ranks on pretend GPUs, started by torchrun, and then watched.

Alone: `python -m benchmarks.records.rehearsal_overhead --save NAME`. In each round both runs of a network take turns.
A step is what a script does from one minibatch to the next, with its DataLoader. A figure is the mean of 80 steps on
rank 0, by the clock of the wall and by the processor time of the main thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.report import command_line, keep, machine
from ddp_rehearsal import rehearse
from ddp_rehearsal.pretend_gpus import pretend_gpus_environment

__all__ = ["NETWORKS", "main", "milliseconds"]

NUM_STEPS, WARM_UP, GPUS = 110, 30, 2
# {name: (the network, examples of the data set, examples in a minibatch of one rank)}; the first network is tiny
NETWORKS = {
    "perceptron, 676 weights, 32 examples": (
        "nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))",
        "torch.randn(n, 16), torch.randint(4, (n,))",
        32,
    ),
    "LeNet, 129,068 weights, 128 images": (
        "LeNet()",
        "torch.rand(n, 1, 28, 28), torch.randint(10, (n,))",
        128,
    ),
    "transformer, 208,740 weights, 8 texts of 64": (
        "nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True), 4), "
        "nn.Linear(64, 100))",
        "torch.randn(n, 64, 64), torch.randint(100, (n, 64))",
        8,
    ),
}
SCRIPT = """
import json, os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from d2lite import LeNet

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
n = {examples} * 2 * {last}
data = TensorDataset({data})
loader = DataLoader(data, {examples}, sampler=DistributedSampler(data))
net = DistributedDataParallel({network}.cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), 0.01)
clocks, marks = (time.perf_counter, time.thread_time), {{}}
for step, (X, y) in enumerate(loader):
    X, y = X.cuda(), y.cuda()
    loss = nn.functional.cross_entropy(net(X).flatten(0, -2), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step in ({warm_up}, {last} - 5):
        marks[step] = [clock() for clock in clocks]
    if step == {last} - 5 and rank == 0:
        begun, ended = marks.values()
        with open(sys.argv[1], "w") as file:
            json.dump([1e3 * (e - b) / ({last} - 5 - {warm_up}) for b, e in zip(begun, ended)], file)
dist.barrier()  # none ends while its last messages are still under way
del net
dist.destroy_process_group()
"""


def milliseconds(name, is_watched, folder):
    """Return the milliseconds of a step: (wall, processor time of the main thread), on rank 0."""
    network, data, examples = NETWORKS[name]
    script, result = Path(folder, "script.py"), Path(folder, "result.json")
    facts = {"network": network, "data": data, "examples": examples, "last": NUM_STEPS + 5, "warm_up": WARM_UP}
    script.write_text(SCRIPT.format(**facts))
    result.unlink(missing_ok=True)
    if is_watched:
        found = rehearse(str(script), [str(result)], GPUS, NUM_STEPS + 5)
        assert not found.error and not found.findings, found
    else:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={GPUS}", script]
        env = os.environ | pretend_gpus_environment(GPUS)
        done = subprocess.run([*command, result], env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
    return tuple(json.loads(result.read_text()))


def main(argv=None):
    """Measure, print, and keep the figures as JSON if a name is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.rehearsal_overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of both runs of each network (5)")
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json")
    args = parser.parse_args(argv)
    facts, found = machine(), {"rounds": args.rounds, "milliseconds": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in NETWORKS:
            pairs = [
                [milliseconds(name, is_watched, folder) for is_watched in (False, True)] for _ in range(args.rounds)
            ]
            found["milliseconds"][name] = rows = {}
            for i, clock in enumerate(("wall", "processor")):
                plain, watched = ([run[i] for run in runs] for runs in zip(*pairs, strict=True))
                more = [100 * (w / p - 1) for p, w in zip(plain, watched, strict=True)]
                rows[clock] = {"plain": plain, "watched": watched, "more_percent": more}
                print(
                    f"{name}, {clock}: {median(plain):.2f} ms, watched {median(watched):.2f} ms, {median(more):+.0f}%"
                )
    if args.save:
        keep(args.save, command_line("benchmarks.records.rehearsal_overhead", argv), facts, found)


if __name__ == "__main__":
    main()
