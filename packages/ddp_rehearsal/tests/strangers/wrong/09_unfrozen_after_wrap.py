"""After https://github.com/Lightning-AI/pytorch-lightning/issues/20340: the backbone is frozen when DDP wraps the model and unfrozen later, so DDP knows nothing of its parameters and their gradients stay different on every rank."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

UNFREEZE_AT_EPOCH = 2


class Finetuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.classifier = nn.Linear(24, 5)

    def forward(self, x):
        return self.classifier(self.backbone(x))


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(8)

    net = Finetuned().cuda()
    set_trainable(net.backbone, False)
    ddp = DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.SGD(net.classifier.parameters(), lr=0.1)

    g = torch.Generator().manual_seed(8)
    images = torch.randn(96, 16, generator=g)
    data = TensorDataset(images, images[:, :5].argmax(dim=1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=12, sampler=sampler)

    for epoch in range(5):
        if epoch == UNFREEZE_AT_EPOCH:
            set_trainable(net.backbone, True)
            optimizer.add_param_group({"params": net.backbone.parameters(), "lr": 0.02})
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(ddp(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        shown = loss.detach()
        dist.reduce(shown, dst=0, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", shown.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
