"""Style: script that starts itself once per GPU by subprocess and averages flat gradient buckets in a backward callback; modelled on https://github.com/NVIDIA/waveglow/blob/master/distributed.py"""
import argparse, os, socket, subprocess, sys, tempfile
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.autograd import Variable
def init_distributed(rank, num_gpus, dist_backend, dist_url):
    assert torch.cuda.is_available(), "Distributed mode requires CUDA."
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(dist_backend, init_method=dist_url, world_size=num_gpus, rank=rank)
def apply_gradient_allreduce(module):
    """Changes the model so that gradients are averaged at the end of backward; no wrapper needed."""
    for p in module.state_dict().values():
        dist.broadcast(p, 0)
    def allreduce_params():
        if not module.needs_reduction:
            return
        module.needs_reduction = False
        buckets = {}
        for param in module.parameters():
            if param.requires_grad and param.grad is not None:
                buckets.setdefault(param.dtype, []).append(param)
        for bucket in buckets.values():
            grads = [param.grad.data for param in bucket]
            coalesced = _flatten_dense_tensors(grads)
            dist.all_reduce(coalesced)
            coalesced /= dist.get_world_size()
            for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
                buf.copy_(synced)
    def allreduce_hook(*unused):
        Variable._execution_engine.queue_callback(allreduce_params)
    for param in module.parameters():
        if param.requires_grad:
            param.register_hook(allreduce_hook)
    def set_needs_reduction(self, input, output):
        self.needs_reduction = True
    module.register_forward_hook(set_needs_reduction)
    return module
class MelNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 16, 3, padding=1)
        self.end = torch.nn.Conv1d(16, 4, 1)
    def forward(self, mel):
        return self.end(torch.tanh(self.conv(mel)))
def train(rank, num_gpus, dist_url, iters, batch_size, seed):
    init_distributed(rank, num_gpus, "nccl", dist_url)
    torch.manual_seed(seed)
    model = apply_gradient_allreduce(MelNet().cuda())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.randn(256, 4, 40, generator=torch.Generator().manual_seed(seed))
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size, sampler=sampler, drop_last=True)
    iteration, epoch = 0, 0
    while iteration < iters:
        sampler.set_epoch(epoch)
        for mel in loader:
            model.zero_grad()
            mel = mel.cuda()
            loss = (model(mel) - mel.roll(1, dims=-1)).abs().mean()
            loss.backward()
            optimizer.step()
            reduced = loss.detach().clone()
            dist.all_reduce(reduced)
            if rank == 0 and iteration % 10 == 0:
                print("{}:\t{:.9f}".format(iteration, reduced.item() / num_gpus))
            iteration += 1
            if iteration == iters:
                break
        epoch += 1
    dist.destroy_process_group()
def launch():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        url = "tcp://localhost:{}".format(s.getsockname()[1])
    num_gpus, workers, log_dir = torch.cuda.device_count(), [], tempfile.mkdtemp()
    for i in range(num_gpus):
        cmd = [sys.executable, os.path.abspath(__file__), f"--rank={i}", f"--num_gpus={num_gpus}", f"--dist_url={url}"]
        stdout = None if i == 0 else open(os.path.join(log_dir, f"GPU_{i}.log"), "w")
        workers.append(subprocess.Popen(cmd, stdout=stdout))
    return max(abs(p.wait()) for p in workers)
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=None)
    parser.add_argument("--num_gpus", type=int, default=1)
    parser.add_argument("--dist_url", type=str, default="")
    args = parser.parse_args()
    if args.rank is None:
        sys.exit(launch())
    train(args.rank, args.num_gpus, args.dist_url, iters=30, batch_size=8, seed=1234)
