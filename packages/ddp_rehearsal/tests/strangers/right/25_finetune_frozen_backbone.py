"""Style: transfer learning: load a backbone, train the head, then unfreeze with layer-wise learning rates; after https://docs.pytorch.org/tutorials/beginner/transfer_learning_tutorial.html"""
import gc
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def make_backbone():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1),
                         nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

class Classifier(nn.Module):
    def __init__(self, backbone, num_classes):
        super().__init__()
        self.backbone = backbone
        self.fc = nn.Linear(16, num_classes)
        self.freeze_bn = True

    def train(self, mode=True):
        super().train(mode)
        if self.freeze_bn:  # keep the running statistics of pretraining
            for m in self.modules():
                if isinstance(m, nn.BatchNorm2d):
                    m.eval()
        return self
    def forward(self, x):
        return self.fc(self.backbone(x))

def download_weights(path):
    """Rank 0 'downloads', the others wait for the file."""
    if dist.get_rank() == 0:
        torch.manual_seed(99)
        torch.save(make_backbone().state_dict(), path)
    dist.barrier()
    return torch.load(path, map_location="cpu", weights_only=True)

def train_stage(model, loader, sampler, optimizer, epochs, start):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(start, start + epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {sum(p.requires_grad for p in model.parameters())} trainable tensors, loss {loss.item():.3f}")

def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    backbone = make_backbone()
    backbone.load_state_dict(download_weights(os.path.join(folder[0], "backbone.pth")))
    net = Classifier(backbone, 4).cuda()
    g = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.rand(320, 3, 16, 16, generator=g), torch.randint(0, 4, (320,), generator=g))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, pin_memory=True)
    for p in net.backbone.parameters():
        p.requires_grad = False
    model = DDP(net, device_ids=[local_rank])
    train_stage(model, loader, sampler, torch.optim.Adam(net.fc.parameters(), lr=1e-3), 2, 0)
    # DDP counts the trainable parameters when it is made: wrap anew after unfreezing.
    del model
    gc.collect()
    for p in net.backbone.parameters():
        p.requires_grad = True
    model = DDP(net, device_ids=[local_rank])
    groups = [{"params": net.backbone[:3].parameters(), "lr": 1e-5},
              {"params": net.backbone[3:].parameters(), "lr": 1e-4},
              {"params": net.fc.parameters(), "lr": 1e-3}]
    train_stage(model, loader, sampler, torch.optim.AdamW(groups, weight_decay=0.01), 2, 2)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
