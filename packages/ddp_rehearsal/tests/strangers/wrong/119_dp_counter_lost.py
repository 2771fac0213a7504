"""A warm-up counted inside forward, with nn.DataParallel (one process), reduced from
https://github.com/pytorch/pytorch/issues/2864
(forward runs on throw-away replicas: self.seen stays 0 and the auxiliary loss never comes in)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class WithWarmup(nn.Module):
    def __init__(self, warmup=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.main, self.aux = nn.Linear(32, 3), nn.Linear(32, 10)
        self.seen, self.warmup = 0, warmup

    def forward(self, x, y):
        h = self.body(x)
        loss = F.cross_entropy(self.main(h), y)
        if self.training:
            weight = min(1.0, self.seen / self.warmup)
            loss = loss + weight * F.mse_loss(self.aux(h), x)
            self.seen += 1
        return loss.unsqueeze(0)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda:0")
    x = torch.randn(256, 10)
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True, drop_last=True)
    model = nn.DataParallel(WithWarmup().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        model.train()
        for xb, yb in loader:
            loss = model(xb.to(device), yb.to(device)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f} after {model.module.seen} forwards")


if __name__ == "__main__":
    main()
