"""Style: FSDP2 with meta init, mixed precision policy and full state dict on rank 0; modelled on https://github.com/pytorch/examples/blob/main/distributed/FSDP2"""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.w1 = nn.Linear(dim, 4 * dim)
        self.w2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.w2(F.gelu(self.w1(self.norm(x))))

class Transformer(nn.Module):
    def __init__(self, vocab_size=64, dim=32, n_layers=3):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(n_layers))
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h)).float()

    def reset_parameters(self):
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding, nn.LayerNorm)):
                module.reset_parameters()

def main(args):
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{rank}")
    torch.cuda.set_device(device)
    dist.init_process_group(backend="nccl", device_id=device)
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Transformer()
    fsdp_kwargs = {}
    if not args.no_mixed_precision:
        fsdp_kwargs["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    assert isinstance(model, FSDPModule)
    model.to_empty(device="cuda")
    model.reset_parameters()
    assert all(isinstance(p, DTensor) and p.dtype == torch.float32 for p in model.parameters())

    optim = torch.optim.AdamW(model.parameters(), lr=1e-2)
    gen = torch.Generator().manual_seed(1000 + dist.get_rank())  # another part of the data on each rank
    for step in range(args.steps):
        x = torch.randint(0, 64, (4, 17), generator=gen).to(device)
        logits = model(x[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optim.step()
        optim.zero_grad()
        if step % 10 == 0:
            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm  # a collective: on all ranks
            if dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.4f} grad norm {norm.item():.4f}")

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:  # the others hold an empty dict
        with tempfile.TemporaryFile() as f:
            torch.save(state, f)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-mixed-precision", action="store_true")
    parser.add_argument("--steps", type=int, default=25)
    main(parser.parse_args())
