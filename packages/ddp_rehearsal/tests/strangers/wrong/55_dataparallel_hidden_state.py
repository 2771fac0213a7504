"""After https://github.com/pytorch/pytorch/issues/15260: the hidden state of the GRU, (layers, batch, width), is given to nn.DataParallel, which cuts it along the first dimension, the layers, and not along the batch."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Forecaster(nn.Module):
    def __init__(self, features, width, layers):
        super().__init__()
        self.width, self.layers = width, layers
        self.gru = nn.GRU(features, width, num_layers=layers, batch_first=True)
        self.out = nn.Linear(width, 1)

    def init_hidden(self, batch_size, device):
        return torch.zeros(self.layers, batch_size, self.width, device=device)

    def forward(self, series, hidden):
        output, hidden = self.gru(series, hidden)
        return self.out(output[:, -1]), hidden


def waves(count, length=12):
    t = torch.arange(length + 1) / 3
    phase = 6.28 * torch.rand(count, 1, generator=torch.Generator().manual_seed(0))
    wave = torch.sin(t + phase)
    return TensorDataset(wave[:, :-1].unsqueeze(2), wave[:, -1:])


def train(args, device):
    model = Forecaster(1, args.width, args.layers).to(device)
    parallel = nn.DataParallel(model, device_ids=list(range(torch.cuda.device_count())))
    optimizer = torch.optim.Adam(parallel.parameters(), lr=args.lr)
    loader = DataLoader(waves(128), batch_size=args.batch, shuffle=True, drop_last=True)
    for epoch in range(args.epochs):
        total = 0.0
        for series, target in loader:
            series, target = series.to(device), target.to(device)
            hidden = model.init_hidden(series.size(0), device)
            prediction, hidden = parallel(series, hidden)
            loss = nn.functional.mse_loss(prediction, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=12)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-2)
    torch.manual_seed(0)
    train(parser.parse_args(), torch.device("cuda:0"))
