"""After https://github.com/Robbyant/lingbot-vla-v2/issues/41: all ranks set the same seed and draw noise and time steps of the flow matching from it, so every rank gets identical noise in every step."""
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class FlowPolicy(nn.Module):
    def __init__(self, state=6, action=4):
        super().__init__()
        self.velocity = nn.Sequential(nn.Linear(state + action + 1, 48), nn.SiLU(), nn.Linear(48, action))

    def forward(self, state, noisy_action, time):
        return self.velocity(torch.cat([state, noisy_action, time], dim=1))


def sample_beta(batch, device):
    return torch.rand(batch, 1, device=device).pow(1 / 1.5) * 0.999


def flow_loss(model, state, action):
    noise = torch.randn(action.shape, device=action.device)
    time = sample_beta(len(action), action.device)
    noisy = time * noise + (1 - time) * action
    return (model(state, noisy, time) - (noise - action)).square().mean()


def main(seed=42):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    set_seed(seed)

    policy = DistributedDataParallel(FlowPolicy().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)

    g = torch.Generator().manual_seed(0)
    state = torch.randn(128, 6, generator=g)
    episodes = TensorDataset(state, torch.tanh(state[:, :4] - state[:, 2:]))
    sampler = DistributedSampler(episodes, shuffle=True, seed=seed)
    loader = DataLoader(episodes, batch_size=16, sampler=sampler)

    for epoch in range(5):
        sampler.set_epoch(epoch)
        for s, a in loader:
            loss = flow_loss(policy, s.cuda(), a.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: flow loss {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
