"""Style: YOLOv5 train.py: zero-first cache, loss times WORLD_SIZE, EMA and validation on rank 0 only, stop flag broadcast; modelled on https://github.com/ultralytics/yolov5/blob/master/train.py"""
import math, os, tempfile
from contextlib import contextmanager
from copy import deepcopy
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import SGD, lr_scheduler
from torch.utils.data import DataLoader, TensorDataset, distributed
LOCAL_RANK, RANK, WORLD_SIZE = int(os.getenv('LOCAL_RANK', -1)), int(os.getenv('RANK', -1)), int(os.getenv('WORLD_SIZE', 1))
@contextmanager
def torch_distributed_zero_first(local_rank):
    if local_rank not in (-1, 0):
        dist.barrier(device_ids=[local_rank])
    yield
    if local_rank == 0:
        dist.barrier(device_ids=[0])
def load_images_and_labels(cache):
    if not os.path.exists(cache):  # only the first process comes here
        np.save(cache, np.random.default_rng(0).random((256, 3, 16, 16), dtype=np.float32))
    imgs = torch.from_numpy(np.load(cache))
    return TensorDataset(imgs, torch.stack([imgs.mean((1, 2, 3)), imgs[:, 0].std((1, 2))], 1))
class ModelEMA:
    def __init__(self, model, decay=0.9999, tau=20):
        self.ema, self.updates = deepcopy(model).eval(), 0
        self.decay = lambda x: decay * (1 - math.exp(-x / tau))
        self.ema.requires_grad_(False)
    def update(self, model):
        self.updates += 1
        d, msd = self.decay(self.updates), model.module.state_dict()
        for k, v in self.ema.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1 - d) * msd[k].detach()
class EarlyStopping:
    best_fitness, best_epoch = -1e9, 0
    def __call__(self, epoch, fitness, patience=10):
        if fitness >= self.best_fitness:
            self.best_epoch, self.best_fitness = epoch, fitness
        return (epoch - self.best_epoch) >= patience
def train(device, epochs=4, batch_size=32, nbs=64):
    dist.broadcast_object_list(box := [tempfile.mkdtemp() if RANK in (-1, 0) else None], 0)
    torch.manual_seed(1 + RANK)
    with torch_distributed_zero_first(LOCAL_RANK):
        dataset = load_images_and_labels(os.path.join(box[0], 'train.cache.npy'))
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(8, 2)).to(device)
    optimizer = SGD([v for k, v in model.named_parameters() if k.endswith('bias')], lr=0.01, momentum=0.937, nesterov=True)
    optimizer.add_param_group({'params': [v for v in model.parameters() if v.ndim > 1], 'weight_decay': 5e-4})
    optimizer.add_param_group({'params': [m.weight for m in model.modules() if isinstance(m, nn.BatchNorm2d)]})
    scheduler = lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda x: (1 - x / epochs) * (1.0 - 0.01) + 0.01)
    ema = ModelEMA(model) if RANK in (-1, 0) else None
    sampler = distributed.DistributedSampler(dataset, shuffle=True)
    train_loader = DataLoader(dataset, batch_size // WORLD_SIZE, sampler=sampler, pin_memory=True)
    val_loader = DataLoader(dataset, batch_size) if RANK in (-1, 0) else None
    model = DDP(model, device_ids=[LOCAL_RANK], output_device=LOCAL_RANK)
    nb, nw, last_opt_step, stopper, stop = len(train_loader), 8, -1, EarlyStopping(), False
    for epoch in range(epochs):
        model.train()
        sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for i, (imgs, targets) in enumerate(train_loader):
            ni = i + nb * epoch  # number of integrated batches
            accumulate = max(1, np.interp(ni, [0, nw], [1, nbs / batch_size]).round()) if ni <= nw else 1
            loss = ((model(imgs.to(device, non_blocking=True)) - targets.to(device)) ** 2).mean()
            loss *= WORLD_SIZE  # gradient averaged between devices in DDP mode
            loss.backward()
            if ni - last_opt_step >= accumulate:
                optimizer.step()
                optimizer.zero_grad()
                last_opt_step = ni
                if ema:
                    ema.update(model)
        scheduler.step()
        if RANK in (-1, 0):
            with torch.no_grad():
                fitness = -sum(((ema.ema(x.to(device)) - t.to(device)) ** 2).sum().item() for x, t in val_loader)
            stop = stopper(epoch=epoch, fitness=fitness)
            torch.save({'epoch': epoch, 'ema': ema.ema.state_dict()}, os.path.join(box[0], 'last.pt'))
        broadcast_list = [stop if RANK == 0 else None]
        dist.broadcast_object_list(broadcast_list, 0)  # broadcast 'stop' to all ranks
        if broadcast_list[0]:
            break  # must break all DDP ranks
if __name__ == '__main__':
    torch.cuda.set_device(LOCAL_RANK)
    dist.init_process_group(backend='nccl')
    train(torch.device('cuda', LOCAL_RANK))
    dist.destroy_process_group()
