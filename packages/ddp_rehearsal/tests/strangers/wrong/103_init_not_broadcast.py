"""Actor-critic with averaged gradients, reduced from
https://github.com/vwxyzjn/cleanrl/issues/476
(the seed is offset per rank before the agent is built, and its weights are never sent round)
"""
import os
import random
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Normal


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 16), nn.Tanh())
        self.mean, self.value = nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Normal(self.mean(h), 0.5), self.value(h).squeeze(-1)


def main():
    local_rank, world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    if world_size > 1:
        dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=world_size)
    seed = 1 + local_rank * 1000
    random.seed(seed)
    torch.manual_seed(seed)

    agent = Agent().to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    for update in range(28):
        obs = torch.randn(32, 3, device=device)
        with torch.no_grad():
            pi, value = agent(obs)
            action = pi.sample()
            old_logp = pi.log_prob(action).squeeze(-1)
            reward = -(action.squeeze(-1) - obs.sum(1)).pow(2)
            adv = reward - value
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pi, value = agent(obs)
        ratio = (pi.log_prob(action).squeeze(-1) - old_logp).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0.5 * (value - reward).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        if world_size > 1:
            flat = torch.cat([p.grad.view(-1) for p in agent.parameters()])
            dist.all_reduce(flat, op=dist.ReduceOp.SUM)
            offset = 0
            for p in agent.parameters():
                p.grad.data.copy_(flat[offset:offset + p.numel()].view_as(p.grad) / world_size)
                offset += p.numel()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
