"""Short pieces of code for one GPU, and what comes of each: a value, or the first line of an error.

`snippets-h200.json` is what a real GPU printed; `test_against_a_real_gpu.py` compares a pretend one with it.
"""

import ast
import json
import sys
import tempfile
import textwrap
import warnings

import torch

__all__ = ["SNIPPETS", "outcome"]

BEGIN = """
import copy, io, os, pickle
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
G, C = torch.device("cuda", 0), torch.device("cpu")
torch.manual_seed(0)
a, b = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2)
i, mask = torch.tensor([1, 0]), torch.tensor([True, False])
x, y = a.to(G), b.to(G)
"""

MOVED = """
net = nn.Linear(3, 1)
optimizer = torch.optim.{}
net(a).sum().backward()
optimizer.step()
net.to(G)
optimizer.zero_grad()
net(x).sum().backward()
optimizer.step()
"""

# The value of the last line is compared.
SNIPPETS = {
    # two devices in one operation
    "add a CPU tensor": "x + a",
    "add in place": "x.add_(a)",
    "add to a CPU tensor in place": "a.add_(x)",
    "a number tensor may be on the CPU": "x + torch.tensor(2.0)",
    "a number tensor in place": "x.mul_(torch.tensor(2.0))",
    "a CPU tensor and a number tensor of the GPU": "a + torch.tensor(2.0, device=G)",
    "a CPU vector of one element": "x + torch.tensor([2.0])",
    "product": "x @ b",
    "product, the other order": "a @ y",
    "mm out": "torch.mm(x, y, out=torch.empty(2, 2))",
    "addmm": "torch.addmm(torch.zeros(2), x, y)",
    "bmm": "torch.bmm(x[None], b[None])",
    "einsum": "torch.einsum('ij,jk->ik', x, b)",
    "cat": "torch.cat([x, a])",
    "cat of CPU first": "torch.cat([a, x])",
    "stack": "torch.stack([x, a])",
    "where": "torch.where(x > 1, x, a)",
    "where with a mask of the CPU": "torch.where(a > 1, x, x)",
    "where with a number": "torch.where(x > 1, x, 0.0)",
    "maximum": "torch.maximum(x, a)",
    "equal": "torch.equal(x, a)",
    "allclose": "torch.allclose(x, a)",
    "comparison": "x == a",
    "lerp": "torch.lerp(x, x, a)",
    "cdist": "torch.cdist(x, a)",
    "dot": "torch.dot(x[0], a[0])",
    "clamp by a CPU tensor": "x.clamp(min=a)",
    "copy to the GPU": "x.copy_(a + 1)",
    "copy to the CPU": "a.copy_(x + 1)",
    "set data": "x.data = a\nx",
    # indices
    "indices of the CPU": "x[i]",
    "a mask of the CPU": "x[mask]",
    "indices of the GPU for a CPU tensor": "a[i.to(G)]",
    "a mask of the GPU for a CPU tensor": "a[mask.to(G)]",
    "assign a CPU tensor": "x[0] = torch.ones(3)\nx",
    "assign a CPU tensor by index": "x[i] = torch.ones(2, 3)\nx",
    "assign a number by a CPU mask": "x[mask] = 5.0\nx",
    "index_select": "x.index_select(0, i)",
    "gather": "x.gather(1, torch.tensor([[0], [1]]))",
    "scatter": "x.scatter(1, torch.tensor([[0], [1]]), 1.0)",
    "scatter_add": "x.scatter_add(1, torch.zeros(2, 3, dtype=torch.int64, device=G), a)",
    "masked_fill": "x.masked_fill(a > 2, 0.0)",
    "masked_select": "x.masked_select(a > 2)",
    "take_along_dim": "torch.take_along_dim(x, torch.tensor([[0], [1]]), 1)",
    "index_add": "x.index_add(0, i, a)",
    "topk and indices": "x.topk(1).indices",
    "nonzero": "(x > 3).nonzero()",
    "embedding with words of the CPU": "nn.Embedding(4, 2).to(G)(i)",
    "embedding on the CPU": "nn.Embedding(4, 2)(i.to(G))",
    "one_hot": "F.one_hot(i.to(G), 3)",
    # networks
    "a network on the CPU": "nn.Linear(3, 4)(x)",
    "an example on the CPU": "nn.Linear(3, 4).to(G)(a)",
    "convolution": "nn.Conv2d(1, 2, 3)(torch.rand(1, 1, 5, 5, device=G))",
    "convolution with an example on the CPU": "nn.Conv2d(1, 2, 3).to(G)(torch.rand(1, 1, 5, 5))",
    "batch normalisation": "nn.BatchNorm1d(3)(x)",
    "layer normalisation": "nn.LayerNorm(3)(x)",
    "group normalisation": "nn.GroupNorm(1, 3)(x)",
    "lstm": "nn.LSTM(3, 4)(x)",
    "lstm with a state of the CPU": "nn.LSTM(3, 4).to(G)(x, (torch.zeros(1, 4), torch.zeros(1, 4)))",
    "lstm with an example on the CPU": "nn.LSTM(3, 4).to(G)(a)",
    "attention": "F.scaled_dot_product_attention(x[None], x[None], a[None])",
    "multi-head attention": "nn.MultiheadAttention(3, 1)(x[:, None], x[:, None], x[:, None])",
    "prelu": "nn.PReLU()(x)",
    "a list in the network stays on the CPU": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [nn.Linear(3, 3)]
            def forward(self, x):
                return self.layers[0](x)
        Net().to(G)(x)
        """,
    "a tensor made in forward": """
        class Net(nn.Module):
            def forward(self, x):
                return x * torch.ones(3)
        Net().to(G)(x)
        """,
    "a buffer that is none": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean = torch.ones(3)
            def forward(self, x):
                return x - self.mean
        Net().to(G)(x)
        """,
    "to returns the network": "next(nn.Linear(2, 2).to(G).parameters()).device",
    "to of a tensor does not change it": "a.to(G)\na.device",
    # losses
    "cross_entropy with labels of the CPU": "F.cross_entropy(x, i)",
    "cross_entropy with scores of the CPU": "F.cross_entropy(a, i.to(G))",
    "cross_entropy with weights of the CPU": "F.cross_entropy(x, i.to(G), weight=torch.ones(3))",
    "mse_loss": "F.mse_loss(x, a)",
    "binary_cross_entropy": "F.binary_cross_entropy(torch.sigmoid(x), a.clamp(0, 1))",
    "bce with logits": "F.binary_cross_entropy_with_logits(x, a.clamp(0, 1))",
    "nll_loss": "F.nll_loss(x, i)",
    "l1_loss": "F.l1_loss(x, a)",
    "kl_div": "F.kl_div(x, a)",
    "ctc": "F.ctc_loss(x[:, None].log_softmax(2), i[None] + 1, torch.tensor([2]), torch.tensor([1]))",
    "accuracy": "(x.argmax(1) == i).float().mean()",
    # gradients and optimizers
    "gradient through a copy": "a.requires_grad_()\n(a.to(G) * 2).sum().backward()\na.grad",
    "gradient of another device": "x.requires_grad_()\nx.grad = torch.zeros(2, 3)",
    "backward with a gradient of the CPU": "x.requires_grad_()\n(x * 2).backward(torch.ones(2, 3))",
    "a parameter that was moved is no leaf": "w = torch.ones(3, requires_grad=True).to(G)\nw.is_leaf, w.requires_grad",
    "SGD of a tensor that is no leaf": "torch.optim.SGD([torch.ones(3, requires_grad=True).to(G)], 0.1)",
    "an optimizer made before the move": """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.Adam(net.parameters())
        net.to(G)
        net(x).sum().backward()
        optimizer.step()
        [v.device for v in optimizer.state[net.weight].values()]
        """,
    "the network moved between two steps": MOVED.format("SGD(net.parameters(), 0.1, momentum=0.9)"),
    "Adam, the network moved between two steps": MOVED.format("Adam(net.parameters())"),
    "the state of an optimizer is loaded to the parameters' device": """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.Adam(net.parameters())
        net(a).sum().backward()
        optimizer.step()
        state = optimizer.state_dict()
        other = nn.Linear(3, 1).to(G)
        new = torch.optim.Adam(other.parameters())
        new.load_state_dict(state)
        {k: v.device for k, v in new.state[other.weight].items()}
        """,
    "clipping": """
        net = nn.Linear(3, 1).to(G)
        net(x).sum().backward()
        total = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        total.device
        """,
    "clipping of two devices": """
        nets = [nn.Linear(3, 1), nn.Linear(3, 1).to(G)]
        nets[0](a).sum().backward()
        nets[1](x).sum().backward()
        nn.utils.clip_grad_norm_([p for net in nets for p in net.parameters()], 1.0)
        """,
    "norms of two devices, to one": "torch.stack([x.norm(), a.norm()])",
    "sum of losses of two devices": "x.sum() + a.sum()",
    "sum of losses of two devices, the other order": "a.sum() + x.sum()",
    "parameters_to_vector of two devices": "nn.utils.parameters_to_vector([a, x])",
    "one step of SGD": """
        net = nn.Linear(3, 2)
        net = net.to(G)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        F.cross_entropy(net(x), i.to(G)).backward()
        optimizer.step()
        net.weight
        """,
    # to the CPU, to numbers, to files
    "numpy": "x.numpy()",
    "np.array": "np.array(x)",
    "np.asarray of a list": "np.asarray([x[0], x[1]])",
    "np.mean": "np.mean(x)",
    "numpy of a tensor with a gradient": "x.requires_grad_().cpu().numpy()",
    "from_numpy": "torch.from_numpy(np.ones(3)).to(G).device",
    "item": "x.sum().item()",
    "float": "float(x[0, 1])",
    "tolist": "x.tolist()",
    "repr": "repr(x)",
    "format": "f'{x.sum():.2f} {x.sum()}'",
    "bool of two": "bool(x)",
    "as_tensor of a GPU tensor": "torch.as_tensor(x).device, torch.tensor([x.sum(), x.max()]).device",
    "torch.tensor of a list on the GPU": "torch.tensor([1.0, 2.0], device='cuda')",
    "sum of Python": "sum([x, a])",
    "saved and loaded": "f = io.BytesIO()\ntorch.save(x, f)\nf.seek(0)\ntorch.load(f).device",
    "saved and loaded to the CPU": "f = io.BytesIO()\ntorch.save(x, f)\nf.seek(0)\ntorch.load(f, map_location='cpu')",
    "load_state_dict of a file of the GPU": """
        net = nn.Linear(3, 1).to(G)
        f = io.BytesIO()
        torch.save(net.state_dict(), f)
        f.seek(0)
        other = nn.Linear(3, 1)
        other.load_state_dict(torch.load(f))
        other.weight.device
        """,
    "pickle": "pickle.loads(pickle.dumps(x)).device",
    "deepcopy": "copy.deepcopy(x).device",
    "clone and detach": "x.clone().detach().device",
    "pinned": "a.pin_memory().is_pinned(), x.is_cuda, a.is_cuda, x.is_cpu, x.get_device(), a.get_device()",
    "pin a GPU tensor": "x.pin_memory()",
    "types": "x.type(), a.type(), str(x.device), x.device == torch.device('cuda')",
    "cuda without a number": "a.cuda().device, torch.zeros(1, device='cuda').device",
    "a data loader that pins": """
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        (first,), *_ = torch.utils.data.DataLoader(data, 4, pin_memory=True)
        first.is_pinned(), first.device
        """,
    "a data set on the GPU": """
        data = torch.utils.data.TensorDataset(torch.arange(8.0, device=G))
        [X.device for X, in torch.utils.data.DataLoader(data, 4)]
        """,
    "a data set on the GPU that is pinned": """
        data = torch.utils.data.TensorDataset(torch.arange(8.0, device=G))
        [X.device for X, in torch.utils.data.DataLoader(data, 4, pin_memory=True)]
        """,
    # devices
    "a GPU too many": "torch.zeros(1, device='cuda:1')",
    "a move to a GPU too many": "a.to('cuda:1')",
    "cuda of a GPU too many": "a.cuda(1)",
    "a network on a GPU too many": "nn.Linear(2, 2).cuda(1)",
    "set_device of a GPU too many": "torch.cuda.set_device(1)",
    "set_device of a negative number": "torch.cuda.set_device(-1)\ntorch.cuda.current_device()",
    "counts": "torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device()",
    "accelerator": """
        torch.accelerator.is_available(), torch.accelerator.device_count(), torch.accelerator.current_accelerator()
        """,
    "a number is a GPU": "torch.zeros(1).to(0).device, torch.device(0), torch.zeros(1, device=0).device",
    "default device": """
        torch.set_default_device('cuda')
        try:
            made = torch.zeros(2).device, nn.Linear(2, 2).weight.device, torch.arange(3).device
        finally:
            torch.set_default_device(None)
        made
        """,
    "with torch.device": "with torch.device('cuda'):\n    net = nn.Linear(2, 2)\nnet.weight.device",
    "with torch.cuda.device": "with torch.cuda.device(0):\n    here = torch.zeros(1, device='cuda').device\nhere",
    "generator of the CPU": "torch.rand(2, device=G, generator=torch.Generator())",
    "generator of the GPU": "torch.rand(2, device=G, generator=torch.Generator(G)).device",
    "randperm with a generator of the CPU": "torch.randperm(3, device=G, generator=torch.Generator())",
    "random_split on a default device": "torch.randperm(3, generator=torch.Generator()).tolist()",
    "rand_like": "torch.rand_like(x).device",
    "seeds": "torch.cuda.manual_seed_all(3)\nfirst = torch.rand(3, device=G)\ntorch.cuda.manual_seed_all(3)\n"
    "torch.equal(first, torch.rand(3, device=G))",
    "manual_seed seeds the GPU": "torch.manual_seed(3)\nfirst = torch.rand(3, device=G)\ntorch.manual_seed(3)\n"
    "torch.equal(first, torch.rand(3, device=G))",
    "new tensors": "x.new_zeros(2).device, x.new_tensor([1.0]).device, torch.zeros_like(x).device",
    "arange and linspace": "torch.arange(3, device=G).device, torch.linspace(0, 1, 3, device=G)",
    # autocast
    "autocast of a product": "with torch.autocast('cuda'):\n    z = x @ y\nz.dtype",
    "autocast in bfloat16": "with torch.autocast('cuda', dtype=torch.bfloat16):\n    z = x @ y\nz",
    "autocast of a loss": "with torch.autocast('cuda'):\n    z = F.cross_entropy(x @ y, i.to(G))\nz.dtype",
    "autocast of a sum": "with torch.autocast('cuda'):\n    z = (x @ y).sum()\nz.dtype",
    "autocast of softmax": "with torch.autocast('cuda'):\n    z = (x @ y).softmax(1)\nz.dtype",
    "autocast of layer_norm": "with torch.autocast('cuda'):\n    z = F.layer_norm(x.half(), (3,))\nz.dtype",
    "autocast of an addition": "with torch.autocast('cuda'):\n    z = (x @ y) + 1.0\nz.dtype",
    "autocast of pow": "with torch.autocast('cuda'):\n    z = (x @ y).pow(2)\nz.dtype",
    "autocast of two types": "with torch.autocast('cuda'):\n    z = (x @ y) + torch.ones(2, device=G)\nz.dtype",
    "autocast of binary_cross_entropy": "with torch.autocast('cuda'):\n"
    "    z = F.binary_cross_entropy(x.sigmoid(), x)\n",
    "autocast of the GPU leaves the CPU": "with torch.autocast('cuda'):\n    z = a @ b\nz.dtype",
    "autocast keeps the parameters": """
        net = nn.Linear(3, 2).to(G)
        with torch.autocast('cuda'):
            net(x).sum().backward()
        net.weight.dtype, net.weight.grad.dtype
        """,
    "is_autocast_enabled": "with torch.autocast('cuda'):\n    on = torch.is_autocast_enabled('cuda')\non, "
    "torch.get_autocast_dtype('cuda')",
    "two types without autocast": "x.half() @ y",
    "GradScaler": """
        net = nn.Linear(3, 2).to(G)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler('cuda')
        with torch.autocast('cuda', dtype=torch.float16):
            loss = F.cross_entropy(net(x), i.to(G))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        scaler.get_scale(), net.weight.grad.dtype
        """,
    "GradScaler meets an infinity": """
        net = nn.Linear(3, 1).to(G)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler('cuda')
        before = net.weight.detach().clone()
        scaler.scale(net(x * float('inf')).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.equal(before, net.weight), scaler.get_scale()
        """,
    "GradScaler twice unscaled": """
        net = nn.Linear(3, 1).to(G)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler('cuda')
        scaler.scale(net(x).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)
        """,
    "GradScaler of half gradients": """
        net = nn.Linear(3, 1).to(G).half()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler('cuda')
        scaler.scale(net(x.half()).sum()).backward()
        scaler.unscale_(optimizer)
        """,
    # streams, events, memory
    "events": """
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(); x @ y; end.record()
        torch.cuda.synchronize()
        start.elapsed_time(end) >= 0, end.query()
        """,
    "an event without timing": """
        start, end = (torch.cuda.Event() for _ in range(2))
        start.record(); end.record(); torch.cuda.synchronize()
        start.elapsed_time(end)
        """,
    "an event that was not recorded": "torch.cuda.Event(enable_timing=True).elapsed_time("
    "torch.cuda.Event(enable_timing=True))",
    "streams": "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    z = x + 1\ns.synchronize()\nz",
    "memory": "before = torch.cuda.memory_allocated()\nz = torch.zeros(1024, 256, device=G)\n"
    "torch.cuda.memory_allocated() - before",
    "memory is freed": "before = torch.cuda.memory_allocated()\nz = torch.zeros(1024, 256, device=G)\ndel z\n"
    "torch.cuda.memory_allocated() - before",
    "empty_cache": "torch.cuda.empty_cache()",
    # nn.DataParallel
    "nn.DataParallel with an example on the CPU": "nn.DataParallel(nn.Linear(3, 1).to(G), [0])(a).device",
    "nn.DataParallel with a network on the CPU": "nn.DataParallel(nn.Linear(3, 1), [0])(x).device",
    "nn.DataParallel of a GPU too many": "nn.DataParallel(nn.Linear(3, 1).to(G), [0, 1])",
    "scatter to one": "[t.device for t in torch.cuda.comm.scatter(a, [0])]",
    # one rank of NCCL
    "NCCL, a tensor of the GPU": "dist.all_reduce(x)\nx",
    "NCCL, a tensor of the CPU": "dist.all_reduce(a)",
    "NCCL, broadcast of a tensor of the CPU": "dist.broadcast(a, 0)",
    "NCCL, a mean": "dist.all_reduce(x, op=dist.ReduceOp.AVG)\nx",
    "NCCL, bits": "dist.all_reduce(i.to(G), op=dist.ReduceOp.BAND)",
    "NCCL, all_gather into CPU tensors": "dist.all_gather([torch.empty(2, 3)], x)",
    "NCCL, all_gather": "out = [torch.empty(2, 3, device=G)]\ndist.all_gather(out, x)\nout[0]",
    "NCCL, reduce_scatter": "out = torch.empty(2, 3, device=G)\ndist.reduce_scatter_tensor(out, x)\nout",
    "NCCL, objects": "out = [None]\ndist.all_gather_object(out, {'rank': 0})\nout",
    "NCCL, barrier": "dist.barrier()",
    "NCCL, a tensor that is not contiguous": "dist.all_reduce(x.t())",
    "NCCL, the backend": "dist.get_backend()",
    "NCCL, asynchronous": "work = dist.all_reduce(x, async_op=True)\nwork.wait()\nx",
    "NCCL, float16": "z = x.half()\ndist.all_reduce(z)\nz.dtype",
    "NCCL, bool": "z = mask.to(G)\ndist.all_reduce(z, op=dist.ReduceOp.MAX)\nz.dtype",
    "NCCL, send to itself": "dist.send(x, 0)",
    "DDP, a network on the CPU": "nn.parallel.DistributedDataParallel(nn.Linear(3, 1), device_ids=[0])",
    "DDP, a network on the CPU without device_ids": "nn.parallel.DistributedDataParallel(nn.Linear(3, 1))",
    "DDP, an example on the CPU": "nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G), device_ids=[0])("
    "a).device",
    "DDP, an example on the CPU without device_ids": "nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G))(a)",
    "DDP, a step": """
        net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G), device_ids=[0])
        net(x).sum().backward()
        net.module.weight.grad
        """,
    "DDP without a parameter": "nn.parallel.DistributedDataParallel(nn.ReLU().to(G), device_ids=[0])",
    "SyncBatchNorm on the CPU": "nn.SyncBatchNorm(3)(a)",
    "SyncBatchNorm": "nn.SyncBatchNorm(3).to(G)(x)",
    "SyncBatchNorm in evaluation on the CPU": "nn.SyncBatchNorm(3).eval()(a)",
    # what the CPU has and a GPU has not, and the other way round
    "float64": "(x.double() @ y.double()).dtype",
    "a half product": "(x.half() @ y.half())",
    "integers in a product": "i.to(G)[None] @ i.to(G)[:, None]",
    "bfloat16 convolution": "nn.Conv2d(1, 2, 3).to(G).bfloat16()(torch.rand(1, 1, 5, 5, device=G).bfloat16()).dtype",
    "mean of integers": "i.to(G).mean()",
    "sparse": "x.to_sparse().device",
    "quantile": "x.quantile(0.5)",
    "sort": "x.sort(descending=True).values",
    "cumsum": "x.cumsum(0)",
    "inverse": "torch.linalg.inv(torch.eye(2, device=G) * 2)",
    "inverse of a singular matrix": "torch.linalg.inv(torch.zeros(2, 2, device=G))",
    "unique": "x.unique()",
    "bincount": "torch.bincount(i.to(G))",
    "histc": "torch.histc(x, 3)",
    "interpolate": "F.interpolate(torch.rand(1, 1, 2, 2, device=G), scale_factor=2).device",
    "pad_sequence": "nn.utils.rnn.pad_sequence([x[0], a[1]])",
    "pack_padded_sequence with lengths of the GPU": "nn.utils.rnn.pack_padded_sequence(x[:, :, None], i.to(G) + 1, "
    "batch_first=True, enforce_sorted=False)",
    "pack_padded_sequence with lengths of the CPU": "nn.utils.rnn.pack_padded_sequence(x[:, :, None], i + 1, "
    "batch_first=True, enforce_sorted=False).data.device",
    "cross entropy of probabilities": "F.cross_entropy(x, torch.softmax(a, 1))",
    "multinomial": "torch.multinomial(torch.ones(3, device=G), 2).device",
    "normal of a mean on the CPU": "torch.normal(a, x.abs() + 1)",
    "distributions": "torch.distributions.Normal(x, torch.ones(2, 3)).sample()",
    "distributions, log_prob of a CPU tensor": "torch.distributions.Normal(x, torch.ones_like(x)).log_prob(a)",
    "functional_call": "net = nn.Linear(3, 1)\ntorch.func.functional_call(net, {k: v.to(G) for k, v in "
    "net.named_parameters()}, x).device",
    "vmap": "torch.func.vmap(lambda row: row @ y)(x)",
    "grad": "torch.func.grad(lambda w: (w @ y).sum())(x)",
    "checkpoint": """
        from torch.utils.checkpoint import checkpoint
        net = nn.Linear(3, 1).to(G)
        checkpoint(net, x, use_reentrant=False).sum().backward()
        net.weight.grad.device
        """,
    "torch.compile on the CPU's example": "torch.compile(nn.Linear(3, 1).to(G), backend='eager')(a)",
    "ema": "from torch.optim.swa_utils import AveragedModel\nAveragedModel(nn.Linear(3, 1).to(G)).module.weight.device",
    "module.half": "nn.Linear(3, 1).half().to(G)(x)",
    "module.double": "nn.Linear(3, 1).double().to(G)(x)",
    # numbers of the CPU: tensors without a dimension
    "numbers of the CPU in cat": "torch.cat([x[0], torch.ones(1)])",
    "numbers of the CPU in stack": "torch.stack([x[0, 0], torch.tensor(1.0)])",
    "clamp by a number of the CPU": "x.clamp(min=torch.tensor(2.0))",
    "lerp by a number of the CPU": "torch.lerp(x, x + 1, torch.tensor(0.5))",
    "masked_fill by a number of the CPU": "x.masked_fill(x > 2, torch.tensor(9.0))",
    "fill by a number of the CPU": "x.fill_(torch.tensor(2.0))",
    "fill by a vector of the CPU": "x.fill_(torch.tensor([2.0]))",
    "where with numbers of the CPU": "torch.where(x > 1, torch.tensor(1.0), torch.tensor(0.0))",
    "where with a condition of the CPU": "torch.where(torch.tensor(True), x, x + 1)",
    "power of a number of the CPU": "torch.tensor(2.0) ** x",
    "mse_loss with a number of the CPU": "F.mse_loss(x, torch.tensor(1.0))",
    "add to a number of the CPU": "t = torch.tensor(1.0)\nt += x.sum()\nt",
    "add a number of the GPU to a sum on the CPU": "total = torch.zeros(1)\ntotal += x.sum()\ntotal",
    "add a number of the GPU to a CPU number": "torch.tensor(1.0) + x.sum()",
    "a Python sum of losses": "total = 0.0\nfor row in x:\n    total += row.sum()\ntotal",
    "addcmul with numbers of the CPU": "torch.addcmul(x, torch.tensor(1.0), torch.tensor(2.0))",
    "equal numbers": "torch.equal(x[0, 0], torch.tensor(0.0))",
    "allclose of numbers": "torch.allclose(x[0, 0], torch.tensor(0.0))",
    "isclose of a number": "torch.isclose(x, torch.tensor(0.0))",
    "searchsorted": "torch.searchsorted(x[0], torch.tensor([1.0]))",
    "searchsorted of a number": "torch.searchsorted(x[0], torch.tensor(1.0))",
    "bucketize": "torch.bucketize(x, torch.tensor([1.0, 3.0]))",
    "isin": "torch.isin(x, torch.tensor([1.0, 3.0]))",
    # indices again
    "assign by a mask of the GPU": "x[x > 2] = torch.zeros(3)\nx",
    "assign a CPU number by index": "x[i] = torch.tensor(4.0)\nx",
    "assign one element of the CPU by index": "x[i] = torch.ones(1)\nx",
    "assign a CPU tensor to a slice": "x[:, 1:] = torch.ones(2, 2)\nx",
    "assign a GPU tensor to the CPU": "a[0] = x[0]\na",
    "assign a GPU tensor to the CPU by index": "a[i] = x\na",
    "assign a GPU number to the CPU": "a[0, 0] = x.sum()\na",
    "assign by indices of the GPU to the CPU": "a[i.to(G)] = 1.0\na",
    "index by a number of the GPU": "a[i.to(G)[0]]",
    "index by a number of the CPU": "x[i[0]]",
    "two indices": "x[i, i.to(G)]",
    "index_put": "x.index_put((i,), torch.ones(2, 3))",
    "index_copy": "x.index_copy(0, i, a)",
    "index_fill with a number of the CPU": "x.index_fill(0, i.to(G), torch.tensor(1.0))",
    "masked_scatter": "x.masked_scatter(x > 2, torch.zeros(3))",
    "put": "x.put_(i, torch.ones(2))",
    "take": "x.take(i)",
    "repeat_interleave": "x.repeat_interleave(torch.tensor([1, 2]), 0)",
    "split with sizes": "[t.device for t in x.split([1, 1])]",
    # more of networks
    "an lstm": "nn.LSTM(3, 4).to(G)(x[None])[0].device",
    "a gru": "nn.GRU(3, 4, batch_first=True).to(G)(x[None])[1].device",
    "a gru with an example on the CPU": "nn.GRU(3, 4).to(G)(a)",
    "an rnn with a state of the CPU": "nn.RNN(3, 4).to(G)(x, torch.zeros(1, 4))",
    "an lstm of packed sequences": """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        packed = pack_padded_sequence(x[:, :, None], torch.tensor([3, 2]), batch_first=True)
        out, (h, c) = nn.LSTM(1, 4, batch_first=True).to(G)(packed)
        padded, lengths = pad_packed_sequence(out, batch_first=True)
        packed.batch_sizes.device, out.data.device, h.device, padded.device, padded.shape, lengths
        """,
    "packed lengths of the GPU, sorted": "nn.utils.rnn.pack_padded_sequence(x[:, :, None], torch.tensor("
    "[3, 2], device=G),"
    " batch_first=True)",
    "pack_sequence": "nn.utils.rnn.pack_sequence([x[0], x[1, :2]]).batch_sizes",
    "pad_sequence of CPU first": "nn.utils.rnn.pad_sequence([a[1], x[0]]).device",
    "an lstm cell": "nn.LSTMCell(3, 4).to(G)(x)[0].device",
    "an lstm cell with a state of the CPU": "nn.LSTMCell(3, 4).to(G)(x, (torch.zeros(2, 4), torch.zeros(2, 4)))",
    "batch normalisation, its counter": "net = nn.BatchNorm1d(3).to(G)\nnet(x)\nnet.num_batches_tracked",
    "batch normalisation of an example on the CPU": "nn.BatchNorm1d(3).to(G)(a)",
    "layer normalisation of an example on the CPU": "nn.LayerNorm(3).to(G)(a)",
    "an embedding bag": "nn.EmbeddingBag(4, 2).to(G)(i[None])",
    "a transposed convolution": "nn.ConvTranspose2d(1, 1, 2)(torch.rand(1, 1, 3, 3, device=G))",
    "a bilinear layer": "nn.Bilinear(3, 3, 2).to(G)(x, a)",
    "dropout": "nn.Dropout(0.5)(x).device",
    "max pooling": "nn.MaxPool2d(2)(torch.rand(1, 1, 4, 4, device=G)).device",
    "a transformer": "nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).to(G)(torch.rand("
    "1, 2, 4, device=G)).device",
    "a transformer with a mask of the CPU": "nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).to(G)("
    "torch.rand(1, 3, 4, device=G), src_mask=nn.Transformer.generate_square_subsequent_mask(3))",
    "attention with a mask of the CPU": "F.scaled_dot_product_attention(x[None], x[None], x[None], "
    "torch.ones(2, 2, dtype=torch.bool))",
    "causal attention": "F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)",
    "a loss with weights moved": "nn.CrossEntropyLoss(torch.ones(3)).to(G)(x, i.to(G))",
    "label smoothing": "F.cross_entropy(x, i.to(G), label_smoothing=0.1)",
    "triplet": "F.triplet_margin_loss(x, x + 1, a)",
    "cosine_embedding_loss": "F.cosine_embedding_loss(x, x, torch.ones(2))",
    "huber_loss": "F.huber_loss(x, a)",
    "smooth_l1_loss": "F.smooth_l1_loss(x, a)",
    "poisson_nll_loss": "F.poisson_nll_loss(x, a)",
    "margin_ranking_loss": "F.margin_ranking_loss(x, x, a)",
    "ctc with all on the GPU": "F.ctc_loss(x[:, None].log_softmax(2), i[None].to(G) + 1, torch.tensor([2], device=G),"
    " torch.tensor([1], device=G))",
    "load_state_dict from the CPU": "net = nn.Linear(3, 1).to(G)\nnet.load_state_dict(nn.Linear(3, 1).state_dict())\n"
    "net.weight.device",
    "load_state_dict that assigns": "net = nn.Linear(3, 1).to(G)\nnet.load_state_dict(nn.Linear(3, 1).state_dict(), "
    "assign=True)\nnet.weight.device",
    "a parameter set on the CPU": "net = nn.Linear(3, 1).to(G)\nnet.weight = nn.Parameter(torch.ones(1, 3))\nnet(x)",
    "weights set in place": "net = nn.Linear(3, 1).to(G)\nwith torch.no_grad():\n"
    "    net.weight.copy_(torch.ones(1, 3))\n"
    "net.weight",
    "weights set by data": "net = nn.Linear(3, 1).to(G)\nnet.weight.data = torch.ones(1, 3)\nnet(x)",
    "a buffer": "net = nn.Module()\nnet.register_buffer('mean', torch.ones(3))\nnet.to(G).mean.device",
    "skip_init": "nn.utils.skip_init(nn.Linear, 3, 1, device=G).weight.device",
    "meta and to_empty": "with torch.device('meta'):\n    net = nn.Linear(3, 1)\nnet.to_empty(device=G).weight.device",
    "meta and to": "with torch.device('meta'):\n    net = nn.Linear(3, 1)\nnet.to(G)",
    "a mean over two networks": "p, q = nn.Linear(3, 1), nn.Linear(3, 1).to(G)\n"
    "torch.stack([next(p.parameters()), next(q.parameters())]).mean(0)",
    "foreach of two devices": "torch._foreach_add([x, a], [x, a])",
    "a norm of a list": "nn.utils.get_total_norm([x, a])",
    "vector_to_parameters": "net = nn.Linear(3, 1).to(G)\nnn.utils.vector_to_parameters(torch.ones("
    "4), net.parameters())\n"
    "net.weight.device",
    "weight_norm": "nn.utils.parametrizations.weight_norm(nn.Linear(3, 1)).to(G)(x).device",
    # optimizers again
    "a fused optimizer": "net = nn.Linear(3, 1).to(G)\no = torch.optim.AdamW(net.parameters(), fused=True)\n"
    "net(x).sum().backward()\no.step()\n[v.device for v in o.state[net.weight].values()]",
    "a capturable optimizer": "net = nn.Linear(3, 1).to(G)\no = torch.optim.Adam(net.parameters(), capturable=True)\n"
    "net(x).sum().backward()\no.step()\n[v.device for v in o.state[net.weight].values()]",
    "a learning rate that is a tensor": "net = nn.Linear(3, 1).to(G)\no = torch.optim.SGD(net.parameters(), "
    "lr=torch.tensor(0.1))\nnet(x).sum().backward()\no.step()",
    "an optimizer of two devices": "nets = [nn.Linear(3, 1), nn.Linear(3, 1).to(G)]\no = torch.optim.Adam("
    "[p for net in nets for p in net.parameters()])\nnets[0](a).sum().backward()\nnets[1](x).sum().backward()\n"
    "o.step()",
    "an optimizer of the CPU's copy": "net = nn.Linear(3, 1)\no = torch.optim.SGD(net.parameters(), 0.1)\n"
    "moved = copy.deepcopy(net).to(G)\nbefore = moved.weight.detach().clone()\nmoved(x).sum().backward()\no.step()\n"
    "torch.equal(before, moved.weight)",
    "the parameters stay the same objects": "net = nn.Linear(3, 1)\nw = net.weight\nnet.to(G)\n"
    "w is net.weight, w.device",
    "gradients are moved with the network": "net = nn.Linear(3, 1)\nnet(a).sum().backward()\nnet.to(G)\n"
    "net.weight.grad.device",
    # more of moving
    "non_blocking": "a.to(G, non_blocking=True).device, a.pin_memory().to(G, non_blocking=True).device",
    "to of another tensor": "a.to(x).device",
    "type with a name": "a.type('torch.cuda.FloatTensor').device, x.type('torch.FloatTensor').device",
    "type of half": "x.half().type(), x.long().type(), (x > 1).type()",
    "type_as": "a.type_as(x).device",
    "legacy constructor": "torch.cuda.FloatTensor(2, 3).device",
    "isinstance of a legacy type": "isinstance(x, torch.cuda.FloatTensor), isinstance(a, torch.cuda.FloatTensor)",
    "torch.tensor of a GPU tensor": "torch.tensor(x).device",
    "as_tensor of a list of numbers": "torch.as_tensor([x.sum(), x.max()]).device",
    "torch.Tensor of numbers": "torch.Tensor([x.sum(), x.max()]).device",
    "np.array of numbers": "np.array([x.sum(), x.max()])",
    "np.array of items": "np.array([x.sum().item(), float(x.max())]).tolist()",
    "math": "import math\nmath.sqrt(x[0, 1]), max(x[0, 1], x[0, 2]).device, round(float(x[0, 1]))",
    "range": "list(range(i.to(G)[0]))",
    "a list's index": "[10, 20][i.to(G)[0]]",
    "a dictionary's key": "{0: 'a', 1: 'b'}.get(i.to(G)[0])",
    "a number in a format": "'{:.1f}'.format(x[0, 1]), '%.1f' % x[0, 1], f'{x[0, 1]:>6.2f}'",
    "bool of one": "bool(x[0, 1] > 0), bool(x.sum() > 100)",
    "len and iteration": "len(x), [row.device for row in x]",
    "contains": "2.0 in x",
    "json": "import json\njson.dumps({'loss': x.sum()})",
    "share_memory": "x.share_memory_().device, x.is_shared()",
    "storage": "x.untyped_storage().device, x.untyped_storage().nbytes()",
    "data_ptr": "x.data_ptr() != a.data_ptr(), x.to(G).data_ptr() == x.data_ptr()",
    "dlpack": "torch.from_dlpack(x).device",
    "__cuda_array_interface__": "x.__cuda_array_interface__['shape']",
    "no cuda array interface": "a.__cuda_array_interface__",
    "is_pinned of a GPU tensor": "x.is_pinned()",
    "element_size": "x.element_size(), x.nbytes, x.numel(), x.dtype, x.layout",
    "a tensor of strings": "torch.tensor(['a'], device=G)",
    # devices again
    "a module on cuda:1": "nn.Linear(2, 2).to('cuda:1')",
    "an empty tensor on cuda:1": "torch.empty(0, device='cuda:1')",
    "with torch.cuda.device of a GPU too many": "with torch.cuda.device(1):\n    pass",
    "a device of any number": "torch.device('cuda:7')",
    "a wrong device": "torch.device('gpu')",
    "name": "isinstance(torch.cuda.get_device_name(0), str)",
    "name of a GPU too many": "torch.cuda.get_device_name(1)",
    "properties": "torch.cuda.get_device_properties(0).total_memory > 0",
    "properties of a GPU too many": "torch.cuda.get_device_properties(1)",
    "capability": "len(torch.cuda.get_device_capability())",
    "memory of a GPU too many": "torch.cuda.memory_allocated(1)",
    "mem_get_info": "free, total = torch.cuda.mem_get_info()\n0 < free <= total",
    "the largest memory": "torch.cuda.reset_peak_memory_stats()\nbefore = torch.cuda.max_memory_allocated()\n"
    "z = torch.zeros(1024, 256, device=G)\ndel z\ntorch.cuda.max_memory_allocated() - before",
    "memory_summary": "isinstance(torch.cuda.memory_summary(), str)",
    "memory_stats": "torch.cuda.memory_stats()['allocated_bytes.all.current'] == torch.cuda.memory_allocated()",
    "reserved": "torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()",
    "synchronize of a GPU too many": "torch.cuda.synchronize(1)",
    "cudnn": "torch.backends.cudnn.is_available(), torch.backends.cuda.is_built()",
    "is_initialized": "torch.cuda.is_initialized()",
    "a random state": "s = torch.cuda.get_rng_state()\nfirst = torch.rand(3, device=G)\ntorch.cuda.set_rng_state(s)\n"
    "torch.equal(first, torch.rand(3, device=G))",
    "the random numbers of the CPU do not move with those of the GPU": "torch.manual_seed(0)\nfirst = torch.rand(3)\n"
    "torch.manual_seed(0)\ntorch.rand(3, device=G)\ntorch.equal(first, torch.rand(3))",
    "fork_rng": "with torch.random.fork_rng(devices=[0]):\n    torch.rand(1, device=G)\nTrue",
    "a loader's generator on the GPU": "next(iter(torch.utils.data.DataLoader(list(range(4)), 2, shuffle=True, "
    "generator=torch.Generator(G))))",
    "DistributedSampler": "list(torch.utils.data.distributed.DistributedSampler(list(range(4)), 2, 0, shuffle=False))",
    "default device and a loader": """
        torch.set_default_device('cuda')
        try:
            next(iter(torch.utils.data.DataLoader(list(range(4)), 2, shuffle=True)))
        finally:
            torch.set_default_device(None)
        """,
    "a worker that makes GPU tensors": """
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, n):
                return torch.ones(1, device=G)
        next(iter(torch.utils.data.DataLoader(Data(), 2, num_workers=1, multiprocessing_context='fork')))
        """,
    # autocast again
    "autocast of a convolution": "net = nn.Conv2d(1, 2, 3).to(G)\nwith torch.autocast('cuda'):\n"
    "    z = net(torch.rand(1, 1, 5, 5, device=G))\nz.dtype",
    "autocast of batch normalisation": "net = nn.BatchNorm1d(3).to(G)\nwith torch.autocast('cuda'):\n"
    "    z = net(x.half())\nz.dtype",
    "autocast of attention": "with torch.autocast('cuda', torch.bfloat16):\n"
    "    z = F.scaled_dot_product_attention(x[None], x[None], x[None])\nz.dtype",
    "autocast of an lstm": "net = nn.LSTM(3, 4).to(G)\nwith torch.autocast('cuda'):\n    z = net(x)[0]\nz.dtype",
    "autocast of cat": "with torch.autocast('cuda'):\n    z = torch.cat([x.half(), x])\nz.dtype",
    "autocast of mse_loss": "with torch.autocast('cuda'):\n    z = F.mse_loss(x.half(), x)\nz.dtype",
    "autocast of exp": "with torch.autocast('cuda'):\n    z = x.half().exp()\nz.dtype",
    "autocast of mean": "with torch.autocast('cuda'):\n    z = x.half().mean()\nz.dtype",
    "autocast of norm": "with torch.autocast('cuda'):\n    z = x.half().norm()\nz.dtype",
    "autocast of einsum": "with torch.autocast('cuda'):\n    z = torch.einsum('ij,jk->ik', x, y)\nz.dtype",
    "autocast of relu": "with torch.autocast('cuda'):\n    z = (x @ y).relu()\nz.dtype",
    "autocast of gelu": "with torch.autocast('cuda'):\n    z = F.gelu(x @ y)\nz.dtype",
    "autocast of an embedding": "net = nn.Embedding(4, 2).to(G)\nwith torch.autocast('cuda'):\n"
    "    z = net(i.to(G))\nz.dtype",
    "autocast of log_softmax": "with torch.autocast('cuda'):\n    z = F.log_softmax(x @ y, 1)\nz.dtype",
    "autocast of group_norm": "net = nn.GroupNorm(1, 3).to(G)\nwith torch.autocast('cuda'):\n    z = net(x.half())\n"
    "z.dtype",
    "autocast of bce with logits": "with torch.autocast('cuda'):\n"
    "    z = F.binary_cross_entropy_with_logits(x @ y, torch.ones(2, 2, device=G))\nz.dtype",
    "autocast that is off": "with torch.autocast('cuda', enabled=False):\n    z = x @ y\nz.dtype",
    "autocast inside of autocast": "with torch.autocast('cuda'):\n    with torch.autocast('cuda', enabled=False):\n"
    "        z = x @ y\nz.dtype",
    "autocast of the CPU": "with torch.autocast('cpu'):\n    z = x @ y\nz.dtype",
    "autocast of float64": "with torch.autocast('cuda'):\n    z = x.double() @ y.double()\nz.dtype",
    "autocast of the old name": "with torch.cuda.amp.autocast():\n    z = x @ y\nz.dtype",
    "custom_fwd": """
        class Twice(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type='cuda', cast_inputs=torch.float32)
            def forward(ctx, x):
                return x * 2
            @staticmethod
            @torch.amp.custom_bwd(device_type='cuda')
            def backward(ctx, grad):
                return grad * 2
        with torch.autocast('cuda'):
            z = Twice.apply(x.half())
        z.dtype
        """,
    # integers, and what has no kernel on a GPU
    "integers in mm": "torch.mm(i.to(G)[None], i.to(G)[:, None])",
    "integers in bmm": "torch.bmm(i.to(G)[None, None], i.to(G)[None, :, None])",
    "integers in linear": "F.linear(i.to(G)[None], i.to(G)[None])",
    "integers in dot": "torch.dot(i.to(G), i.to(G))",
    "integers in mv": "torch.mv(torch.eye(2, dtype=torch.int64, device=G), i.to(G))",
    "integers in einsum": "torch.einsum('i,i->', i.to(G), i.to(G))",
    "int32 in a product": "i.to(G).int()[None] @ i.to(G).int()[:, None]",
    "uint8 in a product": "i.to(G).byte()[None] @ i.to(G).byte()[:, None]",
    "integers in a convolution": "F.conv1d(i.to(G)[None, None], torch.ones(1, 1, 1, dtype=torch.int64, device=G))",
    "images as bytes": "nn.Linear(3, 2).to(G)(torch.ones(2, 3, dtype=torch.uint8, device=G))",
    "float64 in float32": "nn.Linear(3, 2).to(G)(x.double())",
    "an index that is float": "x[torch.tensor([0.0])]",
    "labels that are float": "F.cross_entropy(x, i.to(G).float())",
    "labels that are int32": "F.cross_entropy(x, i.to(G).int())",
    "bool minus": "mask.to(G) - mask.to(G)",
    "cumsum of bool": "mask.to(G).cumsum(0)",
    "cholesky": "torch.linalg.cholesky(torch.eye(2, device=G)).device",
    "svd": "torch.linalg.svdvals(torch.eye(2, device=G))",
    "kthvalue": "x.kthvalue(2).values",
    "median": "x.median()",
    "mode": "x.mode().values.device",
    "fft": "torch.fft.fft(x[0]).device",
    # NCCL again
    "NCCL, broadcast that is not contiguous": "dist.broadcast(x.t(), 0)",
    "NCCL, all_gather_into_tensor that is not contiguous": "dist.all_gather_into_tensor(torch.empty("
    "3, 2, device=G), x.t())",
    "NCCL, reduce_scatter_tensor that is not contiguous": "dist.reduce_scatter_tensor(torch.empty("
    "3, 2, device=G), x.t())",
    "NCCL, all_gather that is not contiguous": "out = [torch.empty(3, 2, device=G)]\ndist.all_gather(out, x.t())\nout",
    "NCCL, all_gather_into_tensor into the CPU": "dist.all_gather_into_tensor(torch.empty(2, 3), x)",
    "NCCL, all_gather_into_tensor from the CPU": "dist.all_gather_into_tensor(torch.empty(2, 3, device=G), a)",
    "NCCL, all_gather from the CPU": "dist.all_gather([torch.empty(2, 3, device=G)], a)",
    "NCCL, all_gather into the CPU, its values": "out = [torch.empty(2, 3)]\ndist.all_gather(out, x)\nout[0]",
    "NCCL, reduce_scatter from the CPU": "dist.reduce_scatter(torch.empty(2, 3, device=G), [a])",
    "NCCL, scatter from the CPU": "out = torch.empty(2, 3, device=G)\ndist.scatter(out, [a])",
    "NCCL, scatter": "out = torch.empty(2, 3, device=G)\ndist.scatter(out, [x])\nout",
    "NCCL, gather": "out = [torch.empty(2, 3, device=G)]\ndist.gather(x, out)\nout",
    "NCCL, gather into the CPU": "out = [torch.empty(2, 3)]\ndist.gather(x, out)\nout",
    "NCCL, all_to_all_single": "out = torch.empty(2, 3, device=G)\ndist.all_to_all_single(out, x)\nout",
    "NCCL, all_to_all": "out = [torch.empty(2, 3, device=G)]\ndist.all_to_all(out, [x])\nout",
    "NCCL, all_to_all from the CPU": "dist.all_to_all([torch.empty(2, 3, device=G)], [a])",
    "NCCL, reduce": "dist.reduce(x, 0)\nx",
    "NCCL, a product": "dist.all_reduce(x, op=dist.ReduceOp.PRODUCT)\nx",
    "NCCL, a mean of integers": "dist.all_reduce(i.to(G), op=dist.ReduceOp.AVG)",
    "NCCL, or": "dist.all_reduce(mask.to(G), op=dist.ReduceOp.BOR)",
    "NCCL, bfloat16": "z = x.bfloat16()\ndist.all_reduce(z)\nz.dtype",
    "NCCL, complex": "z = torch.complex(x, x)\ndist.all_reduce(z)\nz.dtype",
    "NCCL, int16": "dist.all_reduce(i.to(G).short())",
    "NCCL, sparse": "dist.all_reduce(x.to_sparse())",
    "NCCL, an empty tensor": "dist.all_reduce(torch.empty(0, device=G))",
    "NCCL, a list": "dist.all_reduce([x])",
    "NCCL, a wrong size": "dist.all_gather_into_tensor(torch.empty(3, 3, device=G), x)",
    "NCCL, a wrong type": "dist.all_gather_into_tensor(torch.empty(2, 3, device=G).half(), x)",
    "NCCL, all_gather of a wrong shape": "dist.all_gather([torch.empty(3, 3, device=G)], x)",
    "NCCL, all_gather of a wrong number": "dist.all_gather([torch.empty(2, 3, device=G)] * 2, x)",
    "NCCL, broadcast objects": "o = [{'a': 1}]\ndist.broadcast_object_list(o, 0)\no",
    "NCCL, gather objects": "o = [None]\ndist.gather_object({'a': 1}, o)\no",
    "NCCL, monitored_barrier": "dist.monitored_barrier()",
    "NCCL, a wrong rank": "dist.broadcast(x, 3)",
    "NCCL, a number": "dist.all_reduce(x.sum())",
    "NCCL, a Python number": "dist.all_reduce(1.0)",
    "NCCL, a group with gloo": "g = dist.new_group(backend='gloo')\ndist.all_reduce(a, group=g)\na",
    "NCCL, a group with gloo and a GPU tensor": "g = dist.new_group(backend='gloo')\ndist.all_reduce(x, group=g)\nx",
    "gloo, broadcast of a GPU tensor": "g = dist.new_group(backend='gloo')\ndist.broadcast(x, 0, group=g)\nx",
    "gloo, all_gather of GPU tensors": "g = dist.new_group(backend='gloo')\nout = [torch.empty(2, 3, device=G)]\n"
    "dist.all_gather(out, x, group=g)\nout",
    "gloo, a mean": "g = dist.new_group(backend='gloo')\ndist.all_reduce(a, op=dist.ReduceOp.AVG, group=g)",
    "gloo, not contiguous": "g = dist.new_group(backend='gloo')\ndist.all_reduce(a.t(), group=g)",
    "both backends": "g = dist.new_group(backend='cpu:gloo,cuda:nccl')\ndist.all_reduce(a, group=g)\n"
    "dist.all_reduce(x, group=g)\na.device, x.device",
    "DDP, buffers on the CPU": """
        net = nn.BatchNorm1d(3).to(G)
        net.running_mean = torch.zeros(3)
        nn.parallel.DistributedDataParallel(net, device_ids=[0])
        """,
    "DDP, parameters on two devices": "nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 3), "
    "nn.Linear(3, 1).to(G)))",
    "DDP, device_ids of a GPU too many": "nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G), device_ids=[1])",
    "DDP, two device_ids": "nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G), device_ids=[0, 1])",
    "DDP, a hook": """
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
        net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G), device_ids=[0])
        net.register_comm_hook(None, fp16_compress_hook)
        net(x).sum().backward()
        net.module.weight.grad
        """,
    "DDP, the state's names": "list(nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G), device_ids=[0])"
    ".state_dict())",
    "DDP, an evaluation on the CPU": "net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to("
    "G), device_ids=[0])\n"
    "net.module.cpu()(a).device",
    "convert_sync_batchnorm": "nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3))).to(G)("
    "x).device",
    "fully_shard": """
        from torch.distributed.fsdp import fully_shard
        net = nn.Linear(3, 1).to(G)
        fully_shard(net)
        net(x).sum().backward()
        net.weight.grad.full_tensor()
        """,
    "fully_shard of a network on the CPU": """
        from torch.distributed.fsdp import fully_shard
        net = nn.Linear(3, 1)
        fully_shard(net)
        net.weight.device, net(x).device
        """,
    "FSDP": """
        from torch.distributed.fsdp import FullyShardedDataParallel
        net = FullyShardedDataParallel(nn.Linear(3, 1).to(G))
        net(x).sum().backward()
        True
        """,
    "a mesh of the GPU": """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        mesh = init_device_mesh('cuda', (1,))
        distribute_tensor(a, mesh, [Shard(0)]).to_local().device
        """,
}

