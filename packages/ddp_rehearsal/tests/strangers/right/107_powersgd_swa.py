"""PowerSGD compression of the gradients and stochastic weight averaging, the same on every rank."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import SWALR, AveragedModel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    y = x @ torch.randn(16, 2, generator=torch.Generator().manual_seed(1))
    train_set, val_set = TensorDataset(x[:96], y[:96]), TensorDataset(x[96:], y[96:])
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=8)

    net = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 2)).to(device)
    model = DDP(net, device_ids=[local_rank])
    model.register_comm_hook(powerSGD.PowerSGDState(process_group=None, matrix_approximation_rank=2,
                                                    start_powerSGD_iter=6), powerSGD.powerSGD_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    swa_model, swa_start = AveragedModel(model.module), 3
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
    swa_scheduler = SWALR(opt, swa_lr=0.02, anneal_epochs=1)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if epoch >= swa_start:
            swa_model.update_parameters(model.module)
            swa_scheduler.step()
        else:
            scheduler.step()
        if epoch >= swa_start:
            error = torch.zeros(2, device=device)
            with torch.no_grad():
                for xb, yb in val_loader:
                    error[0] += (swa_model(xb.to(device)) - yb.to(device)).pow(2).mean(1).sum()
                    error[1] += len(xb)
            dist.all_reduce(error)
            if rank == 0:
                print(f"epoch {epoch}: averaged model's mse {(error[0] / error[1]).item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
