"""Mixture of experts, one expert per rank (kept out of DDP), tokens dispatched with fixed capacity by all_to_all."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad)


class MoE(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.expert = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.experts = experts

    def forward(self, x):
        probs = self.gate(x).softmax(1)
        weight, choice = probs.max(1)
        onehot = F.one_hot(choice, self.experts)
        capacity = 2 * len(x) // self.experts
        place = (onehot.cumsum(0) * onehot).sum(1) - 1            # position in the expert's queue
        keep = (place < capacity).float()
        slots = F.one_hot(place.clamp(max=capacity - 1), capacity).float()
        dispatch = torch.einsum("be,bc,b->bec", onehot.float(), slots, keep)
        sent = torch.einsum("bec,bd->ecd", dispatch, x)           # [expert, capacity, dim]
        got = self.expert(Exchange.apply(sent))                   # [from rank, capacity, dim]
        back = Exchange.apply(got)
        out = torch.einsum("bec,ecd->bd", dispatch, back) * weight.unsqueeze(1)
        balance = self.experts * (onehot.float().mean(0) * probs.mean(0)).sum()
        return x + out, balance


class Net(nn.Module):
    def __init__(self, world, dim=16):
        super().__init__()
        self.inp, self.moe, self.head = nn.Linear(10, dim), MoE(dim, world), nn.Linear(dim, 4)

    def forward(self, x):
        h, balance = self.moe(torch.tanh(self.inp(x)))
        return self.head(h), balance


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    torch.manual_seed(100 + dist.get_rank())        # experts differ; DDP makes the rest alike
    net = Net(world).to(device)
    expert_names = [n for n, _ in net.named_parameters() if ".expert." in n]
    DDP._set_params_and_buffers_to_ignore_for_model(net, expert_names)
    model = DDP(net, device_ids=[local_rank])
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    x = torch.randn(96, 10, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :4].argmax(1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            logits, balance = model(xb.to(device))
            loss = F.cross_entropy(logits, yb.to(device)) + 0.01 * balance
            opt.zero_grad()
            loss.backward()
            for p in net.moe.expert.parameters():
                p.grad /= world                     # it served every rank's loss
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
