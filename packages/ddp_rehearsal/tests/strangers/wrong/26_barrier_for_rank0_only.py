"""After https://github.com/huggingface/transformers-bloom-inference/pull/40: dist.barrier() stands inside `if rank == 0`, the other ranks never call it, and the job hangs."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["RANK"])
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")


def print_rank0(*message):
    if rank == 0:
        print(*message, flush=True)


def save(model, step):
    if rank == 0:
        path = os.path.join(tempfile.gettempdir(), f"bloomlet_{os.environ['MASTER_PORT']}.pt")
        torch.save({"step": step, "model": model.module.state_dict()}, path)
        print_rank0("saved at step", step)
        dist.barrier()


torch.manual_seed(0)
vocabulary, width = 32, 16
language_model = nn.Sequential(
    nn.Embedding(vocabulary, width), nn.Linear(width, 32), nn.GELU(), nn.Linear(32, vocabulary)
).cuda()
ddp = nn.parallel.DistributedDataParallel(language_model, device_ids=[local_rank])
optimizer = torch.optim.AdamW(ddp.parameters(), lr=2e-3)

tokens = torch.randint(0, vocabulary, (96, 9), generator=torch.Generator().manual_seed(0))
corpus = TensorDataset(tokens)
sampler = DistributedSampler(corpus, shuffle=True)
loader = DataLoader(corpus, batch_size=8, sampler=sampler)

print_rank0(f"*** {dist.get_world_size()} ranks, {len(loader)} steps per epoch")
step = 0
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (batch,) in loader:
        batch = batch.cuda()
        logits = ddp(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 5 == 0:
            save(ddp, step)

print_rank0("done")
dist.destroy_process_group()
