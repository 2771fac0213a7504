"""A job that may lose a host: the function `train_ddp` with a checkpoint, a time-out and a log; for torchrun.

`torchrun --nnodes=1:2 --max-restarts=3 ... book/scripts/elastic.py --folder shared --num-epochs 6`. Each worker writes
lines of JSON to FOLDER/rank-<n>-<process>.jsonl: "start", "step", "error" and "finished", with the time of day.
"""

import argparse
import datetime
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from d2lite import listening
from d2lite.training import exit_rank, train_ddp

__all__ = ["main"]


def main():
    """Train, or go on from the checkpoint, under torchrun."""
    parser = argparse.ArgumentParser(prog="torchrun --nnodes=1:2 --max-restarts=3 book/scripts/elastic.py")
    parser.add_argument("--folder", type=Path, required=True, help="a folder that all hosts can read and write")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--num-epochs", type=int, default=6)
    parser.add_argument("--num-examples", type=int, default=2560)
    parser.add_argument("--timeout-s", type=float, default=10, help="the longest that a collective may take")
    args = parser.parse_args()

    restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    file = open(args.folder / f"rank-{os.environ['RANK']}-{os.getpid()}.jsonl", "a", buffering=1)

    def log(event, **facts):
        about = {"time": time.time(), "event": event, "pid": os.getpid(), "agent": os.getppid(), "restart": restart}
        about |= {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        file.write(json.dumps(about | facts) + "\n")

    def on_event(event, **facts):
        if event == "minibatch":  # emitted before the step, so that this many steps are done
            log("step", done=facts["epoch"] * facts["steps"] + facts["step"], steps=facts["steps"])

    log("start")
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=args.timeout_s))
        with listening(on_event):
            checkpoint = args.folder / "checkpoint.pt"
            run = train_ddp(args.batch_size, args.lr, args.num_epochs, args.num_examples, checkpoint=checkpoint)
    except Exception as error:
        log("error", type=type(error).__name__, message=str(error).splitlines()[0])
        raise
    log("finished", accuracy=run.accuracy, losses=len(run.losses))
    exit_rank()


if __name__ == "__main__":
    main()
