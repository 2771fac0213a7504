"""Style: Barlow Twins with a cross-correlation summed over GPUs, own LARS, mp.spawn; modelled on https://github.com/facebookresearch/barlowtwins"""
import math
import socket

import torch
import torch.distributed as dist
from torch import nn, optim

class AllReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x
    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad

def off_diagonal(x):
    n, m = x.shape
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()

class BarlowTwins(nn.Module):
    def __init__(self, batch_size, lambd=0.0051):
        super().__init__()
        self.batch_size, self.lambd = batch_size, lambd
        self.backbone = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(inplace=True))
        self.projector = nn.Sequential(nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(inplace=True),
                                       nn.Linear(64, 48, bias=False))
        self.bn = nn.BatchNorm1d(48, affine=False)
    def forward(self, y1, y2):
        z1, z2 = self.projector(self.backbone(y1)), self.projector(self.backbone(y2))
        c = AllReduceSum.apply(self.bn(z1).T @ self.bn(z2) / self.batch_size)
        on_diag = torch.diagonal(c).add(-1).pow(2).sum()
        return on_diag + self.lambd * off_diagonal(c).pow(2).sum()

class LARS(optim.Optimizer):
    def __init__(self, params, lr, weight_decay=0.0, momentum=0.9, eta=0.001, adapt=True):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, eta=eta, adapt=adapt))
    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g['params']:
                dp = p.grad
                if dp is None:
                    continue
                if g['adapt']:
                    dp = dp.add(p, alpha=g['weight_decay'])
                    p_norm, u_norm = torch.norm(p), torch.norm(dp)
                    one = torch.ones_like(p_norm)
                    dp = dp * torch.where(p_norm > 0., torch.where(u_norm > 0, g['eta'] * p_norm / u_norm, one), one)
                mu = self.state[p].setdefault('mu', torch.zeros_like(p))
                mu.mul_(g['momentum']).add_(dp)
                p.add_(mu, alpha=-g['lr'])
def adjust_learning_rate(optimizer, step, max_steps, batch_size, warmup=5):
    base = batch_size / 256
    if step < warmup:
        lr = base * (step + 1) / warmup
    else:
        lr = base * (0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (max_steps - warmup))))
    optimizer.param_groups[0]['lr'], optimizer.param_groups[1]['lr'] = lr * 0.2, lr * 0.0048
def main_worker(gpu, world_size, dist_url, batch_size=64, max_steps=30):
    torch.cuda.set_device(gpu)
    dist.init_process_group(backend='nccl', init_method=dist_url, world_size=world_size, rank=gpu)
    torch.backends.cudnn.benchmark = True
    model = nn.SyncBatchNorm.convert_sync_batchnorm(BarlowTwins(batch_size).cuda(gpu))
    weights, biases = [p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim == 1]
    model = nn.parallel.DistributedDataParallel(model, device_ids=[gpu])
    optimizer = LARS([{'params': weights, 'weight_decay': 1e-6}, {'params': biases, 'adapt': False}], lr=0)
    gen = torch.Generator().manual_seed(gpu)
    torch.cuda.manual_seed(1000 + gpu)  # distortions
    for step in range(max_steps):
        y = torch.randn(batch_size // world_size, 32, generator=gen).cuda(gpu, non_blocking=True)
        adjust_learning_rate(optimizer, step, max_steps, batch_size)
        optimizer.zero_grad()
        loss = model(y + 0.1 * torch.randn_like(y), y + 0.1 * torch.randn_like(y))
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and gpu == 0:
            print(dict(step=step, lr=optimizer.param_groups[0]['lr'], loss=loss.item()))
    dist.destroy_process_group()

if __name__ == '__main__':
    with socket.socket() as s:
        s.bind(('localhost', 0))
        url = f'tcp://localhost:{s.getsockname()[1]}'
    n = torch.cuda.device_count()
    torch.multiprocessing.spawn(main_worker, (n, url), n)
