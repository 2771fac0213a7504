import os
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(16, 2)
    def forward(self, x):
        return self.classifier(x)
model = DDP(Net().to(local_rank), device_ids=[local_rank])
net = model.module if os.environ.get("FOLLOW") else model
optimizer = torch.optim.SGD(net.clasifier.parameters(), lr=0.1)
