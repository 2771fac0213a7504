"""Policy gradient: several processes play on their CPU cores, and share one GPU for the small network, by gloo."""
import os
import torch, torch.distributed as dist, torch.nn as nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda:0")  # the machine has one
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)).to(device)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
torch.manual_seed(100 + rank)  # another game in each process
for update in range(30):
    states = torch.randn(64, 4)
    dist_ = torch.distributions.Categorical(logits=policy(states.to(device)))
    actions = dist_.sample()
    rewards = (actions.cpu() == (states[:, 0] > 0).long()).float()
    loss = -(dist_.log_prob(actions) * (rewards - rewards.mean()).to(device)).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in policy.parameters():
        grad = p.grad.cpu()
        dist.all_reduce(grad)
        p.grad.copy_(grad / world)
    optimizer.step()
dist.destroy_process_group()
