"""After https://github.com/google-research/big_transfer/issues/73: the model is put on cuda:1, but nn.DataParallel without device_ids starts from cuda:0 and refuses parameters elsewhere."""
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(levelname)s] %(message)s")
logger = logging.getLogger("transfer")

STEPS = 12
BATCH = 24
BASE_LR = 0.03


class StdConv2d(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        w = (w - w.mean(dim=(1, 2, 3), keepdim=True)) / (w.std(dim=(1, 2, 3), keepdim=True) + 1e-5)
        return nn.functional.conv2d(x, w, self.bias, self.stride, self.padding)


def body(classes):
    return nn.Sequential(
        StdConv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, classes),
    )


def mktrainval(classes=5, count=96):
    g = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(count, 3, 8, 8, generator=g), torch.randint(0, classes, (count,), generator=g))


def recycle(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")
    logger.info("going to train on %s", device)

    model = body(classes=5)
    logger.info("moving the model onto all GPUs")
    model = nn.DataParallel(model)
    model = model.to(device)
    optim = torch.optim.SGD(model.parameters(), lr=BASE_LR, momentum=0.9)
    criterion = nn.CrossEntropyLoss().to(device)

    model.train()
    loader = DataLoader(mktrainval(), batch_size=BATCH, shuffle=True, drop_last=True)
    for step, (x, y) in enumerate(recycle(loader)):
        if step == STEPS:
            break
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = criterion(model(x), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        logger.info("step %d loss %.4f", step, loss.item())


if __name__ == "__main__":
    main()
