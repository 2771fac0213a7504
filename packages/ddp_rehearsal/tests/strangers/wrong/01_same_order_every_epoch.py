"""After https://github.com/lucidrains/DALLE-pytorch/pull/230: set_epoch of the DistributedSampler is never called, so all epochs go through the data in one and the same order."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 5
BATCH = 8


class CaptionToCode(nn.Module):
    def __init__(self, words=40, codes=16, width=24):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.out = nn.Linear(width, codes)

    def forward(self, caption):
        return self.out(self.embed(caption).mean(dim=1))


def captions_and_codes():
    g = torch.Generator().manual_seed(11)
    captions = torch.randint(0, 40, (64, 6), generator=g)
    return TensorDataset(captions, captions.sum(dim=1) % 16)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)

    torch.manual_seed(0)
    model = DistributedDataParallel(CaptionToCode().to(device), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    data = captions_and_codes()
    data_sampler = DistributedSampler(data, shuffle=True, seed=7)
    loader = DataLoader(data, batch_size=BATCH, sampler=data_sampler)

    for epoch in range(EPOCHS):
        model.train()
        seen = torch.zeros(2, device=device)
        for caption, code in loader:
            caption, code = caption.to(device), code.to(device)
            loss = nn.functional.cross_entropy(model(caption), code)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += torch.stack([loss.detach() * len(code), torch.tensor(float(len(code)), device=device)])
        dist.all_reduce(seen)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {seen[0].item() / seen[1].item():.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
