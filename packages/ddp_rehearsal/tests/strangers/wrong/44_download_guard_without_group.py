"""After https://github.com/yiqiao-yin/deepspeed-course/pull/16: the guard that lets only rank 0 download asks dist.is_initialized() before the process group exists, so every rank takes itself for rank 0 and all write the same file."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ARCHIVE = os.path.join(tempfile.gettempdir(), f"cifar_{os.environ.get('MASTER_PORT', '0')}.bin")
RECORDS, RECORD_BYTES = 96, 49  # a label and 48 bytes of picture


def fetch(path):
    """Stands for the download: the bytes come in pieces."""
    g = torch.Generator().manual_seed(0)
    body = torch.randint(0, 256, (RECORDS * RECORD_BYTES,), generator=g).to(torch.uint8).numpy().tobytes()
    with open(path, "wb") as f:
        for start in range(0, len(body), 588):
            f.write(body[start : start + 588])
            f.flush()
            time.sleep(0.05)


def download():
    """Prevents several processes from downloading at the same time."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    if rank == 0:
        fetch(ARCHIVE)
    if dist.is_initialized():
        dist.barrier()


def load():
    with open(ARCHIVE, "rb") as f:
        raw = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).view(RECORDS, RECORD_BYTES)
    return TensorDataset(raw[:, 1:].float() / 255, raw[:, 0].long() % 10)


def main():
    download()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

    torch.manual_seed(0)
    data = load()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=12, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10)).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for picture, label in loader:
            loss = nn.functional.cross_entropy(model(picture.cuda()), label.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
