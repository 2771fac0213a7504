"""nn.DataParallel in one process: layer-wise learning rates and warm restarts.

python right_24_dataparallel.py
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 64)
        self.body = nn.Linear(64, 64)
        self.head = nn.Linear(64, 4)
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x):
        h = torch.relu(self.stem(x - self.mean))
        return self.head(torch.relu(self.body(h)))


def layerwise(net, lr, decay=0.7):
    parts = [net.head, net.body, net.stem]
    return [{"params": list(p.parameters()), "lr": lr * decay**i} for i, p in enumerate(parts)]


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    return torch.randn(n, 16, generator=g) + 2.0 * nn.functional.one_hot(y, 16) + 1.0, y


def main():
    torch.manual_seed(0)
    x, y = make(640, 0)
    xv, yv = make(133, 1)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)

    net = Net().cuda()
    net.mean.copy_(x.mean(0))
    model = nn.DataParallel(net, device_ids=[0, 1])
    opt = torch.optim.SGD(layerwise(net, 0.1), momentum=0.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=5)

    for epoch in range(2):
        model.train()
        for i, (xb, yb) in enumerate(loader):
            # the outputs are gathered on GPU 0, the loss is of the whole batch
            loss = nn.functional.cross_entropy(model(xb.cuda()), yb.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step(epoch * len(loader) / 2 + (i + 1) / 2)
        model.eval()
        with torch.no_grad():
            right = sum((model(a.cuda()).argmax(1).cpu() == b).sum().item()
                        for a, b in DataLoader(TensorDataset(xv, yv), batch_size=50))
        print(f"epoch {epoch} loss {loss.item():.4f} acc {right / len(yv):.4f}", flush=True)

    torch.save(net.state_dict(), "dataparallel.pt")
    fresh = Net()
    fresh.load_state_dict(torch.load("dataparallel.pt", map_location="cpu"))


if __name__ == "__main__":
    main()
