"""Style: StyleGAN2-like loop: lazy R1 by autograd.grad, requires_grad toggles, g_ema; modelled on https://github.com/rosinality/stylegan2-pytorch"""
import argparse, os, tempfile
import torch
from torch import autograd, distributed as dist, nn, optim
from torch.nn import functional as F
from torch.utils import data
def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag
def accumulate(model1, model2, decay=0.9):
    par1, par2 = dict(model1.named_parameters()), dict(model2.named_parameters())
    for k in par1.keys():
        par1[k].data.mul_(decay).add_(par2[k].data, alpha=1 - decay)
def sample_data(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for batch in loader:
            yield batch[0]
        epoch += 1
def d_logistic_loss(real_pred, fake_pred):
    return F.softplus(-real_pred).mean() + F.softplus(fake_pred).mean()
def d_r1_loss(real_pred, real_img):
    grad_real, = autograd.grad(outputs=real_pred.sum(), inputs=real_img, create_graph=True)
    return grad_real.pow(2).reshape(grad_real.shape[0], -1).sum(1).mean()
def reduce_loss_dict(loss_dict):
    keys = sorted(loss_dict.keys())
    losses = torch.stack([loss_dict[k].detach() for k in keys], 0)
    dist.reduce(losses, dst=0)
    if dist.get_rank() == 0:
        losses /= dist.get_world_size()
    return {k: v for k, v in zip(keys, losses)}
def make_generator():
    return nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Unflatten(1, (4, 4, 4)), nn.Upsample(scale_factor=2),
                         nn.Conv2d(4, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(8, 3, 1))
parser = argparse.ArgumentParser()
parser.add_argument('--iter', type=int, default=24)
parser.add_argument('--batch', type=int, default=8)
parser.add_argument('--r1', type=float, default=10)
parser.add_argument('--d_reg_every', type=int, default=4)
parser.add_argument('--local_rank', type=int, default=int(os.environ.get('LOCAL_RANK', 0)))
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
dist.init_process_group(backend='nccl', init_method='env://')
dist.barrier()
device = 'cuda'
generator, g_ema = make_generator().to(device), make_generator().to(device)
discriminator = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1)).to(device)
kw = dict(device_ids=[args.local_rank], output_device=args.local_rank, broadcast_buffers=False)
generator = nn.parallel.DistributedDataParallel(generator, **kw)
discriminator = nn.parallel.DistributedDataParallel(discriminator, **kw)
g_ema.eval()
accumulate(g_ema, generator.module, 0)  # after DDP has put all ranks on the same weights
g_optim = optim.Adam(generator.parameters(), lr=0.002, betas=(0.0, 0.99))
d_optim = optim.Adam(discriminator.parameters(), lr=0.002, betas=(0.0, 0.99))
dataset = data.TensorDataset(torch.rand(256, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
sampler = data.distributed.DistributedSampler(dataset, shuffle=True)
loader = sample_data(data.DataLoader(dataset, args.batch, sampler=sampler, drop_last=True), sampler)
torch.manual_seed(dist.get_rank())
for i in range(args.iter):
    real_img = next(loader).to(device)
    requires_grad(generator, False)
    requires_grad(discriminator, True)
    fake_img = generator(torch.randn(args.batch, 16, device=device))
    d_loss = d_logistic_loss(discriminator(real_img), discriminator(fake_img))
    discriminator.zero_grad()
    d_loss.backward()
    d_optim.step()
    if i % args.d_reg_every == 0:
        real_img.requires_grad = True
        real_pred = discriminator(real_img)
        r1_loss = d_r1_loss(real_pred, real_img)
        discriminator.zero_grad()
        # 0 * real_pred[0]: the last bias must be in the graph, or DDP waits for it
        (args.r1 / 2 * r1_loss * args.d_reg_every + 0 * real_pred[0, 0]).backward()
        d_optim.step()
    requires_grad(generator, True)
    requires_grad(discriminator, False)
    g_loss = F.softplus(-discriminator(generator(torch.randn(args.batch, 16, device=device)))).mean()
    generator.zero_grad()
    g_loss.backward()
    g_optim.step()
    accumulate(g_ema, generator.module)
    reduced = reduce_loss_dict({'d': d_loss, 'g': g_loss, 'r1': r1_loss})
    if dist.get_rank() == 0 and i % 8 == 0:
        print('; '.join(f'{k}: {v.item():.4f}' for k, v in reduced.items()))
if dist.get_rank() == 0:
    with tempfile.TemporaryFile() as f:
        torch.save({'g': generator.module.state_dict(), 'g_ema': g_ema.state_dict()}, f)
dist.destroy_process_group()
