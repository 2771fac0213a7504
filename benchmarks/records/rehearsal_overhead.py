"""What a rehearsal adds to a step of a script: two ranks on pretend GPUs, started by torchrun, and then watched.

Alone: `python -m benchmarks.records.rehearsal_overhead --save NAME`. In each round both runs of a network take turns.
A figure is the median of 80 steps on rank 0, by the clock of the wall and by the processor time of the main thread.
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
from d2lite.pretend_gpus import pretend_gpus_environment
from d2lite.rehearsal import rehearse

__all__ = ["NETWORKS", "main", "milliseconds"]

NUM_STEPS, WARM_UP, GPUS = 110, 30, 2
# {name: (the network, a minibatch of one rank)}; the first one is as small as a network can be
NETWORKS = {
    "perceptron, 676 weights, 32 examples": (
        "nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))",
        "torch.randn(32, 16, device='cuda'), torch.randint(4, (32,), device='cuda')",
    ),
    "LeNet, 129,068 weights, 128 images": (
        "LeNet()",
        "torch.rand(128, 1, 28, 28, device='cuda'), torch.randint(10, (128,), device='cuda')",
    ),
    "transformer, 208,740 weights, 8 texts of 64": (
        "nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True), 4), "
        "nn.Flatten(0, 1), nn.Linear(64, 100))",
        "torch.randn(8, 64, 64, device='cuda'), torch.randint(100, (8 * 64,), device='cuda')",
    ),
}
SCRIPT = """
import json, os, statistics, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from d2lite import LeNet

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(rank)
net = DistributedDataParallel({network}.cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), 0.01)
clocks, times = (time.perf_counter, time.thread_time), ([], [])
for step in range({last}):
    X, y = {minibatch}
    before = [clock() for clock in clocks]
    loss = nn.functional.cross_entropy(net(X), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for clock, begun, found in zip(clocks, before, times):
        found.append(1e3 * (clock() - begun))
    if step == {last} - 5 and rank == 0:
        with open(sys.argv[1], "w") as file:
            json.dump([statistics.median(found[{warm_up}:]) for found in times], file)
dist.barrier()  # none ends while its last messages are still under way
del net
dist.destroy_process_group()
"""


def milliseconds(name, is_watched, folder):
    """Return the milliseconds of a step: (wall, processor time of the main thread), on rank 0."""
    network, minibatch = NETWORKS[name]
    script, result = Path(folder, "script.py"), Path(folder, "result.json")
    script.write_text(SCRIPT.format(network=network, minibatch=minibatch, last=NUM_STEPS + 5, warm_up=WARM_UP))
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
