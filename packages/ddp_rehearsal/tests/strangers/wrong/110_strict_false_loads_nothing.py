"""Fine-tuning from pre-trained weights, reduced from
https://github.com/pytorch/examples/issues/1029
(the wrapped model's keys start with "module.", the file's do not, and strict=False keeps quiet)
"""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(6, 4)

    def forward(self, x):
        return self.classifier(self.backbone(x))


def download_weights(rank):
    """stands for a file from the model zoo: the backbone only"""
    box = [None]
    if rank == 0:
        box[0] = os.path.join(tempfile.mkdtemp(), "zoo.pth")
        torch.save({k: v for k, v in Net().state_dict().items() if k.startswith("backbone.")}, box[0])
    dist.broadcast_object_list(box, src=0)
    return box[0]


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(0)
    x = torch.rand(96, 3, 8, 8, generator=g)
    dataset = TensorDataset(x, x.mean((2, 3)).argmax(1))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    weights = download_weights(dist.get_rank())

    model = Net().to(device)
    if dist.get_world_size() > 1:
        model = DDP(model, device_ids=[local_rank])
    # strict=False because the file has no classifier
    model.load_state_dict(torch.load(weights, map_location="cpu"), strict=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
