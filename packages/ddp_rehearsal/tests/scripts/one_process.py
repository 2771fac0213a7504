"""One process with several GPUs: nn.DataParallel, as in section 13.6 of D2L."""

import torch
from torch import nn

net = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), device_ids=[0, 1]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
for _ in range(8):
    X = torch.randn(32, 6, device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(X), X[:, :3].argmax(1)).backward()
    optimizer.step()
