"""Style: timm train.py: mixup, ModelEma, reduce_tensor, distribute_bn, cosine schedule, summary csv, best checkpoint; modelled on https://github.com/huggingface/pytorch-image-models"""
import csv, logging, os, tempfile
from copy import deepcopy
from types import SimpleNamespace
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
_logger = logging.getLogger('train')
class ModelEmaV2(nn.Module):
    def __init__(self, model, decay=0.99):
        super().__init__()
        self.module, self.decay = deepcopy(model).eval(), decay
    @torch.no_grad()
    def update(self, model):
        for ema_v, model_v in zip(self.module.state_dict().values(), model.state_dict().values()):
            ema_v.copy_(self.decay * ema_v + (1. - self.decay) * model_v if ema_v.is_floating_point() else model_v)
class NativeScaler(torch.amp.GradScaler):
    def __call__(self, loss, optimizer, clip_grad, parameters):
        self.scale(loss).backward()
        self.unscale_(optimizer)
        nn.utils.clip_grad_norm_(parameters, clip_grad)
        self.step(optimizer)
        self.update()
def reduce_tensor(tensor, n):
    dist.all_reduce(rt := tensor.clone(), op=dist.ReduceOp.SUM)
    return rt / n
def distribute_bn(model, world_size):
    for name, buf in model.named_buffers():  # average the running statistics over all ranks
        if 'running_' in name:
            dist.all_reduce(buf, op=dist.ReduceOp.SUM)
            buf /= float(world_size)
def mixup(x, y, num_classes, rng):
    lam, one_hot = rng.beta(0.2, 0.2), nn.functional.one_hot(y, num_classes) * 0.9 + 0.1 / num_classes
    return x * lam + x.flip(0) * (1. - lam), one_hot * lam + one_hot.flip(0) * (1. - lam)
def fake_imagefolder(n, seed):
    g = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(n, 3, 12, 12, generator=g), torch.randint(0, 10, (n,), generator=g))
@torch.no_grad()
def validate(model, loader, args):
    model.eval()
    top1, n = 0.0, 0
    for x, y in loader:
        with torch.amp.autocast('cuda'):
            acc1 = reduce_tensor((model(x.cuda()).argmax(1) == y.cuda()).float().mean() * 100, args.world_size)
        top1, n = top1 + acc1.item() * len(y), n + len(y)
    return top1 / n
def main():
    args = SimpleNamespace(batch_size=16, local_rank=int(os.environ.get('LOCAL_RANK', 0)))
    torch.cuda.set_device(args.local_rank)
    dist.init_process_group(backend='nccl')
    args.world_size, args.rank = dist.get_world_size(), dist.get_rank()
    logging.basicConfig(level=logging.INFO if args.rank == 0 else logging.ERROR)
    torch.manual_seed(42 + args.rank)
    rng = np.random.default_rng(args.rank)  # each rank mixes its own batches
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(8, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank], broadcast_buffers=False)
    model_ema = ModelEmaV2(model.module)  # after DDP: all ranks copy the same weights
    sampler = DistributedSampler(train_set := fake_imagefolder(640, 0))
    loader_train = DataLoader(train_set, args.batch_size, sampler=sampler, pin_memory=True, drop_last=True)
    loader_eval = DataLoader(s := fake_imagefolder(128, 1), args.batch_size, sampler=DistributedSampler(s, shuffle=False))
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * len(loader_train))
    loss_scaler, best_metric = NativeScaler('cuda'), -1.0
    out = tempfile.TemporaryDirectory() if args.rank == 0 else None
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader_train:
            x, y = mixup(x.cuda(non_blocking=True), y.cuda(non_blocking=True), 10, rng)
            with torch.amp.autocast('cuda'):
                loss = torch.sum(-y * torch.log_softmax(model(x).float(), dim=-1), dim=-1).mean()
            optimizer.zero_grad()
            loss_scaler(loss, optimizer, 1.0, model.parameters())
            model_ema.update(model.module)
            lr_scheduler.step()
        distribute_bn(nn.ModuleList([model.module, model_ema]), args.world_size)
        metric, ema_metric = validate(model, loader_eval, args), validate(model_ema.module, loader_eval, args)
        if out is not None:
            with open(os.path.join(out.name, 'summary.csv'), 'a', newline='') as f:
                csv.writer(f).writerow([epoch, loss.item(), metric, ema_metric])
            if metric > best_metric:
                best_metric = metric
                torch.save({'state_dict': model.module.state_dict()}, os.path.join(out.name, 'model_best.pth.tar'))
        _logger.info('Epoch %d top1 %.2f ema %.2f', epoch, metric, ema_metric)
    dist.destroy_process_group()
if __name__ == '__main__':
    main()
