"""Two-view representation learning on several GPUs, reduced from
https://github.com/PatrickHua/SimSiam/issues/16
(the loader shuffles the whole set in every process; nothing splits it between the GPUs)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class SimSiam(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, dim))
        self.predictor = nn.Sequential(nn.Linear(dim, 8), nn.ReLU(), nn.Linear(8, dim))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        pa, pb = self.predictor(za), self.predictor(zb)
        return -(F.cosine_similarity(pa, zb.detach(), dim=1).mean()
                 + F.cosine_similarity(pb, za.detach(), dim=1).mean()) / 2


def main():
    torch.manual_seed(0)
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)

    x = torch.randn(96, 12)
    loader = DataLoader(TensorDataset(x, x + 0.1 * torch.randn_like(x)), batch_size=8, shuffle=True, drop_last=True)
    model = DDP(SimSiam().to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(3):
        for a, b in loader:
            loss = model(a.to(device), b.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
