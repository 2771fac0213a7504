"""Policy gradient on a bandit, policy wrapped in DDP.

torchrun --nproc-per-node=2 wrong_22_policy.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Policy(nn.Module):
    def __init__(self, obs=6, actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.Tanh())
        self.pi = nn.Linear(32, actions)
        self.v = nn.Linear(32, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(1)

    def act(self, obs):
        logits, value = self(obs)
        d = torch.distributions.Categorical(logits=logits)
        a = d.sample()
        return a, d.log_prob(a), d.entropy(), value


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)

    torch.manual_seed(0)
    policy = DDP(Policy().to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)

    # every GPU plays its own episodes
    torch.manual_seed(1000 + rank)
    unwrapped = policy.module if isinstance(policy, DDP) else policy
    for step in range(20):
        obs = torch.randn(64, 6, device=device)
        action, logp, entropy, value = unwrapped.act(obs)
        reward = (action == obs[:, :4].argmax(1)).float()
        adv = reward - value.detach()
        loss = -(adv * logp).mean() + 0.5 * (reward - value).pow(2).mean() - 0.01 * entropy.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

        mean_reward = reward.mean()
        dist.all_reduce(mean_reward)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} reward {mean_reward.item() / dist.get_world_size():.3f}", flush=True)

    if rank == 0:
        torch.save(unwrapped.state_dict(), "policy.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
