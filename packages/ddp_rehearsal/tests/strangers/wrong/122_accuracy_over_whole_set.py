"""Training accuracy that shrinks with the number of GPUs, reduced from
https://github.com/jia-zhuang/pytorch-multi-gpu-training/issues/5
(rank 0 counts the hits of its own part and divides by the length of the whole data set)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 12, generator=g)
    train_dataset = TensorDataset(x, x[:, :4].argmax(1))
    sampler = DistributedSampler(train_dataset, shuffle=True)
    train_loader = DataLoader(train_dataset, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4)).to(device), device_ids=[local_rank])
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        acc_num = 0
        for inputs, labels in train_loader:
            inputs, labels = inputs.to(device), labels.to(device)
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            acc_num += (outputs.argmax(1) == labels).sum().item()
        if local_rank == 0:
            print(f"epoch {epoch} acc: {acc_num / len(train_dataset):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
