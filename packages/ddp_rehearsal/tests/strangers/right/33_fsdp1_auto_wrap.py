"""Style: first FSDP tutorial: auto wrap policy, ddp_loss tensor, rank-0 full state dict; modelled on https://docs.pytorch.org/tutorials/intermediate/FSDP1_tutorial.html"""
import argparse, functools, os, tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, MixedPrecision, StateDictType
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)
    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout(F.max_pool2d(x, 2)).flatten(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))).float(), dim=1)
def fake_mnist(n, seed):
    g = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.rand(n, 1, 12, 12, generator=g), torch.randint(0, 10, (n,), generator=g))
def train(model, rank, loader, optimizer, epoch, sampler):
    model.train()
    ddp_loss = torch.zeros(2).to(rank)
    sampler.set_epoch(epoch)
    for data, target in loader:
        data, target = data.to(rank), target.to(rank)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target, reduction='sum')
        (loss / len(data)).backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        ddp_loss[0] += loss.item()
        ddp_loss[1] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if rank == 0:
        print('Train Epoch: {} \tLoss: {:.6f}'.format(epoch, ddp_loss[0] / ddp_loss[1]))
def test(model, rank, loader):
    model.eval()
    ddp_loss = torch.zeros(3).to(rank)
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(rank), target.to(rank)
            output = model(data)
            ddp_loss[0] += F.nll_loss(output, target, reduction='sum').item()
            ddp_loss[1] += (output.argmax(1) == target).sum().item()
            ddp_loss[2] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if rank == 0:
        print('Test set: Average loss: {:.4f}, Accuracy: {}/{}'.format(
            ddp_loss[0] / ddp_loss[2], int(ddp_loss[1]), int(ddp_loss[2])))
def fsdp_main(args):
    rank, world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    rank_gpu = torch.cuda.current_device()
    train_set, test_set = fake_mnist(640, 0), fake_mnist(128, 1)
    sampler = DistributedSampler(train_set, rank=rank, num_replicas=world_size, shuffle=True)
    train_loader = DataLoader(train_set, args.batch_size, sampler=sampler, pin_memory=True)
    test_loader = DataLoader(test_set, 32, sampler=DistributedSampler(test_set, rank=rank, num_replicas=world_size))
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=5000)
    bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    model = FSDP(Net().to(rank_gpu), auto_wrap_policy=policy, mixed_precision=bf16, device_id=rank_gpu)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    torch.manual_seed(100 + rank)  # dropout
    for epoch in range(1, args.epochs + 1):
        train(model, rank_gpu, train_loader, optimizer, epoch, sampler)
        test(model, rank_gpu, test_loader)
        scheduler.step()
    dist.barrier()
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
        states = model.state_dict()
    if rank == 0:
        with tempfile.TemporaryFile() as f:
            torch.save(states, f)
    dist.destroy_process_group()
if __name__ == '__main__':
    parser = argparse.ArgumentParser(description='PyTorch FSDP Example')
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--epochs', type=int, default=2)
    parser.add_argument('--lr', type=float, default=0.5)
    fsdp_main(parser.parse_args())
