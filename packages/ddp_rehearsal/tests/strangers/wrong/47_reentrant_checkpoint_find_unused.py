"""After https://github.com/huggingface/accelerate/issues/2017: reentrant gradient checkpointing is used together with DDP(find_unused_parameters=True), which marks parameters ready twice."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class VisionModel(nn.Module):
    def __init__(self, patches=6, width=16, depth=3, classes=4):
        super().__init__()
        self.patch = nn.Linear(9, width)
        self.position = nn.Parameter(torch.zeros(patches, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, pixels):
        x = self.patch(pixels) + self.position
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x.mean(dim=1))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)

    model = VisionModel().cuda()
    model = DistributedDataParallel(model, device_ids=[local_rank], find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)

    g = torch.Generator().manual_seed(3)
    pixels = torch.randn(96, 6, 9, generator=g)
    data = TensorDataset(pixels, pixels.mean(dim=1)[:, :4].argmax(dim=1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=12, sampler=sampler)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
