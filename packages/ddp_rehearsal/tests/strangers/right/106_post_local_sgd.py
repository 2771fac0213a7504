"""Post-local SGD with torch's hook and optimizer: averaged gradients first, then local steps and periodic model averages."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WARMUP, PERIOD = 8, 4


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    x = torch.randn(176, 10, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :5].argmax(1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)          # 11 batches an epoch
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5)).to(device), device_ids=[local_rank])
    state = PostLocalSGDState(process_group=None, subgroup=None, start_localSGD_iter=WARMUP,
                              post_local_gradient_allreduce=False)
    model.register_comm_hook(state, post_localSGD_hook)
    opt = PostLocalSGDOptimizer(optim=torch.optim.SGD(model.parameters(), lr=0.05),
                                averager=PeriodicModelAverager(period=PERIOD, warmup_steps=WARMUP))
    for epoch in range(3):                     # 33 steps: the last one, number 32, ends with an average
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {mean.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
