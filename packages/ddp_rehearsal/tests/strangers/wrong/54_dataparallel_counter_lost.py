"""After https://github.com/pytorch/pytorch/issues/2864: forward counts its calls in an attribute, but under nn.DataParallel forward runs on throw-away replicas, so the counter stays at zero and the warm-up that depends on it never ends."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class WarmupVAE(nn.Module):
    def __init__(self, dim=20, latent=4, warmup=10):
        super().__init__()
        self.encoder = nn.Linear(dim, 2 * latent)
        self.decoder = nn.Linear(latent, dim)
        self.counter = 0
        self.warmup = warmup

    def forward(self, x):
        if self.training:
            self.counter += 1
        beta = min(1.0, self.counter / self.warmup)
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        rebuild = (self.decoder(z) - x).square().sum(dim=1)
        kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(dim=1)
        return rebuild + beta * kl, kl


def points(count=160):
    g = torch.Generator().manual_seed(0)
    low = torch.randn(count, 4, generator=g)
    return TensorDataset(low @ torch.randn(4, 20, generator=g))


def main():
    torch.manual_seed(0)
    device = torch.device("cuda:0")
    net = WarmupVAE().to(device)
    if torch.cuda.device_count() > 1:
        net = nn.DataParallel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loader = DataLoader(points(), batch_size=32, shuffle=True)

    for epoch in range(4):
        net.train()
        for (x,) in loader:
            loss, kl = net(x.to(device))
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
        core = net.module if isinstance(net, nn.DataParallel) else net
        print(f"epoch {epoch}: loss {loss.mean().item():.3f} kl {kl.mean().item():.3f} calls {core.counter}", flush=True)


if __name__ == "__main__":
    main()
