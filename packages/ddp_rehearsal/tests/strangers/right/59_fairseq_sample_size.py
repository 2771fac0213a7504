"""Style: --local_rank argument with default from the environment; sums of losses divided by the token count of all ranks, inverse sqrt schedule; in the manner of https://github.com/facebookresearch/fairseq"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

def get_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", "--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    parser.add_argument("--max-update", type=int, default=25)
    parser.add_argument("--update-freq", type=int, default=2)
    parser.add_argument("--warmup-updates", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--clip-norm", type=float, default=1.0)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--seed", type=int, default=1)
    return parser

class Seq2Seq(nn.Module):
    def __init__(self, vocab=30, dim=16, pad=0):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=pad)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, src, prev):
        _, state = self.encoder(self.embed(src))
        return self.out(self.decoder(self.embed(prev), state)[0])

class Iterator:
    """Batches limited by tokens, so that their number of sentences differs from batch to batch and rank to rank."""
    def __init__(self, args, rank):
        self.g, self.max_tokens = torch.Generator().manual_seed(args.seed * 1000 + rank), args.max_tokens
    def __next__(self):
        length = int(torch.randint(4, 16, (1,), generator=self.g))
        n = max(1, self.max_tokens // length)
        src = torch.randint(2, 30, (n, length), generator=self.g)
        lens = torch.randint(2, length + 1, (n, 1), generator=self.g)
        target = src.flip(1).masked_fill(torch.arange(length) >= lens, 0)
        prev = torch.cat([torch.ones(n, 1, dtype=torch.long), target[:, :-1]], dim=1)
        return {"src": src, "prev": prev, "target": target, "ntokens": int((target != 0).sum())}

class Trainer:
    def __init__(self, args, model):
        self.args = args
        self.model = nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[args.local_rank])
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
        self.world = dist.get_world_size()
    def lr_step(self, num_updates):
        w = self.args.warmup_updates
        lr = self.args.lr * min((num_updates + 1) / w, (w / (num_updates + 1)) ** 0.5)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
    def train_step(self, samples, num_updates):
        self.model.train()
        self.lr_step(num_updates)
        self.optimizer.zero_grad()
        stats = torch.zeros(2, dtype=torch.double, device="cuda")  # loss, sample size
        for i, sample in enumerate(samples):
            self.model.require_backward_grad_sync = i == len(samples) - 1
            src, prev, target = (sample[k].cuda(non_blocking=True) for k in ("src", "prev", "target"))
            logits = self.model(src, prev)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0, reduction="sum")
            loss.backward()
            stats += torch.stack([loss.detach().double(), torch.tensor(float(sample["ntokens"]), device="cuda").double()])
        dist.all_reduce(stats)
        # DDP has averaged over ranks; what is wanted is the sum divided by all tokens
        for p in self.model.parameters():
            p.grad.mul_(self.world / stats[1].float())
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip_norm)
        self.optimizer.step()
        return (stats[0] / stats[1]).item(), norm.item()

def main(args):
    torch.cuda.set_device(args.local_rank)
    dist.init_process_group(backend="nccl", init_method="env://")
    torch.manual_seed(args.seed)
    trainer, itr = Trainer(args, Seq2Seq()), Iterator(args, dist.get_rank())
    for num_updates in range(args.max_update):
        loss, norm = trainer.train_step([next(itr) for _ in range(args.update_freq)], num_updates)
        if dist.get_rank() == 0 and num_updates % 5 == 0:
            print(f"num_updates {num_updates} | loss {loss:.3f} | gnorm {norm:.3f}")
    dist.destroy_process_group()

if __name__ == "__main__":
    main(get_parser().parse_args())
