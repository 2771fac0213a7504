"""Train until somebody makes the file STOP: then finish the epoch, whose checkpoint goes to CHECKPOINT, and end.

Started by in_time.sbatch. The checkpoint is read by the next start, which goes on from there.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist

from d2lite import Stopped, listening
from d2lite.training import exit_rank, train_ddp

checkpoint, stop = os.environ["CHECKPOINT"], Path(os.environ["STOP"])


def on_event(event, **facts):
    """After each epoch, whose checkpoint is written by then: rank 0 looks for the file, and all ranks do as it says."""
    if event != "point":
        return
    told = torch.tensor(float(dist.get_rank() == 0 and stop.exists()))
    dist.all_reduce(told)
    if dist.get_rank() == 0:
        end = ", checkpoint written, stopped" if told else ""
        print(f"epoch {facts['x'][0]}: test accuracy {facts['y'][0]:.3f}{end}", flush=True)
    if told:
        raise Stopped


torch.set_num_threads(1)
dist.init_process_group("gloo")
try:
    with listening(on_event):
        train_ddp(256, 0.1, num_epochs=1000, num_examples=2560, checkpoint=checkpoint)
except Stopped:
    pass
exit_rank()
