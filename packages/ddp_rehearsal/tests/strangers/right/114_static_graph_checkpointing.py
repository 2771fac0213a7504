"""One block applied several times (shared weights) with activation checkpointing, static graph, fp16-compressed gradients."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Albert(nn.Module):
    def __init__(self, vocab=30, dim=16, depth=3, classes=3):
        super().__init__()
        self.depth = depth
        self.emb = nn.Embedding(vocab, dim)
        self.block = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        self.cls = nn.Linear(dim, classes)

    def forward(self, ids):
        h = self.emb(ids)
        for _ in range(self.depth):
            h = h + checkpoint(self.block, h, use_reentrant=False)
        return self.cls(h.mean(1))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    ids = torch.randint(0, 30, (104, 10), generator=torch.Generator().manual_seed(0))
    label = (ids < 10).sum(1).clamp(2, 4) - 2
    data = TensorDataset(ids, label)
    sampler = DistributedSampler(data, shuffle=True, seed=17)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1, persistent_workers=True)
    model = DistributedDataParallel(Albert().to(device), device_ids=[local_rank], output_device=local_rank,
                                    static_graph=True, gradient_as_bucket_view=True)
    model.register_comm_hook(None, fp16_compress_hook)
    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=3e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=5e-3, total_steps=4 * len(loader))
    for epoch in range(4):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device), label_smoothing=0.1)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
