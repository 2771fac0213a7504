"""Each rank has a shard file of its own; a batch is a dict with the index in the shard, for the log of hard examples."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

class Shard(Dataset):
    def __init__(self, number):
        g = torch.Generator().manual_seed(1000 + number)  # stands for torch.load(f"shard-{number}.pt")
        self.x = torch.randn(256, 16, generator=g)
        self.y = (self.x[:, 0] > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"index": i, "x": self.x[i], "y": self.y[i]}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, batch):
        return F.cross_entropy(self.layers(batch["x"]), batch["y"], reduction="none")

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(dist.get_rank())
loader = DataLoader(Shard(dist.get_rank()), batch_size=16, shuffle=True, drop_last=True)
model = DDP(Net().to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
hardest = {}
for epoch in range(2):
    for batch in loader:
        batch = {name: value.to(local_rank) for name, value in batch.items()}
        losses = model(batch)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        hardest.update(zip(batch["index"].tolist(), losses.tolist()))
dist.destroy_process_group()
