"""After https://github.com/NVIDIA/Megatron-LM/pull/7207: the evaluation averages the means of the batches and then the means of the ranks, although these rest on different numbers of valid tokens; sums and counts should be reduced and divided once."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

VOCAB, LENGTH = 24, 12


def answers(count, seed):
    """Token sequences in which only the answer, of differing length, is to be learnt."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (count, LENGTH), generator=g)
    answer_length = torch.randint(1, LENGTH, (count, 1), generator=g)
    mask = (torch.arange(LENGTH - 1) >= LENGTH - 1 - answer_length).float()
    return TensorDataset(tokens, mask)


def masked_loss(model, tokens, mask):
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
    return (loss * mask).sum(), mask.sum()


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    means = []
    for tokens, mask in loader:
        loss_sum, count = masked_loss(model.module, tokens.to(device), mask.to(device))
        means.append(loss_sum / count)
    mean = torch.stack(means).mean()
    dist.all_reduce(mean)
    model.train()
    return mean.item() / dist.get_world_size()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(VOCAB, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, VOCAB)).to(device)
    model = DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    train, test = answers(64, 0), answers(32, 1)
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=8, sampler=sampler)
    test_loader = DataLoader(test, batch_size=8, sampler=DistributedSampler(test, shuffle=False))
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for tokens, mask in train_loader:
            loss_sum, count = masked_loss(model, tokens.to(device), mask.to(device))
            total = count.clone()
            dist.all_reduce(total)
            loss = loss_sum * dist.get_world_size() / total  # DDP divides by the number of ranks
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = evaluate(model, test_loader, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: evaluation loss {score:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
