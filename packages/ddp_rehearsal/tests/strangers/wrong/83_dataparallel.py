"""Domain adaptation with nn.DataParallel; the domain loss is warmed up.

python wrong_23_dataparallel.py
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.alpha * grad, None


class AdaptNet(nn.Module):
    def __init__(self, warmup=10):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
        self.classes = nn.Linear(64, 4)
        self.domain = nn.Linear(64, 2)
        self.warmup = warmup
        self.steps = 0

    def forward(self, x):
        if self.training:
            self.steps += 1
        alpha = min(1.0, (self.steps - 1) / self.warmup)
        f = self.features(x)
        return self.classes(f), self.domain(Reverse.apply(f, alpha))


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    x = torch.randn(640, 16, generator=g)
    domain = torch.randint(0, 2, (640,), generator=g)
    x[:, 15] += 2.0 * domain
    y = (x[:, :4]).argmax(1)
    loader = DataLoader(TensorDataset(x, y, domain), batch_size=64, shuffle=True)

    net = nn.DataParallel(AdaptNet(), device_ids=[0, 1]).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    ce = nn.CrossEntropyLoss()

    for epoch in range(2):
        net.train()
        for xb, yb, db in loader:
            xb, yb, db = xb.cuda(), yb.cuda(), db.cuda()
            cls, dom = net(xb)
            loss = ce(cls, yb) + ce(dom, db)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} (step {net.module.steps})", flush=True)

    torch.save(net.module.state_dict(), "adapt.pt")


if __name__ == "__main__":
    main()
