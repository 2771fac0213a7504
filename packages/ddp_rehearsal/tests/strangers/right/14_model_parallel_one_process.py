"""Style: one process, one model cut over two GPUs, input split to pipeline; modelled on the former https://docs.pytorch.org/tutorials/intermediate/model_parallel_tutorial.html"""
import timeit

import torch
import torch.nn as nn
import torch.optim as optim

num_batches, batch_size, num_classes = 30, 24, 7


class ModelParallelNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.seq1 = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                                  nn.MaxPool2d(2)).to('cuda:0')
        self.seq2 = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).to('cuda:1')
        self.fc = nn.Linear(16, num_classes).to('cuda:1')

    def forward(self, x):
        x = self.seq2(self.seq1(x).to('cuda:1'))
        return self.fc(x.view(x.size(0), -1))


class PipelineParallelNet(ModelParallelNet):
    def __init__(self, split_size=8):
        super().__init__()
        self.split_size = split_size

    def forward(self, x):
        splits = iter(x.split(self.split_size, dim=0))
        s_prev = self.seq1(next(splits)).to('cuda:1')
        ret = []
        for s_next in splits:
            # A. s_prev runs on cuda:1
            s_prev = self.seq2(s_prev)
            ret.append(self.fc(s_prev.view(s_prev.size(0), -1)))
            # B. s_next runs on cuda:0, at the same time as A
            s_prev = self.seq1(s_next).to('cuda:1')
        s_prev = self.seq2(s_prev)
        ret.append(self.fc(s_prev.view(s_prev.size(0), -1)))
        return torch.cat(ret)


def train(model):
    model.train(True)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    one_hot_indices = torch.randint(0, num_classes, (batch_size, 1))
    for _ in range(num_batches):
        inputs = torch.randn(batch_size, 3, 16, 16)
        labels = torch.zeros(batch_size, num_classes).scatter_(1, one_hot_indices, 1)
        optimizer.zero_grad()
        outputs = model(inputs.to('cuda:0'))
        labels = labels.to(outputs.device)
        loss_fn(outputs, labels).backward()
        optimizer.step()


assert torch.cuda.device_count() >= 2, "needs two GPUs in one process"
torch.manual_seed(1)
model = PipelineParallelNet()
start = timeit.default_timer()
train(model)
torch.cuda.synchronize('cuda:0')
torch.cuda.synchronize('cuda:1')
print(f"{num_batches} batches in {timeit.default_timer() - start:.3f} s")
