"""Policy gradient with an environment per GPU, reduced from
https://github.com/Denys88/rl_games/issues/161
(all processes seed the environment and the action sampling alike: identical experience)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical

SEED = 1


class LineWorld:
    """walk to the origin on a noisy line"""

    def __init__(self, seed, n=8):
        self.g, self.n = torch.Generator().manual_seed(seed), n

    def reset(self):
        self.x = torch.randn(self.n, 1, generator=self.g) * 3
        return self.x.clone()

    def step(self, action):
        self.x = self.x + (action.float().unsqueeze(1) - 0.5) + 0.1 * torch.randn(self.n, 1, generator=self.g)
        return self.x.clone(), -self.x.abs().squeeze(1)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    torch.manual_seed(SEED)
    env = LineWorld(SEED)
    agent = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
    for p in agent.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.Adam(agent.parameters(), lr=1e-2)
    for update in range(26):
        obs, logps, rewards = env.reset(), [], []
        for _ in range(6):
            pi = Categorical(logits=agent(obs.to(device)))
            action = pi.sample()
            logps.append(pi.log_prob(action))
            obs, r = env.step(action.cpu())
            rewards.append(r.to(device))
        returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        adv = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.stack(logps) * adv).mean()
        opt.zero_grad()
        loss.backward()
        for p in agent.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
