"""Style: detection reference training: dicts of losses, tuple collate, print on rank 0 only; modelled on https://github.com/pytorch/vision/tree/main/references/detection"""
import argparse, builtins, math, os, sys
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

def init_distributed_mode(args):
    args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    args.gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(args.gpu)
    dist.init_process_group(backend="nccl", init_method="env://", world_size=args.world_size, rank=args.rank)
    dist.barrier()
    builtin_print = builtins.print
    builtins.print = lambda *a, force=False, **kw: builtin_print(*a, **kw) if args.rank == 0 or force else None
def reduce_dict(input_dict):
    with torch.no_grad():
        names = sorted(input_dict)  # the same order in all processes
        dist.all_reduce(values := torch.stack([input_dict[k] for k in names]))
        return dict(zip(names, values / dist.get_world_size()))
class Boxes(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        h, w, k = (*torch.randint(20, 33, (2,), generator=g).tolist(), int(torch.randint(1, 4, (1,), generator=g)))
        return torch.rand(3, h, w, generator=g), {"image_id": i, "boxes": torch.rand(k, 4, generator=g),
                                                  "labels": torch.randint(1, 4, (k,), generator=g)}
class TinyDetector(nn.Module):
    """Returns losses when training and detections when evaluating, like torchvision's models."""
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.cls_logits, self.bbox_pred = nn.Linear(128, 4), nn.Linear(128, 4)
    def forward(self, images, targets=None):
        feats = torch.cat([self.backbone(im[None]) for im in images])
        logits, boxes = self.cls_logits(feats), self.bbox_pred(feats)
        if self.training:
            idx = torch.cat([torch.full_like(t["labels"], i) for i, t in enumerate(targets)])
            labels, gt = torch.cat([t["labels"] for t in targets]), torch.cat([t["boxes"] for t in targets])
            return {"loss_classifier": F.cross_entropy(logits[idx], labels),
                    "loss_box_reg": F.smooth_l1_loss(boxes[idx], gt)}
        return [{"boxes": b, "label": c} for b, c in zip(boxes, logits.argmax(1))]
def collate_fn(batch):
    return tuple(zip(*batch))
def main(args):
    init_distributed_mode(args)
    train_set, test_set = Boxes(320, 0), Boxes(41, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_sampler=BatchSampler(sampler, args.batch_size, drop_last=True),
                              num_workers=2, collate_fn=collate_fn)
    test_loader = DataLoader(test_set, 1, sampler=DistributedSampler(test_set, shuffle=False), collate_fn=collate_fn)
    device = torch.device("cuda")
    model = nn.parallel.DistributedDataParallel(TinyDetector().to(device), device_ids=[args.gpu])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.02, momentum=0.9)
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1], gamma=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=len(train_loader) - 1) if epoch == 0 else None
        for images, targets in train_loader:
            images = [image.to(device) for image in images]
            targets = [{k: v.to(device) if torch.is_tensor(v) else v for k, v in t.items()} for t in targets]
            loss_dict = model(images, targets)
            loss_value = sum(reduce_dict(loss_dict).values()).item()
            if not math.isfinite(loss_value):  # the reduced loss: all processes stop together
                sys.exit(1)
            optimizer.zero_grad()
            sum(loss_dict.values()).backward()
            optimizer.step()
            if warmup is not None:
                warmup.step()
        lr_scheduler.step()
        model.eval()
        with torch.inference_mode():
            mine = {t["image_id"]: (o["label"].item() in t["labels"].tolist())
                    for im, tg in test_loader for t, o in zip(tg, model([i.to(device) for i in im]))}
        parts = [None] * args.world_size
        dist.all_gather_object(parts, mine)
        merged = {k: v for part in parts for k, v in part.items()}  # padded images count once
        print(f"Epoch [{epoch}] loss {loss_value:.4f} hit rate {sum(merged.values()) / len(merged):.3f} of {len(merged)}")
    dist.destroy_process_group()
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", default=8, type=int)
    main(parser.parse_args())
