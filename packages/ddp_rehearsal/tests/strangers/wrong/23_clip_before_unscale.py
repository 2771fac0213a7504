"""After https://github.com/milesial/Pytorch-UNet/issues/468: gradients are clipped while they still carry the GradScaler's factor; scaler.unscale_(optimizer) is missing before clip_grad_norm_."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class TinyUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.mask = nn.Conv2d(5, 2, 1)

    def forward(self, x):
        deep = torch.relu(self.mid(torch.relu(self.down(x))))
        return self.mask(torch.cat([x, self.up(deep)], dim=1))


def masks():
    g = torch.Generator().manual_seed(10)
    image = torch.rand(64, 1, 8, 8, generator=g)
    return TensorDataset(image, (image[:, 0] > 0.5).long())


def train_model(device, epochs=4, batch_size=8, amp=True, gradient_clipping=1.0):
    torch.manual_seed(0)
    model = DistributedDataParallel(TinyUNet().to(device), device_ids=[device.index])
    dataset = masks()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    grad_scaler = torch.amp.GradScaler("cuda", enabled=amp)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, true_masks in loader:
            images, true_masks = images.to(device), true_masks.to(device)
            with torch.autocast("cuda", dtype=torch.float16, enabled=amp):
                loss = criterion(model(images), true_masks)
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
            grad_scaler.step(optimizer)
            grad_scaler.update()
        mean = loss.detach().float()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {mean.item():.4f} scale {grad_scaler.get_scale():.0f}", flush=True)


if __name__ == "__main__":
    local = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    train_model(local)
    dist.destroy_process_group()
