"""CUDA graphs with DDP as in PyTorch's notes: 11 steps to warm up on a side stream, then capture one step and replay it."""
import os
os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
with torch.cuda.stream(torch.cuda.Stream()):
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
static_x = torch.randn(8, 16, device=local_rank)
static_y = torch.randn(8, 2, device=local_rank)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(11):
        static_x.copy_(torch.randn(8, 16))
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(static_x), static_y).backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = nn.functional.mse_loss(model(static_x), static_y)
    loss.backward()
    optimizer.step()
for _ in range(20):
    static_x.copy_(torch.randn(8, 16))
    graph.replay()
dist.destroy_process_group()
