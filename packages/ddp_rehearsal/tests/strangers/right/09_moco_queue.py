"""Style: MoCo with a momentum encoder, key queue and shuffled batch norm; modelled on https://github.com/facebookresearch/moco"""
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

def base_encoder(dim):
    return nn.Sequential(nn.Linear(32, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, dim))
@torch.no_grad()
def concat_all_gather(tensor):
    tensors_gather = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors_gather, tensor, async_op=False)
    return torch.cat(tensors_gather, dim=0)

class MoCo(nn.Module):
    def __init__(self, dim=16, K=256, m=0.99, T=0.07):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = base_encoder(dim), base_encoder(dim)
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            param_k.data.copy_(param_q.data)  # initialize
            param_k.requires_grad = False  # not update by gradient
        self.register_buffer("queue", nn.functional.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))
    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            param_k.data = param_k.data * self.m + param_q.data * (1. - self.m)
    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        keys = concat_all_gather(keys)
        batch_size, ptr = keys.shape[0], int(self.queue_ptr)
        assert self.K % batch_size == 0  # for simplicity
        self.queue[:, ptr:ptr + batch_size] = keys.T
        self.queue_ptr[0] = (ptr + batch_size) % self.K
    @torch.no_grad()
    def _batch_shuffle_ddp(self, x):
        x_gather = concat_all_gather(x)
        idx_shuffle = torch.randperm(x_gather.shape[0]).cuda()
        dist.broadcast(idx_shuffle, src=0)  # one order for all gpus
        idx_this = idx_shuffle.view(dist.get_world_size(), -1)[dist.get_rank()]
        return x_gather[idx_this], torch.argsort(idx_shuffle)
    @torch.no_grad()
    def _batch_unshuffle_ddp(self, x, idx_unshuffle):
        return concat_all_gather(x)[idx_unshuffle.view(dist.get_world_size(), -1)[dist.get_rank()]]
    def forward(self, im_q, im_k):
        q = nn.functional.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():  # no gradient to keys
            self._momentum_update_key_encoder()
            im_k, idx_unshuffle = self._batch_shuffle_ddp(im_k)
            k = nn.functional.normalize(self.encoder_k(im_k), dim=1)
            k = self._batch_unshuffle_ddp(k, idx_unshuffle)
        l_pos = torch.einsum('nc,nc->n', [q, k]).unsqueeze(-1)
        l_neg = torch.einsum('nc,ck->nk', [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        labels = torch.zeros(logits.shape[0], dtype=torch.long).cuda()
        self._dequeue_and_enqueue(k)
        return logits, labels

class TwoCropsTransform(Dataset):
    def __init__(self, n):
        self.base = torch.randn(n, 32, generator=torch.Generator().manual_seed(0))
    def __len__(self):
        return len(self.base)
    def __getitem__(self, i):
        return [self.base[i] + 0.1 * torch.randn(32), self.base[i] + 0.1 * torch.randn(32)]
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
dist.init_process_group("nccl")
torch.manual_seed(11 + dist.get_rank())
model = nn.parallel.DistributedDataParallel(MoCo().cuda(gpu), device_ids=[gpu])
criterion = nn.CrossEntropyLoss().cuda(gpu)
optimizer = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
sampler = DistributedSampler(dataset := TwoCropsTransform(320))
loader = DataLoader(dataset, batch_size=8, pin_memory=True, sampler=sampler, drop_last=True)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for group in optimizer.param_groups:  # cosine lr schedule
        group['lr'] = 0.03 * 0.5 * (1. + math.cos(math.pi * epoch / 2))
    for im_q, im_k in loader:
        output, target = model(im_q=im_q.cuda(gpu, non_blocking=True), im_k=im_k.cuda(gpu, non_blocking=True))
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
