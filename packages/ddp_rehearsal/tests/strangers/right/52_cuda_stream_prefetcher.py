"""Style: data_prefetcher on a side CUDA stream, timings by CUDA events; modelled on https://github.com/NVIDIA/apex/blob/master/examples/imagenet/main_amp.py"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description='CUDA stream prefetching')
parser.add_argument('--local_rank', default=os.getenv('LOCAL_RANK', 0), type=int)
parser.add_argument('--epochs', default=2, type=int)
parser.add_argument('-b', '--batch-size', default=16, type=int)
parser.add_argument('--print-freq', default=10, type=int)
args = parser.parse_args()

class data_prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.mean = torch.tensor([0.5 * 255, 0.5 * 255, 0.5 * 255]).cuda().view(1, 3, 1, 1)
        self.std = torch.tensor([0.25 * 255, 0.25 * 255, 0.25 * 255]).cuda().view(1, 3, 1, 1)
        self.stream.wait_stream(torch.cuda.current_stream())
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = self.next_target = None
            return
        with torch.cuda.stream(self.stream):
            self.next_input = self.next_input.cuda(non_blocking=True)
            self.next_target = self.next_target.cuda(non_blocking=True)
            self.next_input = self.next_input.float().sub_(self.mean).div_(self.std)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        input, target = self.next_input, self.next_target
        if input is not None:
            input.record_stream(torch.cuda.current_stream())
            target.record_stream(torch.cuda.current_stream())
            self.preload()
        return input, target

def to_python_float(t):
    return t.item() if hasattr(t, 'item') else t[0]

def reduce_tensor(tensor):
    rt = tensor.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    rt /= dist.get_world_size()
    return rt

torch.cuda.set_device(args.local_rank)
dist.init_process_group(backend='nccl', init_method='env://')
g = torch.Generator().manual_seed(2)
dataset = TensorDataset(torch.randint(0, 256, (640, 3, 16, 16), dtype=torch.uint8, generator=g),
                        torch.randint(0, 10, (640,), generator=g))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, args.batch_size, sampler=sampler, pin_memory=True, drop_last=True)
model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
model = DDP(model.cuda().to(memory_format=torch.channels_last), device_ids=[args.local_rank])
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    prefetcher = data_prefetcher(loader)
    input, target = prefetcher.next()
    i = 0
    start.record()
    while input is not None:
        i += 1
        loss = criterion(model(input.to(memory_format=torch.channels_last)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0:
            reduced_loss = reduce_tensor(loss.data)
            end.record()
            torch.cuda.synchronize()
            if dist.get_rank() == 0:
                ms = start.elapsed_time(end) / args.print_freq
                print(f'Epoch: [{epoch}][{i}/{len(loader)}]\tTime {ms:.3f} ms\tLoss {to_python_float(reduced_loss):.6f}')
            start.record()
        input, target = prefetcher.next()
dist.destroy_process_group()
