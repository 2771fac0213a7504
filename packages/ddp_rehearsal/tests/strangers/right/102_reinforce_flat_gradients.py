"""CleanRL style: an environment of its own per rank, weights broadcast once, one flat all-reduce of the gradients."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical


class Corridor:
    def __init__(self, seed, n=8):
        self.g, self.n = torch.Generator().manual_seed(seed), n

    def reset(self):
        self.pos = torch.randn(self.n, 2, generator=self.g) * 2
        return self.pos.clone()

    def step(self, action):
        move = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])[action]
        self.pos = self.pos + 0.5 * move + 0.05 * torch.randn(self.n, 2, generator=self.g)
        return self.pos.clone(), -self.pos.norm(dim=1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 4))
        self.critic = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))


def main():
    local_rank, world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=world_size)
    torch.manual_seed(1)
    agent = Agent().to(device)
    for p in agent.parameters():
        dist.broadcast(p.data, src=0)
    torch.manual_seed(1 + 997 * dist.get_rank())          # from here on own actions
    env = Corridor(seed=1 + dist.get_rank())
    opt = torch.optim.Adam(agent.parameters(), lr=5e-3, eps=1e-5)
    updates = 28
    for update in range(updates):
        opt.param_groups[0]["lr"] = 5e-3 * (1 - update / updates)
        obs, logps, values, rewards, entropy = env.reset(), [], [], [], 0.0
        for _ in range(6):
            o = obs.to(device)
            pi = Categorical(logits=agent.actor(o))
            action = pi.sample()
            logps.append(pi.log_prob(action))
            values.append(agent.critic(o).squeeze(1))
            entropy = entropy + pi.entropy().mean()
            obs, reward = env.step(action.cpu())
            rewards.append(reward.to(device))
        returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        values = torch.stack(values)
        adv = returns - values.detach()
        # advantages are normalised over all ranks' steps
        moments = torch.stack([adv.sum(), (adv ** 2).sum(), torch.tensor(float(adv.numel()), device=device)])
        dist.all_reduce(moments)
        mean = moments[0] / moments[2]
        adv = (adv - mean) / ((moments[1] / moments[2] - mean ** 2).clamp_min(0).sqrt() + 1e-6)
        loss = -(torch.stack(logps) * adv).mean() + 0.05 * (values - returns).pow(2).mean() - 0.01 * entropy / 6
        opt.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.view(-1) for p in agent.parameters()])
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        offset = 0
        for p in agent.parameters():
            p.grad.data.copy_(flat[offset:offset + p.numel()].view_as(p.grad) / world_size)
            offset += p.numel()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        if update % 7 == 0 and dist.get_rank() == 0:
            print(f"update {update} return {returns[0].mean().item():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
