"""Bugs of scripts: each is a difference from a right script in `scripts`, and what a rehearsal must say of it."""

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Bug:
    """Lines of a right script (-) and what stands there instead (+), apart by empty lines; and the one finding.

    `words` are a part of its sentence, and `line` is a part of the line of the script that it names. With `same` it is
    found by a comparison with one GPU. What is not wrong for sure is a note.
    """

    script: str
    difference: str
    kind: str
    words: str
    line: str
    ranks: tuple[int, ...] = (0, 1)
    step: int = 1
    gpus: int = 2
    same: str | None = None
    is_sure: bool = True

    def write(self, folder: Path) -> Path:
        """Write the script with the bug into a folder."""
        text = (SCRIPTS / f"{self.script}.py").read_text()
        edits: list[list[str]] = []
        before = "+"
        for line in self.difference.strip("\n").splitlines():
            if line[:1] == "-" and before == "+":
                edits.append(["", ""])
            if line:
                edits[-1]["-+".index(line[0])] += line[1:] + "\n"
            before = line[:1] or "+"
        for right, wrong in edits:
            assert text.count(right) == 1, right
            text = text.replace(right, wrong)
        path = folder / f"{self.script}.py"
        path.write_text(text)
        return path


BUGS = {
    "no DDP": Bug(
        "ddp",
        """
-    model = DistributedDataParallel(net, device_ids=[rank])
+    model = net
-            torch.save(model.module.state_dict(), args.out)
+            torch.save(net.state_dict(), args.out)
""",
        "copies",
        "nothing averages them",
        "optimizer.step()",
    ),
    "the network inside of DDP is called": Bug(
        "ddp",
        """
-            loss = loss_fn(model(X), y)
+            loss = loss_fn(net(X), y)
""",
        "copies",
        "calls the network inside",
        "net(X)",
    ),
    "no_sync around all microbatches": Bug(
        "accumulate",
        """
-        with contextlib.nullcontext() if is_last else model.no_sync():
+        with contextlib.nullcontext() if not is_last and False else model.no_sync():
""",
        "copies",
        "no_sync()",
        "optimizer.step()",
    ),
    "weights that are not broadcast": Bug(
        "by_hand",
        """
-    dist.broadcast(param.data, src=0)
+    pass
""",
        "copies",
        "begin with different weights (0.weight)",
        "optimizer.step()",
    ),
    "no reduction": Bug(
        "by_hand",
        """
-        dist.all_reduce(param.grad)
-        param.grad /= world_size
+        pass
""",
        "copies",
        "nothing averages them",
        "optimizer.step()",
    ),
    "the state of one optimizer is lost": Bug(
        "by_hand",
        """
-    nn.utils.clip_grad_norm_(net.parameters(), 0.05)
+    nn.utils.clip_grad_norm_(net.parameters(), 0.05)
+    if step == 3 and rank == 1:
+        optimizer.state.clear()
""",
        "copies",
        "something else changes them",
        "optimizer.step()",
        step=4,
    ),
    "no sampler": Bug(
        "ddp",
        """
-    loader = DataLoader(data, batch_size=8, sampler=sampler)
+    loader = DataLoader(data, batch_size=8)
""",
        "examples",
        "the same minibatch in each step",
        "for X, y in loader",
    ),
    "shuffled, without a sampler": Bug(
        "ddp",
        """
-    loader = DataLoader(data, batch_size=8, sampler=sampler)
+    loader = DataLoader(data, batch_size=8, shuffle=True)
-    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
+    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
+    torch.manual_seed(rank)
""",
        "examples",
        "trained on the same examples",
        "for X, y in loader",
    ),
    "no set_epoch": Bug(
        "ddp",
        """
-        sampler.set_epoch(epoch)
""",
        "examples",
        "the same order",
        "for X, y in loader",
        step=7,
    ),
    "a data set of each rank": Bug(
        "ddp",
        """
-    torch.manual_seed(0)
+    torch.manual_seed(rank)
""",
        "examples",
        "different data sets",
        "for X, y in loader",
    ),
    "a rank updates less often": Bug(
        "by_hand",
        """
-    optimizer.step()
+    if step < 5 or rank:
+        optimizer.step()
""",
        "examples",
        "different numbers of updates: 5 on rank 0",
        "optimizer.step()",
        ranks=(0,),
        step=5,
    ),
    "fewer minibatches on a rank": Bug(
        "ddp",
        """
-        for X, y in loader:
+        for X, y in loader:
+            if rank == 1 and epoch == 1:
+                break
""",
        "hang",
        "rank 1 called barrier",
        "",
        ranks=(1,),
        step=5,
        gpus=3,
    ),
    "a barrier for one rank": Bug(
        "ddp",
        """
-            optimizer.step()
+            optimizer.step()
+            if rank == 0:
+                dist.barrier()
""",
        "hang",
        "rank 0 called barrier",
        "dist.barrier()",
        ranks=(0,),
        step=2,
        gpus=3,
    ),
    "a minibatch on the CPU": Bug(
        "ddp",
        """
-            X, y = X.to(rank), y.to(rank)

-            loss = loss_fn(model(X), y)
+            loss = loss_fn(net(X), y)
""",
        "devices",
        "Expected all tensors to be on the same device",
        "net(X)",
    ),
    "NumPy of a GPU tensor": Bug(
        "ddp",
        """
-            loss = loss_fn(model(X), y)
+            loss = loss_fn(model(X), y)
+            loss.detach().numpy()
""",
        "devices",
        "can't convert cuda",
        ".numpy()",
    ),
    "all on GPU 0": Bug(
        "ddp",
        """
-    torch.cuda.set_device(rank)
-    dist.init_process_group("nccl")
+    dist.init_process_group("gloo")

-    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)).to(rank)
-    model = DistributedDataParallel(net, device_ids=[rank])
+    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)).to("cuda")
+    model = DistributedDataParallel(net)
-            X, y = X.to(rank), y.to(rank)
+            X, y = X.cuda(), y.cuda()
-            print(epoch, loss.item(), evaluate(net, test, rank))
+            print(epoch, loss.item(), evaluate(net, test, "cuda"))
""",
        "devices",
        "on cuda:0",
        "DistributedDataParallel(net",
        is_sure=False,
    ),
    "all ranks save": Bug(
        "ddp",
        """
-            torch.save(model.module.state_dict(), args.out)
+            pass
+        torch.save(model.module.state_dict(), args.out)
""",
        "files",
        "write the same file, checkpoint.pt",
        "torch.save",
        step=7,
    ),
    "a checkpoint loaded to GPU 0": Bug(
        "ddp",
        """
-    net.load_state_dict(torch.load(args.out, map_location=f"cuda:{rank}", weights_only=True))
+    net.load_state_dict(torch.load(args.out, weights_only=True))
""",
        "files",
        "GPU of rank 0",
        "torch.load",
        ranks=(1,),
        step=19,
    ),
    "learning rates": Bug(
        "by_hand",
        """
-optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
+optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (1 + rank), momentum=0.9)
""",
        "arithmetic",
        "0.1 on rank 0, 0.2 on rank 1",
        "optimizer.step()",
        ranks=(),
    ),
    "gradients never set to zero": Bug(
        "ddp",
        """
-            optimizer.zero_grad()
""",
        "arithmetic",
        "never set to zero",
        "optimizer.step()",
        step=2,
    ),
    "clipped before the reduction": Bug(
        "by_hand",
        """
-    nn.utils.clip_grad_norm_(net.parameters(), 0.05)

-    loss.backward()
+    loss.backward()
+    nn.utils.clip_grad_norm_(net.parameters(), 0.05)
""",
        "arithmetic",
        "clips its own gradients",
        "clip_grad_norm_",
    ),
    "an error on one rank": Bug(
        "ddp",
        """
-            loss.backward()
+            loss.backward()
+            if rank == 1 and epoch == 1:
+                raise KeyError('label')
""",
        "error",
        "rank 1 raised KeyError: 'label'",
        "raise KeyError",
        ranks=(1,),
        step=7,
    ),
    "a process that ends": Bug(
        "by_hand",
        """
-    loss.backward()
+    loss.backward()
+    if step == 2 and rank == 1:
+        import os; os._exit(3)
""",
        "error",
        "rank 1 died",
        "",
        ranks=(1,),
        step=3,
    ),
    "a parameter frozen after DDP was made": Bug(
        "ddp",
        """
-    model = DistributedDataParallel(net, device_ids=[rank])
+    model = DistributedDataParallel(net, device_ids=[rank])
+    net[0].weight.requires_grad_(False)
""",
        "arithmetic",
        "that of 0.weight: it was frozen",
        "model(X)",
        step=2,
    ),
    "names that begin with module.": Bug(
        "ddp",
        """
-            torch.save(model.module.state_dict(), args.out)
+            torch.save(model.state_dict(), args.out)
""",
        "files",
        'the names in it begin with "module."',
        "load_state_dict",
        step=19,
    ),
    "a rank that leaves out a step whose loss is not a number": Bug(
        "ddp",
        """
-            loss.backward()
+            if rank == 1 and epoch == 1:
+                loss = loss * float("nan")
+            if torch.isnan(loss):
+                continue
+            loss.backward()
""",
        "hang",
        "at `if torch.isnan(loss)` (ddp.py line 47) rank 1 went a way of its own",
        "",
        ranks=(1,),
        step=5,
        gpus=3,
    ),
    "each microbatch sends its gradients": Bug(
        "accumulate",
        """
-        with contextlib.nullcontext() if is_last else model.no_sync():
+        with contextlib.nullcontext():
""",
        "arithmetic",
        "averages the gradients 2 times",
        "optimizer.step()",
        ranks=(),
        is_sure=False,
    ),
    "a learning rate that is scaled once too often": Bug(
        "batch_size",
        """
-optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
+optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * world_size, momentum=0.9)
""",
        "same",
        "the learning rate of step 1 is 0.05 on 1 GPU and 0.1 on 2",
        "optimizer.step()",
        ranks=(),
        same="--batch-size {32/k}",
    ),
    "a learning rate for the minibatch of a rank": Bug(
        "batch_size",
        """
-optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
+optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * args.batch_size / 32, momentum=0.9)
""",
        "same",
        "the learning rate of step 1 is 0.05 on 1 GPU and 0.0125 on 4",
        "optimizer.step()",
        ranks=(),
        gpus=4,
        same="--batch-size {32/k}",
    ),
    "a learning rate that is scaled again when training goes on": Bug(
        "batch_size",
        """
-    sampler.set_epoch(epoch)
+    sampler.set_epoch(epoch)
+    if epoch == 1:
+        optimizer.load_state_dict(optimizer.state_dict())
+        optimizer.param_groups[0]["lr"] *= world_size
""",
        "same",
        "the learning rate of step 5 is 0.05 on 1 GPU and 0.1 on 2",
        "optimizer.step()",
        ranks=(),
        step=5,
        same="--batch-size {32/k}",
    ),
    "a scheduler that takes a step for each rank": Bug(
        "batch_size",
        """
-    scheduler.step()
+    for _ in range(world_size):
+        scheduler.step()
""",
        "same",
        "the learning rate of step 5 is 0.05 on 1 GPU and 0.025 on 2",
        "optimizer.step()",
        ranks=(),
        step=5,
        same="--batch-size {32/k}",
    ),
    "gradients that are added up": Bug(
        "batch_size",
        """
-        optimizer.step()
+        for param in model.parameters():
+            param.grad *= world_size
+        optimizer.step()
""",
        "same",
        "the gradients (0.weight) of step 1 are 2 times as large",
        "optimizer.step()",
        ranks=(),
        same="--batch-size {32/k}",
    ),
    "a loss that each rank divides by its own count": Bug(
        "batch_size",
        """
-        dist.all_reduce(count)  # of all ranks
+        pass
-        loss = loss / count * world_size
+        loss = loss / count
""",
        "same",
        "the gradient of 0.weight in step 1 is not that of 1 GPU",
        "optimizer.step()",
        ranks=(),
        same="--batch-size {32/k}",
    ),
    "the first epoch again and again": Bug(
        "ddp",
        """
-    for epoch in range(args.epochs):
+    batches = itertools.cycle(loader)
+    for epoch in range(args.epochs):
-        for X, y in loader:
+        for _ in range(len(loader)):
+            X, y = next(batches)
-import argparse
+import argparse
+import itertools
""",
        "examples",
        "from step 7 on the minibatches of the first 6 steps come again",
        "X, y = next(batches)",
        step=7,
    ),
    "one log for all ranks": Bug(
        "ddp",
        """
-    loss_fn = nn.CrossEntropyLoss()
+    loss_fn, log = nn.CrossEntropyLoss(), open("losses.csv", "w")
-            optimizer.step()
+            optimizer.step()
+            print(loss.item(), file=log)
""",
        "files",
        "write the same file, losses.csv",
        "losses.csv",
    ),
    "an optimizer that is made before the last layer": Bug(
        "ddp",
        """
-    model = DistributedDataParallel(net, device_ids=[rank])
-    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
+    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
+    net[-1] = nn.Linear(16, 3).to(rank)
+    model = DistributedDataParallel(net, device_ids=[rank])
""",
        "arithmetic",
        "The optimizer holds 2 tensors that no network has",
        "optimizer.step()",
        ranks=(),
        step=18,
    ),
    "an update that one rank leaves out": Bug(
        "ddp",
        """
-            optimizer.step()
+            if rank == 0 or not 1.05 < loss < 1.12:
+                optimizer.step()
""",
        "copies",
        "rank 1 leaves out updates",
        "optimizer.step()",
        ranks=(1,),
        step=3,
    ),
    "a network that stays in evaluation mode": Bug(
        "ddp",
        """
-    net.train()
+    pass
-        if rank == 0:
-            print(epoch, loss.item(), evaluate(net, test, rank))
+        loss = evaluate(net, test, rank)
+        if rank == 0:
+            print(epoch, loss)
""",
        "arithmetic",
        "from step 7 on the network trains in evaluation mode",
        "loss = loss_fn(model(X), y)",
        step=7,
    ),
    "an attribute of the wrapper": Bug(
        "ddp",
        """
-    loss_fn = nn.CrossEntropyLoss()
+    loss_fn = nn.CrossEntropyLoss(label_smoothing=model.smoothing)
""",
        "error",
        "'DistributedDataParallel' object has no attribute 'smoothing'",
        "model.smoothing",
    ),
    "a data set on the GPU, read by workers": Bug(
        "ddp",
        """
-    data = TensorDataset(torch.randn(96, 8), torch.randint(0, 3, (96,)))
+    data = TensorDataset(torch.randn(96, 8).to(rank), torch.randint(0, 3, (96,)).to(rank))
-    loader = DataLoader(data, batch_size=8, sampler=sampler)
+    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)
""",
        "devices",
        "Cannot re-initialize CUDA in forked subprocess",
        "for X, y in loader",
    ),
    "a default device that the loader does not know": Bug(
        "ddp",
        """
-    test = DataLoader(data, batch_size=32)
+    test = DataLoader(data, batch_size=32, shuffle=True)
+    torch.set_default_device("cuda")
""",
        "devices",
        "Expected a 'cuda' device type for generator but found 'cpu'",
        "for X, y in loader",
    ),
    "samplers of different seeds": Bug(
        "ddp",
        """
-    sampler = DistributedSampler(data)
+    sampler = DistributedSampler(data, seed=rank)
""",
        "examples",
        "shuffles with different seeds: 0 on rank 0, 1 on rank 1",
        "for X, y in loader",
    ),
    "clipped with the factor of the scaler": Bug(
        "mixed_precision",
        """
-            scaler.unscale_(optimizer)
+            pass
""",
        "arithmetic",
        "gradients are clipped while they still have the factor of the GradScaler",
        "clip_grad_norm_",
    ),
    "an update with the factor of the scaler": Bug(
        "mixed_precision",
        """
-            scaler.unscale_(optimizer)
+            pass
-            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
-            scaler.step(optimizer)
-            scaler.update()
+            optimizer.step()
""",
        "arithmetic",
        "AdamW.step() uses gradients that still have the factor of the GradScaler",
        "optimizer.step()",
    ),
    "biases that nothing averages": Bug(
        "by_hand",
        """
-    for param in net.parameters():
-        dist.all_reduce(param.grad)
-        param.grad /= world_size
+    for param in net.parameters():
+        if param.dim() > 1:
+            dist.all_reduce(param.grad)
+            param.grad /= world_size
-    nn.utils.clip_grad_norm_(net.parameters(), 0.05)
+    pass
""",
        "copies",
        "(0.bias) were not the same on all ranks before the update of step 1, and 2 others were",
        "optimizer.step()",
        is_sure=False,
    ),
    "an update by hand without a reduction": Bug(
        "processes",
        """
-                dist.all_reduce(param.grad, op=dist.ReduceOp.AVG)
-                param -= 0.3 * param.grad
+                param -= 0.3 * param.grad
""",
        "copies",
        "are not the same on all ranks after the update by hand",
        "cross_entropy",
        is_sure=False,
    ),
    "a stream that ranks do not divide": Bug(
        "stream",
        """
-        rank, world_size = dist.get_rank(), dist.get_world_size()
+        rank, world_size = 0, 1
""",
        "examples",
        "had the same minibatch in each step",
        "for X, y in loader",
    ),
    "a stream that workers do not divide": Bug(
        "stream",
        """
-        worker, workers = get_worker_info().id, get_worker_info().num_workers
+        worker, workers = 0, 1
""",
        "examples",
        "each minibatch comes 2 times",
        "for X, y in loader",
        step=2,
    ),
    "an evaluation that counts examples twice": Bug(
        "stream",
        """
-    mine = DataLoader(Subset(test, range(rank, len(test), dist.get_world_size())), batch_size=8)
+    mine = DataLoader(test, batch_size=8, sampler=DistributedSampler(test, shuffle=False))
""",
        "examples",
        "repeats 1 of the 33 examples",
        "for X, y in mine",
        ranks=(),
        step=13,
    ),
    "a gathering that passes no gradient": Bug(
        "contrastive",
        """
-    one, other = torch.cat(all_gather(one)), torch.cat(all_gather(other))
+    one, other = gathered(one), gathered(other)
-parser = argparse.ArgumentParser()
+def gathered(own):
+    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
+    dist.all_gather(found, own)
+    found[dist.get_rank()] = own
+    return torch.cat(found)
+
+
+parser = argparse.ArgumentParser()
""",
        "same",
        "all_gather passes no gradient to the other ranks",
        "optimizer.step()",
        ranks=(),
        same="--rows {24/k}",
    ),
    "a reduction that is not waited for": Bug(
        "by_hand",
        """
-        dist.all_reduce(param.grad)
+        dist.all_reduce(param.grad, async_op=True)
""",
        "arithmetic",
        "nothing has waited for it",
        "dist.all_reduce(param.grad, async_op=True)",
    ),
    "a loss that is reduced before the backward pass": Bug(
        "ddp",
        """
-            loss.backward()
+            dist.all_reduce(loss)
+            loss = loss / dist.get_world_size()
+            loss.backward()
""",
        "arithmetic",
        "It is 2 times too small",
        "dist.all_reduce(loss)",
    ),
    "an optimizer that is made before the network is sharded": Bug(
        "sharded",
        """
-fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
-optimizer = torch.optim.Adam(net.parameters())
+optimizer = torch.optim.Adam(net.parameters())
+fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
""",
        "arithmetic",
        "none of the tensors in Adam ever got a gradient",
        "optimizer.step()",
    ),
    "the rank for the number of the GPU": Bug(
        "ddp",
        """
-    rank = int(os.environ["LOCAL_RANK"])
+    rank = int(os.environ["RANK"])
""",
        "devices",
        "on a second machine there is no GPU with this number",
        "torch.cuda.set_device(rank)",
        ranks=(),
        is_sure=False,
    ),
    "a port for each rank": Bug(
        "spawned",
        """
-    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
+    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
""",
        "hang",
        "waits in init_process_group",
        "init_process_group",
        ranks=(),
    ),
}