SNIPPETS |= {
    # asked for later
    "gaussian_nll_loss with a number of the CPU": "F.gaussian_nll_loss(x, torch.tensor(1.0), torch.ones_like(x))",
    "binary_cross_entropy with a number of the CPU": "F.binary_cross_entropy(x.sigmoid(), torch.tensor(1.0))",
    "foreach mul by a number of the CPU": "torch._foreach_mul([x, x], torch.tensor(1.0))",
    "foreach add of a list of numbers": "torch._foreach_add([x, x], [torch.tensor(1.0), torch.tensor(1.0)])",
    "baddbmm with a number of the CPU": "torch.baddbmm(torch.tensor(1.0), x[None], y[None])",
    "addmm with a number of the CPU": "torch.addmm(torch.tensor(1.0), x, y)",
    "linear with a bias of the CPU": "F.linear(x, x, torch.ones(2))",
    "convolution with a bias of the CPU": """
        X, weight = torch.rand(1, 1, 5, 5, device=G), torch.rand(1, 1, 3, 3, device=G)
        F.conv2d(X, weight, torch.ones(1))
        """,
    "convolution of the CPU with a weight of the GPU": "F.conv1d(a[None], torch.ones(1, 2, 1, device=G))",
    "full_like of a number of the CPU": "torch.full_like(x, 3.0).device, torch.full((2,), 1.0, device=G).device",
    "scatter with a number of the CPU": """
        index = torch.zeros(2, 1, dtype=torch.int64, device=G)
        x.scatter(1, index, torch.tensor(1.0))
        """,
    "index_add with a number of the CPU": "x.index_add(0, i.to(G), torch.ones(2, 3))",
    "index_put with a number of the CPU": "x.index_put((i.to(G),), torch.tensor(1.0))",
    "masked_fill with one element": "x.masked_fill(x > 2, torch.ones(1))",
    "clamp max by a number of the CPU": "x.clamp(max=torch.tensor(1.0))",
    "clamp_min by a number of the CPU": "torch.clamp_min(x, torch.tensor(1.0))",
    "where of a CPU vector and a GPU condition": "torch.where(x > 1, torch.ones(3), x)",
    "where with CPU numbers and a CPU condition": "torch.where(a > 1, x.sum(), torch.tensor(1.0))",
    "dropout does not move the CPU's numbers": """
        torch.manual_seed(0)
        first = torch.rand(3)
        torch.manual_seed(0)
        F.dropout(x, 0.5)
        torch.equal(first, torch.rand(3))
        """,
    "normal_ does not move the CPU's numbers": """
        torch.manual_seed(0)
        first = torch.rand(3)
        torch.manual_seed(0)
        x.normal_()
        torch.equal(first, torch.rand(3))
        """,
    "randn differs from the CPU's": """
        torch.manual_seed(0)
        first = torch.randn(3)
        torch.manual_seed(0)
        torch.equal(first, torch.randn(3, device=G).cpu())
        """,
    "a generator's numbers repeat": """
        g = torch.Generator(G).manual_seed(1)
        p = torch.rand(3, device=G, generator=g)
        g.manual_seed(1)
        torch.equal(p, torch.rand(3, device=G, generator=g))
        """,
    "initial_seed": """
        torch.manual_seed(5)
        torch.cuda.initial_seed()
        """,
    "bernoulli with a generator of the CPU": "x.sigmoid().bernoulli(generator=torch.Generator())",
    "normal_ with a generator of the CPU": "x.normal_(generator=torch.Generator())",
    "randint": "torch.randint(0, 3, (4,), device=G).device, torch.randperm(4, device=G).device",
    "multinomial with a generator of the CPU": """
        torch.multinomial(torch.ones(3, device=G), 1, generator=torch.Generator())
        """,
    "init with a generator of the CPU": "nn.init.normal_(nn.Linear(2, 2).to(G).weight, generator=torch.Generator())",
    "float64 on the GPU by default": "torch.tensor([1.0], dtype=torch.float64, device=G).dtype",
    "uneven all_to_all_single": """
        out = torch.empty(2, 3, device=G)
        dist.all_to_all_single(out, x, [2], [2])
        out.device
        """,
    "NCCL, reduce_scatter_tensor of a wrong size": "dist.reduce_scatter_tensor(torch.empty(3, 3, device=G), x)",
    "NCCL, reduce_scatter_tensor of another type": "dist.reduce_scatter_tensor(torch.empty(2, 3, device=G).half(), x)",
    "NCCL, all_reduce of float8": "dist.all_reduce(x.to(torch.float8_e4m3fn))",
    "NCCL, all_reduce of uint16": "dist.all_reduce(torch.zeros(2, dtype=torch.uint16, device=G))",
    "NCCL, reduce of a tensor that is not contiguous": "dist.reduce(x.t(), 0)",
    "NCCL, all_to_all_single that is not contiguous": "dist.all_to_all_single(torch.empty(3, 2, device=G), x.t())",
    "NCCL, scatter that is not contiguous": "dist.scatter(torch.empty(3, 2, device=G), [x.t()])",
    "NCCL, gather that is not contiguous": "dist.gather(x.t(), [torch.empty(3, 2, device=G)])",
    "NCCL, minimum": """
        dist.all_reduce(x, op=dist.ReduceOp.MIN)
        x
        """,
    "NCCL, all_reduce_coalesced": "dist.all_reduce_coalesced([x, x + 1])",
    "NCCL, a coalescing manager": """
        with dist._coalescing_manager(device=G):
            dist.all_reduce(x)
        x
        """,
    "NCCL, batch_isend_irecv to itself": """
        r = torch.empty(2, 3, device=G)
        ops = [dist.P2POp(dist.isend, x, 0), dist.P2POp(dist.irecv, r, 0)]
        [w.wait() for w in dist.batch_isend_irecv(ops)]
        r
        """,
    "NCCL, functional all_reduce": """
        import torch.distributed._functional_collectives as fc
        fc.all_reduce(x, 'sum', dist.group.WORLD)
        """,
    "NCCL, functional all_reduce on the CPU": """
        import torch.distributed._functional_collectives as fc
        fc.all_reduce(a, 'sum', dist.group.WORLD)
        """,
    "NCCL, nn.functional": """
        import torch.distributed.nn.functional as nf
        nf.all_reduce(x.requires_grad_()).sum().backward()
        x.grad
        """,
    "DDP, static_graph": """
        net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G), device_ids=[0], static_graph=True)
        for _ in range(2):
            net(x).sum().backward()
        net.module.weight.grad
        """,
    "DDP, no_sync": """
        net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1).to(G), device_ids=[0])
        with net.no_sync():
            net(x).sum().backward()
        net.module.weight.grad
        """,
    "DDP of integers": """
        net = nn.Embedding(3, 2).to(G).requires_grad_(False)
        nn.parallel.DistributedDataParallel(net, device_ids=[0])
        """,
    "DDP, a list of inputs on the CPU": """
        net = nn.parallel.DistributedDataParallel(nn.Bilinear(3, 3, 1).to(G), device_ids=[0])
        net(a, a).device
        """,
    "GradScaler on the CPU's loss": "torch.amp.GradScaler('cuda').scale(a.sum())",
    "GradScaler that is off": "torch.amp.GradScaler('cuda', enabled=False).scale(x.sum())",
    "clip_grad_value": """
        net = nn.Linear(3, 1).to(G)
        net(x).sum().backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        net.weight.grad
        """,
    "a hook that returns a CPU gradient": """
        x.requires_grad_()
        z = x * 2
        z.register_hook(lambda g: g.cpu())
        z.sum().backward()
        x.grad.device
        """,
    "a Function that returns a CPU gradient": """
        class F1(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, g):
                return g.cpu()
        x.requires_grad_()
        F1.apply(x).sum().backward()
        x.grad.device
        """,
    "jacobian": "torch.autograd.functional.jacobian(lambda v: (v * v).sum(), x)",
    "grad of autograd": """
        x.requires_grad_()
        torch.autograd.grad((x * 2).sum(), x)[0]
        """,
    "autograd.grad with grad_outputs of the CPU": """
        x.requires_grad_()
        torch.autograd.grad(x * 2, x, torch.ones(2, 3))
        """,
    "save and load a module": """
        import io
        f = io.BytesIO()
        torch.save(nn.Linear(3, 1).to(G), f)
        f.seek(0)
        torch.load(f, weights_only=False).weight.device
        """,
    "load to cuda:1": """
        import io
        f = io.BytesIO()
        torch.save(x, f)
        f.seek(0)
        torch.load(f, map_location='cuda:1')
        """,
    "load from the CPU to the GPU": """
        import io
        f = io.BytesIO()
        torch.save(a, f)
        f.seek(0)
        torch.load(f, map_location='cuda').device
        """,
    "load with a dictionary": """
        import io
        f = io.BytesIO()
        torch.save(x, f)
        f.seek(0)
        torch.load(f, map_location={'cuda:0': 'cpu'}).device
        """,
    "random_split with a default device": """
        import torch.utils.data as d
        torch.set_default_device('cuda')
        try:
            r = d.random_split(list(range(4)), [2, 2])
        finally:
            torch.set_default_device(None)
        True
        """,
    "torch.from_numpy and default device": """
        torch.set_default_device('cuda')
        try:
            made = [torch.from_numpy(np.ones(2)), torch.tensor([1.0]), torch.as_tensor([1.0]), torch.Tensor([1.0])]
            r = [t.device for t in (*made, torch.randperm(3))]
        finally:
            torch.set_default_device(None)
        r
        """,
    "a Subset by GPU indices": """
        d = torch.utils.data.Subset(list(range(4)), torch.tensor([1, 2], device=G))
        d[0]
        """,
    "a TensorDataset of two devices": "torch.utils.data.TensorDataset(a, x)[0][1].device",
    "default_collate of two devices": "torch.utils.data.default_collate([x[0], a[0]])",
}

