"""Binary-network training with nn.DataParallel (one process, started with python), reduced from
https://github.com/htqin/IR-Net/issues/19
(k and t are plain tensor attributes made on the first GPU, so the replica on cuda:1 mixes devices)
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class SoftBinary(nn.Module):
    def __init__(self, dim_in, dim_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim_out, dim_in) * 0.1)
        self.k = torch.tensor([10.0]).to("cuda:0")
        self.t = torch.tensor([0.1]).to("cuda:0")

    def forward(self, x):
        w = self.k * torch.tanh(self.t * self.weight)
        return x @ w.t()


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    loader = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=16, shuffle=True)
    model = nn.Sequential(SoftBinary(8, 32), nn.ReLU(), SoftBinary(32, 4)).to("cuda:0")
    model = nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for xb, yb in loader:
            xb, yb = xb.to("cuda:0"), yb.to("cuda:0")
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    main()
