"""FedAvg: each rank is a client with data of its own amount and kind; local steps, then a weighted average of the weights."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

ROUNDS, LOCAL_EPOCHS = 5, 1


def client_data(rank):
    n = 48 if rank % 2 == 0 else 40                     # 6 and 5 local batches a round
    g = torch.Generator().manual_seed(1000 + rank)
    x = torch.randn(n, 8, generator=g) + 0.5 * rank     # not identically distributed, and meant so
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


def average(model, weight, device):
    """the clients' weights, averaged by numbers of samples"""
    total = torch.tensor(float(weight), device=device)
    dist.all_reduce(total)
    with torch.no_grad():
        for t in model.state_dict().values():
            scaled = t * (weight / total)
            dist.all_reduce(scaled)
            t.copy_(scaled)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    data = client_data(rank)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 2)).to(device)
    for t in model.state_dict().values():
        dist.broadcast(t, src=0)
    for rnd in range(ROUNDS):
        opt = torch.optim.SGD(model.parameters(), lr=0.05 * 0.9 ** rnd, momentum=0.9)    # a fresh one each round
        for _ in range(LOCAL_EPOCHS):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
                opt.zero_grad()
                loss.backward()
                opt.step()
        average(model, len(data), device)
        with torch.no_grad():
            x, y = (t.to(device) for t in data.tensors)
            hits = torch.stack([(model(x).argmax(1) == y).sum(), torch.tensor(len(y), device=device)])
        dist.all_reduce(hits)
        if rank == 0:
            print(f"round {rnd}: accuracy over all clients {(hits[0] / hits[1]).item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
