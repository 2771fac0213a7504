"""fully_shard with a distributed checkpoint: train, save, rebuild, load, go on.

torchrun --nproc-per-node=2 right_11_fsdp2_dcp.py
"""
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                          nn.Linear(64, 6)).to(device)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    # after sharding: the optimizer has to see the sharded parameters
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def train_epoch(model, opt, loader, sampler, epoch, device):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # knows about DTensor
        opt.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)

    g = torch.Generator().manual_seed(3)
    x = torch.randn(320, 24, generator=g)
    data = TensorDataset(x, (x @ torch.randn(24, 6, generator=g)).argmax(1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    model, opt = build(device)
    loss = train_epoch(model, opt, loader, sampler, 0, device)
    if rank == 0:
        print(f"epoch 0 loss {loss:.4f}", flush=True)

    model_sd, opt_sd = get_state_dict(model, opt)
    dcp.save({"model": model_sd, "opt": opt_sd}, checkpoint_id="dcp_epoch0")  # all ranks

    model, opt = build(device)
    model_sd, opt_sd = get_state_dict(model, opt)
    state = {"model": model_sd, "opt": opt_sd}
    dcp.load(state, checkpoint_id="dcp_epoch0")
    set_state_dict(model, opt, model_state_dict=state["model"], optim_state_dict=state["opt"])

    loss = train_epoch(model, opt, loader, sampler, 1, device)
    if rank == 0:
        print(f"epoch 1 loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
