"""Style: CleanRL PPO on several GPUs: flat gradient all_reduce, own seeds per rank; modelled on https://github.com/vwxyzjn/cleanrl/blob/master/cleanrl/ppo_atari_multigpu.py"""
import os
from dataclasses import dataclass
import numpy as np
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributions.categorical import Categorical
@dataclass
class Args:
    seed: int = 1
    num_iterations: int = 5
    clip_coef: float = 0.2
    target_kl: float = 0.5
class LineWorld:
    """Vectorised toy env: move a point to the origin."""
    def __init__(self, n, seed):
        self.rng, self.n = np.random.default_rng(seed), n
    def reset(self):
        self.x, self.t = self.rng.uniform(-1, 1, self.n), 0
        return self.observe()
    def observe(self):
        return np.stack([self.x, np.sign(self.x)], 1).astype(np.float32)
    def step(self, action):
        self.x, self.t = self.x + (action - 1) * 0.2, self.t + 1
        reward, done = -np.abs(self.x), np.full(self.n, self.t >= 10)
        return self.reset() if done[0] else self.observe(), reward.astype(np.float32), done
def layer_init(layer, std=np.sqrt(2)):
    nn.init.orthogonal_(layer.weight, std)
    return layer
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(layer_init(nn.Linear(2, 32)), nn.Tanh())
        self.actor, self.critic = layer_init(nn.Linear(32, 3), std=0.01), layer_init(nn.Linear(32, 1), std=1)
    def get_action_and_value(self, x, action=None):
        probs, value = Categorical(logits=self.actor(h := self.network(x))), self.critic(h)
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), value
args = Args()
local_rank, world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(device := torch.device(f"cuda:{local_rank}"))
dist.init_process_group("nccl")
torch.manual_seed(args.seed)  # one seed for the weights ...
agent = Agent().to(device)
args.seed += dist.get_rank()  # ... CRUCIAL: another seed per worker for everything else
np.random.seed(args.seed); torch.manual_seed(args.seed)
S, N = 16, 4  # steps per rollout, environments of this rank
optimizer, envs = optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5), LineWorld(N, args.seed)
obs, actions = torch.zeros((S, N, 2), device=device), torch.zeros((S, N), dtype=torch.long, device=device)
logprobs, rewards, dones, values = (torch.zeros((S, N), device=device) for _ in range(4))
next_obs, next_done = torch.tensor(envs.reset(), device=device), torch.zeros(N, device=device)
for iteration in range(1, args.num_iterations + 1):
    optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / args.num_iterations) * 2.5e-3
    for step in range(S):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            actions[step], logprobs[step], _, value = agent.get_action_and_value(next_obs)
        values[step] = value.flatten()
        next_obs, reward, next_done = (torch.tensor(v, device=device) for v in envs.step(actions[step].cpu().numpy()))
        rewards[step], next_done = reward, next_done.float()
    with torch.no_grad():
        next_value, lastgaelam, advantages = agent.get_action_and_value(next_obs)[3].flatten(), 0, torch.zeros_like(rewards)
        for t in reversed(range(S)):
            nonterminal, nextvalues = (1.0 - next_done, next_value) if t == S - 1 else (1.0 - dones[t + 1], values[t + 1])
            delta = rewards[t] + 0.99 * nextvalues * nonterminal - values[t]
            advantages[t] = lastgaelam = delta + 0.99 * 0.95 * nonterminal * lastgaelam
    b_obs, b_logprobs, b_actions, b_adv, b_returns = (v.flatten(0, 1) for v in (obs, logprobs, actions, advantages, advantages + values))
    for epoch in range(2):
        for mb_inds in np.array_split(np.random.permutation(S * N), 4):
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
            ratio = (newlogprob - b_logprobs[mb_inds]).exp()
            adv = (b_adv[mb_inds] - b_adv[mb_inds].mean()) / (b_adv[mb_inds].std() + 1e-8)
            pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)).mean()
            v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb_inds]) ** 2).mean()
            loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
            optimizer.zero_grad()
            loss.backward()
            all_grads = torch.cat([p.grad.view(-1) for p in agent.parameters()])
            dist.all_reduce(all_grads, op=dist.ReduceOp.SUM)  # one call for all gradients
            for p, g in zip(agent.parameters(), all_grads.split([p.numel() for p in agent.parameters()])):
                p.grad.data.copy_(g.view_as(p.grad) / world_size)
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        approx_kl = ((ratio - 1) - ratio.log()).mean().detach()
        dist.all_reduce(approx_kl)  # all ranks decide on the same number
        if approx_kl.item() / world_size > args.target_kl:
            break
    print(f"rank {dist.get_rank()} iteration {iteration} actor sum {agent.actor.weight.sum().item():.6f}")
dist.destroy_process_group()
