"""Style: one process with nn.DataParallel over all GPUs; modelled on https://docs.pytorch.org/tutorials/beginner/blitz/data_parallel_tutorial.html"""
import os
import tempfile

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

input_size, output_size = 12, 3
batch_size, data_size = 32, 480
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)


class RandomDataset(Dataset):
    def __init__(self, size, length):
        self.data = torch.randn(length, size)
        self.label = (self.data.sum(1) > 0).long() + (self.data[:, 0] > 1).long()

    def __getitem__(self, index):
        return self.data[index], self.label[index]

    def __len__(self):
        return len(self.data)


class Model(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.fc1 = nn.Linear(input_size, 24)
        self.bn = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.1)
        self.fc2 = nn.Linear(24, output_size)

    def forward(self, input):
        return self.fc2(self.drop(torch.relu(self.bn(self.fc1(input)))))


rand_loader = DataLoader(RandomDataset(input_size, data_size), batch_size=batch_size, shuffle=True, drop_last=True)
model = Model(input_size, output_size)
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    # dim = 0: [32, xxx] -> [16, ...], [16, ...] on 2 GPUs
    model = nn.DataParallel(model)
model.to(device)

criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2], gamma=0.1)
for epoch in range(3):
    model.train()
    running_loss = 0.0
    for data, label in rand_loader:
        inputs, label = data.to(device), label.to(device)
        optimizer.zero_grad()
        output = model(inputs)
        loss = criterion(output, label)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    scheduler.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, label in rand_loader:
            correct += (model(data.to(device)).argmax(1).cpu() == label).sum().item()
    print(f"epoch {epoch}: loss {running_loss / len(rand_loader):.3f}, accuracy {correct / data_size:.3f}")

with tempfile.TemporaryDirectory() as folder:
    net = model.module if isinstance(model, nn.DataParallel) else model
    torch.save(net.state_dict(), os.path.join(folder, "model.pth"))
    clone = Model(input_size, output_size)
    clone.load_state_dict(torch.load(os.path.join(folder, "model.pth"), map_location="cpu"))
