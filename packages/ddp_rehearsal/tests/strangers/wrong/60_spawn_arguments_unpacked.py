"""After https://github.com/guochengqian/PointNeXt/issues/8: mp.spawn gets args=(cfg), which is no tuple but the configuration itself; it is unpacked, and main(gpu, cfg) is called with every one of its entries."""
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DEFAULTS = {
    "epochs": 4,
    "batch_size": 8,
    "lr": 0.01,
    "seed": 0,
    "points": 16,
    "num_classes": 3,
    "dist_url": "tcp://127.0.0.1:29871",
}


class PointNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, num_classes)

    def forward(self, cloud):
        return self.head(self.embed(cloud).amax(dim=1))


def clouds(cfg, count=96):
    g = torch.Generator().manual_seed(cfg["seed"])
    label = torch.randint(0, cfg["num_classes"], (count,), generator=g)
    return TensorDataset(torch.randn(count, cfg["points"], 3, generator=g) * (1 + label.view(-1, 1, 1)), label)


def main(gpu, cfg):
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", init_method=cfg["dist_url"], rank=gpu, world_size=cfg["world_size"])
    torch.manual_seed(cfg["seed"])
    model = DDP(PointNet(cfg["num_classes"]).cuda(gpu), device_ids=[gpu])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    data = clouds(cfg)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=cfg["batch_size"], sampler=sampler)
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for cloud, label in loader:
            loss = nn.functional.cross_entropy(model(cloud.cuda(gpu)), label.cuda(gpu))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if gpu == 0:
            print(f"epoch {epoch}: {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    cfg = dict(DEFAULTS, world_size=torch.cuda.device_count())
    mp.spawn(main, nprocs=cfg["world_size"], args=(cfg))
