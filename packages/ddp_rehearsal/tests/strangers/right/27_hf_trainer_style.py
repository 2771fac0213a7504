"""Style: Trainer with TrainingArguments, callbacks, decay groups and loss over the tokens of all processes; in the manner of https://github.com/huggingface/transformers"""
import itertools, json, os, tempfile
from dataclasses import dataclass, field
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 2
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    max_steps: int = 20
    warmup_steps: int = 4
    logging_steps: int = 5
    local_rank: int = field(default_factory=lambda: int(os.environ.get("LOCAL_RANK", -1)))
class JsonlCallback:
    path = tempfile.gettempdir() + f"/trainer_log_{os.getpid()}.jsonl"
    def on_log(self, logs):
        with open(self.path, "a") as f:
            f.write(json.dumps(logs) + "\n")
def causal_dataset(n):  # a list is a map-style data set
    g = torch.Generator().manual_seed(17)
    return [torch.randint(1, 40, (int(k),), generator=g) for k in torch.randint(4, 17, (n,), generator=g)]
def data_collator(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100)}
class TinyLM(nn.Module):
    def __init__(self, d=24, vocab=40):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(vocab, d), nn.GRU(d, d, batch_first=True)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab)
    def forward(self, input_ids, labels, num_items_in_batch):
        logits = self.head(self.norm(self.rnn(self.emb(input_ids))[0]))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        return loss / num_items_in_batch
class Trainer:
    def __init__(self, model, args, train_dataset, callbacks=()):
        self.args, self.callbacks = args, callbacks
        self.model = nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[args.local_rank])
        no_decay = [n for n, m in model.named_modules() if isinstance(m, nn.LayerNorm)]
        decays = lambda n: not n.endswith("bias") and not any(n.startswith(k + ".") for k in no_decay)
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for n, p in model.named_parameters() if decays(n)], "weight_decay": args.weight_decay},
             {"params": [p for n, p in model.named_parameters() if not decays(n)], "weight_decay": 0.0}], lr=args.learning_rate)
        linear = lambda s: s / args.warmup_steps if s < args.warmup_steps else \
            max(0.0, (args.max_steps - s) / (args.max_steps - args.warmup_steps))
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, linear)
        self.sampler = DistributedSampler(train_dataset, seed=42)
        self.loader = DataLoader(train_dataset, args.per_device_train_batch_size, sampler=self.sampler,
                                 collate_fn=data_collator, drop_last=True, pin_memory=True)
    def batches(self):
        for epoch in itertools.count():
            self.sampler.set_epoch(epoch)
            yield from self.loader
    def get_batch_samples(self, it):
        samples = [next(it) for _ in range(self.args.gradient_accumulation_steps)]
        count = sum((b["labels"][:, 1:] != -100).sum() for b in samples).cuda()
        dist.all_reduce(count)  # tokens over all processes and micro-batches
        return samples, count
    def train(self):
        self.model.train()
        it, running = self.batches(), torch.zeros((), device="cuda")
        for step in range(1, self.args.max_steps + 1):
            samples, num_items = self.get_batch_samples(it)
            for i, batch in enumerate(samples):
                self.model.require_backward_grad_sync = i == len(samples) - 1
                batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
                loss = self.model(**batch, num_items_in_batch=num_items)
                (loss * dist.get_world_size()).backward()  # DDP will divide by it
                running += loss.detach()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.lr_scheduler.step()
            self.optimizer.zero_grad()
            if step % self.args.logging_steps == 0:
                dist.all_reduce(running)
                logs = {"step": step, "loss": running.item() / self.args.logging_steps, "grad_norm": norm.item()}
                running.zero_()
                for cb in self.callbacks:
                    cb.on_log(logs)
if __name__ == "__main__":
    args = TrainingArguments()
    torch.cuda.set_device(args.local_rank)
    dist.init_process_group(backend="nccl")
    torch.manual_seed(42)
    Trainer(TinyLM(), args, causal_dataset(400), [JsonlCallback()] if dist.get_rank() == 0 else []).train()
    dist.destroy_process_group()
