"""After https://github.com/bytetriper/RAE/issues/67: optimizer.zero_grad() is called for every micro batch, so gradient accumulation keeps only the last of them."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GRAD_ACCUM = 4
MICRO_BATCH = 5


class Decoder(nn.Module):
    def __init__(self, latent=6, pixels=27):
        super().__init__()
        self.up = nn.Linear(latent, 32)
        self.rgb = nn.Linear(32, pixels)

    def forward(self, z):
        return self.rgb(torch.nn.functional.gelu(self.up(z)))


def latents_and_images(n=240):
    g = torch.Generator().manual_seed(123)
    z = torch.randn(n, 6, generator=g)
    mix = torch.randn(6, 27, generator=g)
    return TensorDataset(z, torch.tanh(z @ mix))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")

    torch.manual_seed(0)
    ddp = DDP(Decoder().to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=4e-3, betas=(0.9, 0.95))

    dataset = latents_and_images()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=MICRO_BATCH, sampler=sampler, drop_last=True)

    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for number, (z, image) in enumerate(loader):
            optimizer.zero_grad(set_to_none=True)
            last = (number + 1) % GRAD_ACCUM == 0
            ddp.require_backward_grad_sync = last
            reconstruction = ddp(z.to(device))
            loss = nn.functional.l1_loss(reconstruction, image.to(device)) / GRAD_ACCUM
            loss.backward()
            if last:
                nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
                optimizer.step()
                step += 1
        mean = loss.detach() * GRAD_ACCUM
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} step {step} loss {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