# functions of two values, with a number and with a tensor of the CPU
NUMBER = "torch.tensor(1.0)"
TWO_VALUES = """
    add sub mul div pow remainder fmod atan2 maximum minimum fmax fmin hypot copysign heaviside xlogy logaddexp
    float_power floor_divide eq ne lt gt le ge logical_and logical_or logical_xor isclose nextafter ldexp dist outer
    inner kron tensordot
"""
LOSSES = """
    l1_loss huber_loss smooth_l1_loss binary_cross_entropy_with_logits kl_div poisson_nll_loss soft_margin_loss
"""
for _name in LOSSES.split():
    SNIPPETS[f"{_name} with a number of the CPU"] = f"F.{_name}(x, {NUMBER})"
for _name in TWO_VALUES.split():
    _x, _a = ("x[0]", "a[0]") if _name in ("outer", "inner") else ("x", "a")
    SNIPPETS[f"{_name} with a number of the CPU"] = f"torch.{_name}({_x}, {NUMBER})"
    SNIPPETS[f"{_name} with a CPU tensor"] = f"torch.{_name}({_x}, {_a})"
for _name in "add_ sub_ mul_ div_ copy_ fill_".split():
    SNIPPETS[f"a CPU number, {_name} of a GPU number"] = f"t = {NUMBER}\nt.{_name}(x.sum())\nt.device"
    SNIPPETS[f"a CPU vector, {_name} of a GPU number"] = f"t = torch.ones(2)\nt.{_name}(x.sum())\nt.device"
    SNIPPETS[f"a GPU number, {_name} of a CPU number"] = f"t = x.sum()\nt.{_name}({NUMBER})\nt.device"
