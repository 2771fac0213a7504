"""Style: hand-made synchronous SGD started by multiprocessing.Process; modelled on https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html"""
import os, socket, sys
from random import Random
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
class Partition:
    def __init__(self, data, index):
        self.data = data
        self.index = index
    def __len__(self):
        return len(self.index)
    def __getitem__(self, index):
        return self.data[self.index[index]]
class DataPartitioner:
    def __init__(self, data, sizes=(0.7, 0.2, 0.1), seed=1234):
        self.data = data
        self.partitions = []
        rng = Random(seed)
        indexes = list(range(len(data)))
        rng.shuffle(indexes)
        for frac in sizes:
            part_len = int(frac * len(data))
            self.partitions.append(indexes[0:part_len])
            indexes = indexes[part_len:]
    def use(self, partition):
        return Partition(self.data, self.partitions[partition])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=5)
        self.drop = nn.Dropout2d()
        self.fc = nn.Linear(4 * 6 * 6, 10)
    def forward(self, x):
        x = F.relu(F.max_pool2d(self.drop(self.conv1(x)), 2))
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)
def fake_mnist(n=640):
    g = torch.Generator().manual_seed(5)
    return list(zip(torch.rand(n, 1, 16, 16, generator=g), torch.randint(0, 10, (n,), generator=g)))
def partition_dataset():
    size = dist.get_world_size()
    bsz = 64 // size
    partition = DataPartitioner(fake_mnist(), [1.0 / size for _ in range(size)]).use(dist.get_rank())
    return torch.utils.data.DataLoader(partition, batch_size=bsz, shuffle=True), bsz
def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size
def run(rank, size):
    torch.manual_seed(1234)  # the same start weights everywhere
    device = torch.device("cuda:{}".format(rank))
    train_set, bsz = partition_dataset()
    model = Net().to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(3):
        epoch_loss = 0.0
        for data, target in train_set:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        print('Rank ', rank, ', epoch ', epoch, ': ', epoch_loss / len(train_set))
def init_process(rank, size, port, fn, backend='nccl'):
    os.environ['MASTER_ADDR'] = '127.0.0.1'
    os.environ['MASTER_PORT'] = str(port)
    torch.cuda.set_device(rank)
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(rank, size)
    dist.destroy_process_group()
if __name__ == "__main__":
    size = torch.cuda.device_count()
    with socket.socket() as s:
        s.bind(("", 0))
        port = s.getsockname()[1]
    processes = []
    mp.set_start_method("spawn")
    for rank in range(size):
        p = mp.Process(target=init_process, args=(rank, size, port, run))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
    sys.exit(max(abs(p.exitcode) for p in processes))
