"""OpenAI-ES: every rank tries its own perturbations, only seeds and rewards are exchanged, all make the same step."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn

POP, SIGMA = 8, 0.05          # antithetic pairs per rank


def noise(generation, rank, size):
    """the perturbations of one rank in one generation, known to everybody"""
    g = torch.Generator().manual_seed(generation * 1009 + rank)
    return torch.randn(POP, size, generator=g)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1)).to(device).requires_grad_(False)
    params = list(policy.parameters())
    theta = nn.utils.parameters_to_vector(params)
    opt = torch.optim.Adam(params, lr=0.02)
    obs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1)).to(device)
    wanted = (obs[:, :1] * obs[:, 1:2]).tanh()

    def reward(vector):
        nn.utils.vector_to_parameters(vector, params)
        return -(policy(obs) - wanted).pow(2).mean()

    for generation in range(30):
        theta = nn.utils.parameters_to_vector(params).clone()
        mine = noise(generation, rank, theta.numel()).to(device)
        scores = torch.stack([torch.stack([reward(theta + SIGMA * e), reward(theta - SIGMA * e)]) for e in mine])
        nn.utils.vector_to_parameters(theta.clone(), params)
        everybody = [torch.empty_like(scores) for _ in range(world)]
        dist.all_gather(everybody, scores)
        everybody = torch.stack(everybody)
        ranks = everybody.flatten().argsort().argsort().float() / (everybody.numel() - 1) - 0.5
        shaped = ranks.view_as(everybody)
        grad = torch.zeros_like(theta)
        for r in range(world):
            e = noise(generation, r, theta.numel()).to(device)
            grad += ((shaped[r, :, 0] - shaped[r, :, 1]).unsqueeze(1) * e).sum(0)
        grad /= 2 * POP * world * SIGMA
        offset = 0
        for p in params:
            p.grad = -grad[offset:offset + p.numel()].view_as(p).clone()
            offset += p.numel()
        opt.step()
        if rank == 0 and generation % 10 == 0:
            print(f"generation {generation}: best {everybody.max().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
