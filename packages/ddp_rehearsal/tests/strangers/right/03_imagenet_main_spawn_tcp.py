"""Style: ImageNet example, main_worker by mp.spawn with a tcp:// address; modelled on https://github.com/pytorch/examples/blob/main/imagenet/main.py"""
import argparse, os, socket, tempfile
import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset
parser = argparse.ArgumentParser(description='tiny ImageNet-like training')
parser.add_argument('--epochs', default=2, type=int)
parser.add_argument('-b', '--batch-size', default=32, type=int, help='total batch size of all GPUs')
parser.add_argument('--lr', default=0.05, type=float)
best_acc1 = 0
class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0
    def update(self, val, n=1):
        self.sum += val * n
        self.count += n
    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device="cuda")
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
    @property
    def avg(self):
        return self.sum / max(self.count, 1)
def synthetic(n, seed):
    g = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(n, 3, 16, 16, generator=g), torch.randint(0, 10, (n,), generator=g))
def accuracy(output, target):
    with torch.no_grad():
        return (output.argmax(1) == target).float().mean().item() * 100
def validate(val_loader, model, criterion, args):
    top1 = AverageMeter()
    def run_validate(loader):
        with torch.no_grad():
            for images, target in loader:
                images, target = images.cuda(args.gpu, non_blocking=True), target.cuda(args.gpu, non_blocking=True)
                top1.update(accuracy(model(images), target), images.size(0))
    model.eval()
    run_validate(val_loader)
    top1.all_reduce()
    if len(val_loader.sampler) * args.world_size < len(val_loader.dataset):  # the rest that drop_last left out
        rest = range(len(val_loader.sampler) * args.world_size, len(val_loader.dataset))
        run_validate(DataLoader(Subset(val_loader.dataset, rest), batch_size=args.batch_size))
    return top1.avg
def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    args.gpu, args.rank = gpu, gpu
    torch.cuda.set_device(args.gpu)
    dist.init_process_group(backend='nccl', init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).cuda(args.gpu)
    args.batch_size = args.batch_size // ngpus_per_node
    model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
    criterion = nn.CrossEntropyLoss().cuda(args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.1)
    cudnn.benchmark = True
    train_set, val_set = synthetic(512, 0), synthetic(133, 1)
    train_sampler = torch.utils.data.distributed.DistributedSampler(train_set)
    val_sampler = torch.utils.data.distributed.DistributedSampler(val_set, shuffle=False, drop_last=True)
    train_loader = DataLoader(train_set, args.batch_size, num_workers=1, pin_memory=True, sampler=train_sampler)
    val_loader = DataLoader(val_set, args.batch_size, pin_memory=True, sampler=val_sampler)
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        model.train()
        for images, target in train_loader:
            images, target = images.cuda(gpu, non_blocking=True), target.cuda(gpu, non_blocking=True)
            loss = criterion(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        acc1 = validate(val_loader, model, criterion, args)
        scheduler.step()
        best_acc1 = max(acc1, best_acc1)
        if args.rank % ngpus_per_node == 0:
            torch.save({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'best_acc1': best_acc1,
                        'optimizer': optimizer.state_dict()}, os.path.join(args.out, 'checkpoint.pth.tar'))
            print(f'Epoch [{epoch}] Acc@1 {acc1:.2f}')
    dist.destroy_process_group()
if __name__ == '__main__':
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        args.dist_url = f'tcp://127.0.0.1:{s.getsockname()[1]}'
    ngpus_per_node = args.world_size = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as args.out:
        mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))
