"""nn.DataParallel: a network that goes on until its state is steady, and counts the rounds of this pass in an attribute."""
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

class Equilibrium(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.again, self.out = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 2)
        self.rounds = 0

    def forward(self, x):
        self.rounds = 0
        x = self.inner(x)
        h = torch.zeros_like(x)
        while self.rounds < 1 or (self.rounds < 5 and h.detach().norm() > 1e3):
            h = torch.tanh(x + self.again(h))
            self.rounds += 1
        return self.out(h) / self.rounds

torch.manual_seed(0)
X = torch.randn(320, 16)
loader = DataLoader(TensorDataset(X, (X[:, 0] > 0).long()), batch_size=16, shuffle=True)
model = nn.DataParallel(Equilibrium().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
