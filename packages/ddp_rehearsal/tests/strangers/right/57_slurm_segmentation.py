"""Style: segmentation reference on a SLURM cluster, torchrun or one GPU: ConfusionMatrix, poly lr, ignore index; modelled on https://github.com/pytorch/vision/tree/main/references/segmentation"""
import os, subprocess
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset
NUM_CLASSES, IGNORE = 4, 255
def init_distributed_mode():
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:  # torchrun
        rank, world, gpu = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    elif "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", 1)) > 1:  # srun
        rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
        gpu = int(os.environ.get("SLURM_LOCALID", rank % torch.cuda.device_count()))
        hosts = subprocess.check_output(["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]], text=True)
        os.environ["MASTER_ADDR"] = hosts.split()[0]
        os.environ.setdefault("MASTER_PORT", str(10000 + int(os.environ["SLURM_JOB_ID"]) % 20000))
    else:  # plain python
        rank, world, gpu = 0, 1, 0
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=world)
    return rank, world, gpu
class Shapes(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 10007 + i)
        image = torch.randn(3, 16, 16, generator=g)
        mask = (image.sum(0) + 2).clamp(0, NUM_CLASSES - 1).long()
        mask[0] = IGNORE  # a border without labels
        return image, mask
class ConfusionMatrix:
    def __init__(self):
        self.mat = torch.zeros((NUM_CLASSES, NUM_CLASSES), dtype=torch.int64, device="cuda")
    def update(self, a, b):
        k = (a >= 0) & (a < NUM_CLASSES)
        inds = NUM_CLASSES * a[k].to(torch.int64) + b[k]
        self.mat += torch.bincount(inds, minlength=NUM_CLASSES ** 2).reshape(NUM_CLASSES, NUM_CLASSES)
    def reduce_from_all_processes(self):
        dist.barrier()
        dist.all_reduce(self.mat)
    def mean_iou(self):
        h = self.mat.float()
        return (torch.diag(h) / (h.sum(1) + h.sum(0) - torch.diag(h)).clamp(min=1)).mean().item()
class FCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.classifier, self.aux_classifier = nn.Conv2d(16, NUM_CLASSES, 1), nn.Conv2d(16, NUM_CLASSES, 3, padding=1)
    def forward(self, x):
        f = self.backbone(x)
        up = lambda t: F.interpolate(t, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return {"out": up(self.classifier(f)), "aux": up(self.aux_classifier(f))}
def criterion(inputs, target):
    ce = lambda x: F.cross_entropy(x, target, ignore_index=IGNORE)
    return ce(inputs["out"]) + 0.5 * ce(inputs["aux"])
def main(epochs=2, batch_size=8, lr=0.05):
    rank, world, gpu = init_distributed_mode()
    train_set, val_set = Shapes(320, 0), Shapes(50, 1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size, sampler=sampler, num_workers=1, drop_last=True)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=4)  # every image once
    m = nn.SyncBatchNorm.convert_sync_batchnorm(FCN().cuda())
    model = nn.parallel.DistributedDataParallel(m, device_ids=[gpu])
    optimizer = torch.optim.SGD([{"params": [*m.backbone.parameters(), *m.classifier.parameters()]},
                                 {"params": m.aux_classifier.parameters(), "lr": lr * 10}], lr=lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=epochs * len(loader), power=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        for image, target in loader:
            loss = criterion(model(image.cuda()), target.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        model.eval()
        confmat = ConfusionMatrix()
        with torch.inference_mode():
            for image, target in val_loader:  # the number of batches may differ: use the bare module
                confmat.update(target.cuda().flatten(), m(image.cuda())["out"].argmax(1).flatten())
            confmat.reduce_from_all_processes()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} mean IoU {confmat.mean_iou():.3f}")
    dist.destroy_process_group()
if __name__ == "__main__":
    main()
