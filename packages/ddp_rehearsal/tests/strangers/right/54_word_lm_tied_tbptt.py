"""Style: word language model: tied weights, truncated BPTT, hand-made SGD, lr annealed on validation loss; modelled on https://github.com/pytorch/examples/blob/main/word_language_model/main.py"""
import argparse, math, os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
parser = argparse.ArgumentParser(description='tiny language model')
parser.add_argument('--emsize', type=int, default=24)
parser.add_argument('--lr', type=float, default=2)
parser.add_argument('--clip', type=float, default=0.25)
parser.add_argument('--epochs', type=int, default=2)
parser.add_argument('--batch_size', type=int, default=8)
parser.add_argument('--bptt', type=int, default=20)
parser.add_argument('--seed', type=int, default=1111)
args = parser.parse_args()

class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nlayers=2, dropout=0.2):
        super().__init__()
        self.ntoken, self.nhid, self.nlayers = ntoken, ninp, nlayers
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, ninp, nlayers, dropout=dropout)
        self.decoder = nn.Linear(ninp, ntoken)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output))
        return decoded.view(-1, self.ntoken), hidden
    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))
def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous().cuda()
def repackage_hidden(h):
    """Wraps hidden states in new Tensors, to detach them from their history."""
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)
def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].view(-1)
def evaluate(model, source):
    model.eval()
    hidden, total = model.module.init_hidden(source.size(1)), torch.zeros(2, device="cuda")
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            hidden = repackage_hidden(hidden)
            total += torch.stack([nn.functional.cross_entropy(output, targets, reduction="sum"),
                                  torch.tensor(float(targets.numel()), device="cuda")])
    dist.all_reduce(total)  # sums and counts, then one division
    return (total[0] / total[1]).item()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(args.seed)
ntokens = 50
corpus = torch.randint(0, ntokens, (2 * 8 * 820,)).cumsum(0).remainder(ntokens)  # the same text on all ranks
train_text, val_text = corpus[:-2000], corpus[-2000:]
train_data = batchify(train_text.chunk(world)[rank], args.batch_size * 2 // world)  # every rank reads its own stretch
val_data = batchify(val_text.chunk(world)[rank], 4)
model = DistributedDataParallel(RNNModel(ntokens, args.emsize).cuda(), device_ids=[torch.cuda.current_device()])
torch.cuda.manual_seed(args.seed + rank)  # dropout
lr, best_val_loss = args.lr, None
for epoch in range(1, args.epochs + 1):
    model.train()
    hidden = model.module.init_hidden(train_data.size(1))
    for batch, i in enumerate(range(0, min(train_data.size(0) - 1, 24 * args.bptt), args.bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = nn.functional.cross_entropy(output, targets)
        loss.backward()
        # `clip_grad_norm` helps prevent the exploding gradient problem in RNNs / LSTMs.
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
    val_loss = evaluate(model, val_data)
    if rank == 0:
        print('| end of epoch {:3d} | valid loss {:5.2f} | valid ppl {:8.2f}'.format(epoch, val_loss, math.exp(val_loss)))
    if not best_val_loss or val_loss < best_val_loss:
        best_val_loss = val_loss
    else:  # anneal the learning rate; the loss is the same number on all ranks
        lr /= 4.0
dist.destroy_process_group()