for _name in ("addcmul", "addcdiv"):
    SNIPPETS[f"{_name}, the second a CPU number"] = f"torch.{_name}(x, {NUMBER}, x + 1)"
    SNIPPETS[f"{_name}, the third a CPU number"] = f"torch.{_name}(x, x + 1, {NUMBER})"


def describe(value):
    """Return a value as JSON holds it: tensors with device, type, shape and numbers."""
    if isinstance(value, torch.Tensor):
        numbers = value.detach().to("cpu", torch.float64).flatten().tolist()
        return {"device": str(value.device), "dtype": str(value.dtype), "shape": list(value.shape), "numbers": numbers}
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if isinstance(value, dict):
        return {str(k): describe(v) for k, v in value.items()}
    return value if isinstance(value, (int, float, str, bool)) or value is None else str(value)


def outcome(code):
    """Run one snippet; return {"value": ...} or {"error": its type, "says": its first line}."""
    body = ast.parse(textwrap.dedent(code).strip())
    last = ast.Expression(body.body.pop().value) if isinstance(body.body[-1], ast.Expr) else None
    names = {}
    exec(BEGIN, names)
    try:
        exec(compile(body, "snippet", "exec"), names)
        value = eval(compile(last, "snippet", "eval"), names) if last else None
        return {"value": describe(value)}
    except Exception as error:
        return {"error": type(error).__name__, "says": (str(error).strip().splitlines() or [""])[0]}


def main():
    """Run all snippets in a process group of one rank and print what came of them as JSON."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.set_device(0)
        torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        found = {name: outcome(code) for name, code in SNIPPETS.items()}
        torch.distributed.destroy_process_group()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
