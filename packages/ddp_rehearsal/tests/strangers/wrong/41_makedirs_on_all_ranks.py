"""After https://github.com/huawei-bayerlab/marigold-v2/pull/7: every rank creates the same run directory with exist_ok=False, one succeeds and the others raise FileExistsError."""
import json
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup_run(base, job_name, config):
    out_dir_run = os.path.join(base, job_name)
    os.makedirs(out_dir_run, exist_ok=False)
    if dist.get_rank() == 0:
        with open(os.path.join(out_dir_run, "config.json"), "w") as f:
            json.dump(config, f)
    dist.barrier()
    return out_dir_run


def depth_data(n):
    g = torch.Generator().manual_seed(7)
    rgb = torch.rand(n, 3, 4, 4, generator=g)
    return TensorDataset(rgb, rgb.mean(dim=1, keepdim=True).sqrt())


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    config = {"lr": 0.01, "epochs": 4, "batch": 8, "seed": 3}

    base = os.path.join(tempfile.gettempdir(), f"runs_{os.environ['MASTER_PORT']}")
    if dist.get_rank() == 0:
        shutil.rmtree(base, ignore_errors=True)
    dist.barrier()
    out_dir = setup_run(base, "depth_small", config)

    torch.manual_seed(config["seed"])
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)).cuda()
    net = DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.Adam(net.parameters(), lr=config["lr"])
    data = depth_data(64)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=config["batch"], sampler=sampler)
    for epoch in range(config["epochs"]):
        sampler.set_epoch(epoch)
        for rgb, depth in loader:
            loss = nn.functional.l1_loss(net(rgb.cuda()), depth.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save(net.module.state_dict(), os.path.join(out_dir, "last.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
