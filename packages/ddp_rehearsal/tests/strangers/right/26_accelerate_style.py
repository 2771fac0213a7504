"""Style: a small Accelerator: prepare, accumulate, gather_for_metrics; in the manner of https://github.com/huggingface/accelerate/blob/main/examples/nlp_example.py"""
import contextlib, os
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, DistributedSampler
class Accelerator:
    def __init__(self, gradient_accumulation_steps=1):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.num_processes, self.process_index = dist.get_world_size(), dist.get_rank()
        self.accumulation, self.micro = gradient_accumulation_steps, 0
    def prepare(self, model, *loaders):
        model = nn.parallel.DistributedDataParallel(model.to(self.device), device_ids=[self.device.index])
        out = []
        for dl in loaders:
            shuffle = isinstance(dl.sampler, torch.utils.data.RandomSampler)
            out.append(DataLoader(dl.dataset, dl.batch_size, sampler=DistributedSampler(dl.dataset, shuffle=shuffle),
                                  collate_fn=dl.collate_fn, pin_memory=True))
        return (model, *out)
    @contextlib.contextmanager
    def accumulate(self, model):
        self.micro += 1
        self.sync_gradients = self.micro % self.accumulation == 0
        with contextlib.nullcontext() if self.sync_gradients else model.no_sync():
            yield
    def backward(self, loss):
        (loss / self.accumulation).backward()
    def gather_for_metrics(self, tensor, seen, total):
        parts = [torch.empty_like(tensor) for _ in range(self.num_processes)]
        dist.all_gather(parts, tensor.contiguous())
        whole = torch.stack(parts, dim=1).flatten(0, 1)  # back in the order of the data set ...
        return whole[:total - seen]  # ... without the samples that were added to fill up
class Pairs(Dataset):
    """Two 'sentences' each; label: which first token is larger?"""
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        ab = [torch.randint(1, 20, (int(k), 2), generator=g) for k in torch.randint(3, 9, (n,), generator=g)]
        self.items = [(s.t().flatten(), int(s[0, 0] < s[0, 1])) for s in ab]
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
def collate_fn(examples):
    ids = nn.utils.rnn.pad_sequence([e[0] for e in examples], batch_first=True)
    return {"input_ids": ids, "attention_mask": ids.ne(0), "labels": torch.tensor([e[1] for e in examples])}
class TinyBert(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 16, padding_idx=0)
        self.layer, self.classifier = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 2)
    def forward(self, input_ids, attention_mask, labels):
        h = self.layer(self.emb(input_ids), src_key_padding_mask=~attention_mask)
        logits = self.classifier(h[:, 0])
        return nn.functional.cross_entropy(logits, labels), logits
def training_function(num_epochs=2, batch_size=8):
    accelerator = Accelerator(gradient_accumulation_steps=2)
    train_dl = DataLoader(Pairs(640, 0), batch_size, shuffle=True, collate_fn=collate_fn)
    eval_dl = DataLoader(Pairs(75, 1), batch_size, collate_fn=collate_fn)
    torch.manual_seed(accelerator.process_index)
    model, train_dl, eval_dl = accelerator.prepare(TinyBert(), train_dl, eval_dl)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    total = num_epochs * len(train_dl) // 2
    lr_scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 5, max(0.0, (total - s) / total)))
    for epoch in range(num_epochs):
        model.train()
        train_dl.sampler.set_epoch(epoch)
        for batch in train_dl:
            with accelerator.accumulate(model):
                batch = {k: v.to(accelerator.device, non_blocking=True) for k, v in batch.items()}
                loss, _ = model(**batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    optimizer.step()
                    lr_scheduler.step()
                    optimizer.zero_grad()
        model.eval()
        right, seen, n = 0, 0, len(eval_dl.dataset)
        for batch in eval_dl:
            batch = {k: v.to(accelerator.device) for k, v in batch.items()}
            with torch.no_grad():
                hit = model(**batch)[1].argmax(-1) == batch["labels"]
            hit = accelerator.gather_for_metrics(hit, seen, n)
            right, seen = right + hit.sum().item(), seen + len(hit)
        if accelerator.process_index == 0:
            print(f"epoch {epoch}: accuracy {right / seen:.3f} of {seen}")
    dist.destroy_process_group()
if __name__ == "__main__":
    training_function()
