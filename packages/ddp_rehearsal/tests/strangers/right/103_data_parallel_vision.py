"""One process, nn.DataParallel (started with python): schedule per epoch, validation, best weights kept."""
import copy
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Stripes(Dataset):
    """horizontal or vertical stripes in noise"""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 2, (n,), generator=g)
        self.noise = torch.rand(n, 1, 8, 8, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        stripes = (torch.arange(8) % 2).float()
        img = stripes.view(1, 1, 8) if self.y[i] else stripes.view(1, 8, 1)
        return 0.6 * self.noise[i] + img, self.y[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        ramp = torch.linspace(-1, 1, 8, device=x.device).expand(len(x), 1, 8, 8)     # coordinates, made where x is
        return self.fc(self.features(torch.cat([x, ramp, ramp.transpose(2, 3)], 1)).flatten(1))


def main():
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    loaders = {"train": DataLoader(Stripes(128, 0), batch_size=16, shuffle=True, drop_last=True),
               "val": DataLoader(Stripes(50, 1), batch_size=16)}
    model = Net().to(device)
    if torch.cuda.device_count() > 1:
        print("using", torch.cuda.device_count(), "GPUs")
        model = nn.DataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    best_acc, best = -1.0, None
    for epoch in range(4):
        for phase in ("train", "val"):
            model.train(phase == "train")
            correct = total = 0
            for x, y in loaders[phase]:
                x, y = x.to(device), y.to(device)
                with torch.set_grad_enabled(phase == "train"):
                    out = model(x)
                    loss = criterion(out, y)
                    if phase == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                correct += (out.argmax(1) == y).sum().item()
                total += len(y)
            print(f"{phase} {epoch}: loss {loss.item():.4f} acc {correct / total:.3f}")
        scheduler.step()
        if correct / total > best_acc:
            best_acc = correct / total
            best = copy.deepcopy(getattr(model, "module", model).state_dict())
    getattr(model, "module", model).load_state_dict(best)


if __name__ == "__main__":
    main()
