"""After https://github.com/kohjingyu/fromage/issues/33: the features of the contrastive loss are collected by dist.all_gather, which does not carry gradients, so the part of the loss that runs through the gathered keys trains nothing."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class TwoTowers(nn.Module):
    def __init__(self, image_dim=20, words=50, width=12):
        super().__init__()
        self.image_tower = nn.Sequential(nn.Linear(image_dim, 24), nn.GELU(), nn.Linear(24, width))
        self.text_tower = nn.EmbeddingBag(words, width)
        self.log_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, image, caption):
        image = F.normalize(self.image_tower(image), dim=1)
        caption = F.normalize(self.text_tower(caption), dim=1)
        return image, caption, self.log_scale.exp()


def from_all_gpus(feature):
    parts = [torch.empty_like(feature) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, feature)
    return torch.cat(parts)


def contrastive_loss(image, caption, scale):
    all_image, all_caption = from_all_gpus(image), from_all_gpus(caption)
    target = torch.arange(len(image), device=image.device) + dist.get_rank() * len(image)
    per_image = F.cross_entropy(scale * image @ all_caption.t(), target)
    per_caption = F.cross_entropy(scale * caption @ all_image.t(), target)
    return (per_image + per_caption) / 2


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = DistributedDataParallel(TwoTowers().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    g = torch.Generator().manual_seed(15)
    caption = torch.randint(0, 50, (128, 5), generator=g)
    image = torch.zeros(128, 50).scatter_(1, caption, 1.0) @ torch.randn(50, 20, generator=g)
    pairs = TensorDataset(image, caption)
    sampler = DistributedSampler(pairs, shuffle=True, drop_last=True)
    loader = DataLoader(pairs, batch_size=16, sampler=sampler, drop_last=True)

    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, text in loader:
            loss = contrastive_loss(*model(x.cuda(), text.cuda()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: contrastive loss {mean.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
