"""Bugs of scripts: each is a difference from a right script in `scripts`, and what a rehearsal must say of it."""

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Bug:
    """Lines of a right script (-) and what stands there instead (+), apart by empty lines; and the one finding.

    `words` are a part of its sentence, and `line` is a part of the line of the script that it names.
    """

    script: str
    difference: str
    kind: str
    words: str
    line: str
    ranks: tuple[int, ...] = (0, 1)
    step: int = 1
    gpus: int = 2

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
}
