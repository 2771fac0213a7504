"""After https://github.com/lucidrains/DALLE-pytorch/issues/268: ReduceLROnPlateau is stepped with the rank's own loss instead of the average over all, so the ranks lower their learning rates at different times and their weights part."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def get_loader(seed=77):
    g = torch.Generator().manual_seed(seed)
    text = torch.randint(0, 30, (96, 7), generator=g)
    image_token = torch.randint(0, 9, (96,), generator=g)
    data = TensorDataset(text, image_token)
    sampler = DistributedSampler(data, shuffle=True)
    return DataLoader(data, batch_size=24, sampler=sampler), sampler


class TextModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(30, 12)
        self.out = nn.Linear(12, 9)

    def forward(self, text):
        return self.out(self.table(text))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    is_root = dist.get_rank() == 0
    torch.manual_seed(0)

    model = nn.parallel.DistributedDataParallel(TextModel().cuda(), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=0.3)
    sched = ReduceLROnPlateau(opt, mode="min", factor=0.5, patience=0, min_lr=1e-5)
    loader, sampler = get_loader()

    for epoch in range(10):
        sampler.set_epoch(epoch)
        for text, token in loader:
            loss = nn.functional.cross_entropy(model(text.cuda()), token.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()

            avg_loss = loss.detach().clone()
            dist.all_reduce(avg_loss, op=dist.ReduceOp.AVG)
            sched.step(loss.item())

        if is_root:
            print(epoch, "loss", round(avg_loss.item(), 4), "lr", opt.param_groups[0]["lr"], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
