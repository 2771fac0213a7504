"""Fine-tuning in two phases, reduced from
https://github.com/facebookresearch/detectron2/issues/2486
(layers frozen when the model was wrapped are unfrozen later through model.module)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 24), nn.ReLU())
        self.box_head = nn.Linear(24, 4)
        self.cls_head = nn.Linear(24, 3)
        for p in self.box_head.parameters():
            p.requires_grad = False

    def unfreeze_box_head(self):
        for p in self.box_head.parameters():
            p.requires_grad = True

    def forward(self, x):
        h = self.backbone(x)
        return self.box_head(h), self.cls_head(h)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(4)
    x = torch.randn(96, 10, generator=g)
    dataset = TensorDataset(x, x[:, :4].tanh(), x[:, 4:7].argmax(1))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(Detector().to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    iteration = 0
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, box, cls in loader:
            if iteration == 8:
                model.module.unfreeze_box_head()
            pred_box, pred_cls = model(x.to(device))
            loss = (nn.functional.smooth_l1_loss(pred_box, box.to(device))
                    + nn.functional.cross_entropy(pred_cls, cls.to(device)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            iteration += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
