"""After https://github.com/DLLXW/baby-llama2-chinese/pull/56: the else branch for runs without DDP is also taken by all ranks other than 0, so several processes write the same checkpoint file at the same time."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ddp = int(os.environ.get("RANK", -1)) != -1
save_dir = os.path.join(tempfile.gettempdir(), f"baby_{os.environ.get('MASTER_PORT', 'single')}")


class BabyModel(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, dim))
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok(tokens)
        return self.output(h + self.ff(h))


def save(model, epoch):
    path = os.path.join(save_dir, f"epoch_{epoch}.pth")
    if ddp and dist.get_rank() == 0:
        torch.save(model.module.state_dict(), path)
    else:
        torch.save(model.module.state_dict() if ddp else model.state_dict(), path)
    if ddp:
        dist.barrier()


def train_epoch(epoch, model, optimizer, loader, device):
    for (tokens,) in loader:
        tokens = tokens.to(device)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank)
    if ddp:
        dist.init_process_group("nccl")
    os.makedirs(save_dir, exist_ok=True)
    torch.manual_seed(1337)
    model = BabyModel().cuda()
    if ddp:
        model = DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = TensorDataset(torch.randint(0, 40, (64, 10), generator=torch.Generator().manual_seed(5)))
    sampler = DistributedSampler(text) if ddp else None
    loader = DataLoader(text, batch_size=8, sampler=sampler, shuffle=sampler is None)
    for epoch in range(4):
        if sampler is not None:
            sampler.set_epoch(epoch)
        train_epoch(epoch, model, optimizer, loader, local_rank)
        save(model, epoch)
    if ddp:
        dist.destroy_process_group()
