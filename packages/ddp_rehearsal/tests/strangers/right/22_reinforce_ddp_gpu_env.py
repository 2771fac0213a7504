"""Style: policy gradient with DDP, GPU-batched environment and a running normaliser shared by all_reduce; in the manner of https://github.com/leggedrobotics/rsl_rl"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Normal
from torch.nn.parallel import DistributedDataParallel

class RunningMeanStd(nn.Module):
    """Observation statistics over the environments of all ranks."""
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("count", torch.tensor(1e-4))
    @torch.no_grad()
    def update(self, x):
        x = x.reshape(-1, x.shape[-1])
        packed = torch.cat([x.sum(0), (x * x).sum(0), x.new_tensor([x.shape[0]])])
        dist.all_reduce(packed)
        n, d = packed[-1], x.shape[-1]
        mean = packed[:d] / n
        var = packed[d:2 * d] / n - mean ** 2
        delta, total = mean - self.mean, self.count + n
        m2 = self.var * self.count + var * n + delta ** 2 * self.count * n / total
        self.mean += delta * n / total
        self.var.copy_(m2 / total)
        self.count.copy_(total)
    def forward(self, x):
        return (x - self.mean) / (self.var.sqrt() + 1e-5)

class ActorCritic(nn.Module):
    def __init__(self, obs_dim=4, act_dim=2):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_dim, 32), nn.ELU(), nn.Linear(32, act_dim))
        self.critic = nn.Sequential(nn.Linear(obs_dim, 32), nn.ELU(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(act_dim))
    def forward(self, obs):
        return self.actor(obs), self.log_std.expand(obs.shape[0], -1), self.critic(obs).squeeze(-1)

class PointEnv:
    """Many masses on a plane, simulated on the GPU."""
    def __init__(self, num_envs, device, seed):
        self.gen = torch.Generator(device=device).manual_seed(seed)
        self.state = torch.randn(num_envs, 4, device=device, generator=self.gen)
    def step(self, action):
        vel = self.state[:, 2:] + 0.1 * action.clamp(-1, 1)
        self.state = torch.cat([self.state[:, :2] + 0.1 * vel, vel], dim=1)
        reward = -self.state[:, :2].norm(dim=1)
        far = self.state[:, :2].abs().amax(1) > 3
        self.state[far] = torch.randn(int(far.sum()), 4, device=self.state.device, generator=self.gen)
        return self.state, reward
def main():
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = f"cuda:{local_rank}"
    torch.cuda.set_device(device)
    dist.init_process_group(backend="nccl", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(42 + rank)
    policy = DistributedDataParallel(ActorCritic().to(device), device_ids=[local_rank])
    normalizer = RunningMeanStd(4).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    env = PointEnv(32, device, seed=42 + rank)
    for it in range(30):
        obs_buf, act_buf, rew_buf = [], [], []
        with torch.inference_mode():
            obs = env.state
            for _ in range(8):
                mean, log_std, _ = policy.module(normalizer(obs))
                action = mean + log_std.exp() * torch.randn_like(mean)
                obs_buf.append(obs.clone())
                act_buf.append(action)
                obs, reward = env.step(action)
                rew_buf.append(reward)
        obs, actions, rewards = torch.stack(obs_buf).clone(), torch.stack(act_buf).clone(), torch.stack(rew_buf).clone()
        returns = rewards.flip(0).cumsum(0).flip(0).flatten()
        mean, log_std, value = policy(normalizer(obs.flatten(0, 1)))
        advantage = returns - value.detach()
        logp = Normal(mean, log_std.exp()).log_prob(actions.flatten(0, 1)).sum(-1)
        loss = -(logp * advantage).mean() + 0.5 * (returns - value).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        normalizer.update(obs)
    if rank == 0:
        print(f"last mean reward {rewards.mean().item():.3f}, obs mean {normalizer.mean.tolist()}")
    dist.destroy_process_group()
if __name__ == "__main__":
    main()
