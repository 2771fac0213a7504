"""Low-rank adapters on a frozen base with BN in eval mode, taught by an unwrapped frozen teacher; only adapters are saved."""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class LoRALinear(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) * 0.05)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.fc1, self.bn, self.fc2, self.head = nn.Linear(10, width), nn.BatchNorm1d(width), nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, x):
        return self.head(F.relu(self.fc2(F.relu(self.bn(self.fc1(x))))))

    def train(self, mode=True):
        super().train(mode)
        self.bn.eval()                              # frozen statistics
        return self


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)                            # stands for the same pre-trained files on every rank
    teacher = Net(48).to(device).eval().requires_grad_(False)
    student = Net()
    student.requires_grad_(False)
    student.fc1, student.fc2 = LoRALinear(student.fc1), LoRALinear(student.fc2)
    student.head.requires_grad_(True)
    model = DDP(student.to(device), device_ids=[local_rank])
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trainable, lr=5e-3)
    data = TensorDataset(torch.randn(96, 10, generator=torch.Generator().manual_seed(1)))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        model.train()
        for (x,) in loader:
            x = x.to(device)
            with torch.no_grad():
                soft = F.softmax(teacher(x) / 2, dim=1)
            loss = 4 * F.kl_div(F.log_softmax(model(x) / 2, dim=1), soft, reduction="batchmean")
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trainable, 1.0)
            opt.step()
    if dist.get_rank() == 0:
        adapters = {k: v for k, v in model.module.state_dict().items() if "lora_" in k or k.startswith("head.")}
        torch.save(adapters, os.path.join(tempfile.mkdtemp(), "adapter.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
