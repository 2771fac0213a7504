"""Style: TrainLoop class, broadcast of parameters by hand, micro-batches, loss-aware timestep sampler; modelled on https://github.com/openai/guided-diffusion"""
import copy, os
import numpy as np
import torch as th
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel.distributed import DistributedDataParallel as DDP
from torch.optim import AdamW
STEPS = 50  # diffusion steps
def sync_params(params):
    for p in params:
        with th.no_grad():
            dist.broadcast(p, 0)
class LossAwareSampler:
    def __init__(self, history=4):
        self.sums, self.counts = np.ones(STEPS), np.ones(STEPS)
    def weights(self):
        return np.sqrt(self.sums / self.counts) + 1e-3
    def sample(self, batch_size, device):
        w = self.weights()
        p = w / np.sum(w)
        indices_np = np.random.choice(len(p), size=(batch_size,), p=p)
        weights_np = 1 / (len(p) * p[indices_np])
        return th.from_numpy(indices_np).long().to(device), th.from_numpy(weights_np).float().to(device)
    def update_with_local_losses(self, local_ts, local_losses):
        """All ranks see the losses of all ranks, so that their samplers stay equal."""
        batch_sizes = [th.zeros(1, dtype=th.int32, device=local_ts.device) for _ in range(dist.get_world_size())]
        dist.all_gather(batch_sizes, th.tensor([len(local_ts)], dtype=th.int32, device=local_ts.device))
        batch_sizes = [x.item() for x in batch_sizes]
        max_bs = max(batch_sizes)
        pad = lambda v: th.cat([v, v.new_zeros(max_bs - len(v))])
        timestep_batches = [th.zeros(max_bs).to(local_ts) for _ in batch_sizes]
        loss_batches = [th.zeros(max_bs).to(local_losses) for _ in batch_sizes]
        dist.all_gather(timestep_batches, pad(local_ts))
        dist.all_gather(loss_batches, pad(local_losses))
        for bs, ts, losses in zip(batch_sizes, timestep_batches, loss_batches):
            np.add.at(self.sums, ts[:bs].cpu().numpy(), losses[:bs].double().cpu().numpy() ** 2)
            np.add.at(self.counts, ts[:bs].cpu().numpy(), 1)
def load_data(batch_size):
    all_files = np.random.RandomState(0).randn(512, 12).astype(np.float32)
    local = all_files[dist.get_rank():][::dist.get_world_size()]
    loader = th.utils.data.DataLoader(th.from_numpy(local), batch_size=batch_size, shuffle=True, drop_last=True)
    while True:
        yield from loader
class TrainLoop:
    def __init__(self, model, data, batch_size, microbatch, lr, ema_rate, lr_anneal_steps):
        self.model, self.data, self.microbatch, self.lr = model, data, microbatch, lr
        self.ema_rate, self.lr_anneal_steps, self.step = ema_rate, lr_anneal_steps, 0
        sync_params(self.model.parameters())
        self.schedule_sampler = LossAwareSampler()
        self.opt = AdamW(self.model.parameters(), lr=lr)
        self.ema_params = [copy.deepcopy(p.detach()) for p in self.model.parameters()]
        self.alphas = th.cumprod(1 - th.linspace(1e-3, 0.2, STEPS), 0).cuda()
        dev = th.cuda.current_device()
        self.ddp_model = DDP(self.model, device_ids=[dev], output_device=dev, broadcast_buffers=False,
                             bucket_cap_mb=128, find_unused_parameters=False)
    def run_loop(self):
        while self.step < self.lr_anneal_steps:
            self.forward_backward(next(self.data))
            for g in self.opt.param_groups:
                g["lr"] = self.lr * (1 - self.step / self.lr_anneal_steps)
            self.opt.step()
            for targ, src in zip(self.ema_params, self.model.parameters()):
                targ.mul_(self.ema_rate).add_(src.detach(), alpha=1 - self.ema_rate)
            self.step += 1
    def compute_losses(self, micro, t):
        noise, a = th.randn_like(micro), self.alphas[t][:, None]
        inp = th.cat([a.sqrt() * micro + (1 - a).sqrt() * noise, t[:, None] / STEPS], dim=1)
        return ((self.ddp_model(inp) - noise) ** 2).mean(dim=1)
    def forward_backward(self, batch):
        self.opt.zero_grad()
        n_micro = batch.shape[0] // self.microbatch
        for i in range(0, batch.shape[0], self.microbatch):
            micro = batch[i: i + self.microbatch].cuda()
            t, weights = self.schedule_sampler.sample(micro.shape[0], micro.device)
            if i + self.microbatch >= batch.shape[0]:  # last one
                losses = self.compute_losses(micro, t)
            else:
                with self.ddp_model.no_sync():
                    losses = self.compute_losses(micro, t)
            self.schedule_sampler.update_with_local_losses(t, losses.detach())
            ((losses * weights).mean() / n_micro).backward()
if __name__ == "__main__":
    th.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl", init_method="env://")
    th.manual_seed(dist.get_rank())
    np.random.seed(dist.get_rank())  # each rank draws other timesteps
    unet = nn.Sequential(nn.Linear(13, 32), nn.SiLU(), nn.Linear(32, 12)).cuda()
    TrainLoop(unet, load_data(16), 16, 8, lr=1e-3, ema_rate=0.99, lr_anneal_steps=25).run_loop()
    dist.destroy_process_group()
