"""FSDP (the first one): wrapped per block, accumulation under no_sync, its own clipping, full state gathered by all for rank 0."""
import functools
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln, self.rnn = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, h):
        mixed = h.cumsum(1) / torch.arange(1, h.size(1) + 1, device=h.device).view(1, -1, 1)     # causal mean
        return h + torch.tanh(self.rnn(self.ln(mixed)))


class LM(nn.Module):
    def __init__(self, vocab=24, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(2))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.emb(ids)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    ids = torch.randint(0, 24, (112, 9), generator=torch.Generator().manual_seed(0)).cumsum(1) % 24
    data = TensorDataset(ids)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)       # 14 micro-batches an epoch

    torch.manual_seed(0)
    model = FSDP(LM(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=local_rank,
                 sync_module_states=True, use_orig_params=True)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    out = tempfile.mkdtemp() if rank == 0 else None
    accum = 2
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for i, (x,) in enumerate(loader):
            x = x.cuda()
            last = (i + 1) % accum == 0

            def micro():
                loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()) / accum
                loss.backward()
                return loss.detach()

            if last:
                loss = micro()
                model.clip_grad_norm_(1.0)
                opt.step()
                opt.zero_grad()
            else:
                with model.no_sync():
                    micro()
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
            full = model.state_dict()               # a collective: all ranks come here
        if rank == 0:
            torch.save(full, os.path.join(out, f"epoch{epoch}.pt"))
            print(f"epoch {epoch} loss {loss.item() * accum:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
