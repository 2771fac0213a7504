"""Style: differentially private SGD with per-sample gradients by functional_call, grad and vmap; after https://docs.pytorch.org/tutorials/intermediate/per_sample_grads.html"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

MAX_GRAD_NORM, NOISE_MULTIPLIER, GLOBAL_BATCH = 1.0, 0.6, 32


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, 2)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(torch.flatten(x, 1))


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = SimpleCNN().cuda()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)

    images = torch.randn(640, 1, 12, 12)  # equal on all ranks: still the common seed
    labels = torch.randint(0, 10, (640,))
    noise_gen = torch.Generator(device="cuda").manual_seed(4242)  # used on rank 0 only

    def compute_loss(params, buffers, sample, target):
        predictions = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
        return F.cross_entropy(predictions, target.unsqueeze(0))

    ft_compute_sample_grad = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))
    buffers = {k: v.detach() for k, v in model.named_buffers()}

    for epoch in range(2):
        perm = torch.randperm(len(images))  # the same on all ranks ...
        for batch in perm.split(GLOBAL_BATCH):
            mine = batch.chunk(world)[rank]  # ... each takes its part
            data, targets = images[mine].cuda(), labels[mine].cuda()
            params = {k: v.detach() for k, v in model.named_parameters()}
            sample_grads = ft_compute_sample_grad(params, buffers, data, targets)

            norms = torch.stack([g.flatten(1).norm(dim=1) for g in sample_grads.values()]).norm(dim=0)
            factor = (MAX_GRAD_NORM / (norms + 1e-6)).clamp(max=1.0)
            for name, p in model.named_parameters():
                g = torch.einsum("n,n...->...", factor, sample_grads[name]).contiguous()  # clipped sum of this rank
                if rank == 0:  # the noise goes in once, before the sum over ranks
                    g = g + torch.randn(g.shape, device=g.device, generator=noise_gen) * NOISE_MULTIPLIER * MAX_GRAD_NORM
                dist.all_reduce(g)
                p.grad = g / len(batch)
            optimizer.step()
            optimizer.zero_grad()
        stats = torch.tensor([(norms > MAX_GRAD_NORM).sum().item(), len(norms)], dtype=torch.float64, device="cuda")
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch}: {100 * stats[0].item() / stats[1].item():.0f}% of the last batch was clipped")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
