"""What scripts on two ranks ask of GPUs; `test_pretend_gpus.py` runs this file under torchrun, and with spawn."""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


def refused(call):
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as error:
        return str(error)
    return "nothing was refused"


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).double()


def equal_to_one_device(net, mine, whole):
    """Train `net` on a rank's part, and a copy on all examples, and return the largest difference of parameters."""
    copy = small_net().to(whole.device)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (net, copy)]
    for _ in range(3):
        for module, optimizer, X in zip((net, copy), optimizers, (mine, whole), strict=True):
            optimizer.zero_grad()
            module(X).pow(2).mean().backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
    pairs = zip(net.parameters(), copy.parameters(), strict=True)
    return max(((p.full_tensor() if isinstance(p, DTensor) else p) - q).abs().max().item() for p, q in pairs)


def sync_batchnorm(rank, X):
    """Two ranks with unequal shards, in two steps: outputs, gradients and running statistics of all examples."""
    torch.manual_seed(1)
    whole = torch.randn(10, 3, 4, 2, dtype=torch.float64).to(rank)  # 10 examples, 3 channels
    mine = whole.tensor_split([4])[rank]
    one, synced = (nn.BatchNorm2d(3).double().to(rank) for _ in range(2))
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(synced)
    for _ in range(2):
        inputs = [X.clone().requires_grad_() for X in (whole, mine)]
        outputs = [net(X) for net, X in zip((one, synced), inputs, strict=True)]
        for out in outputs:
            out.pow(3).sum().backward()
        for right, found in (outputs, [X.grad for X in inputs]):
            assert (right.tensor_split([4])[rank] - found).abs().max() < 1e-12 and found.device.index == rank
    for right, found in zip(one.buffers(), synced.buffers(), strict=True):
        assert (right - found).abs().max() < 1e-12
    for right, found in zip(one.parameters(), synced.parameters(), strict=True):
        dist.all_reduce(found.grad)
        assert (right.grad - found.grad).abs().max() < 1e-10


def ddp(rank, X):
    """As many scripts do: no set_device, the number of the rank in place of a device."""
    net = DistributedDataParallel(small_net().to(rank), device_ids=[rank])
    assert equal_to_one_device(net, X.chunk(2)[rank], X.to(rank)) < 1e-12  # DDP moves what is on the CPU
    file = Path(tempfile.gettempdir()) / f"checkpoint-{os.environ['MASTER_PORT']}.pt"
    if rank == 0:
        torch.save(net.module.state_dict(), file)
    dist.barrier(device_ids=[rank])
    found = torch.load(file, map_location={"cuda:0": f"cuda:{rank}"})
    assert {t.device for t in found.values()} == {torch.device("cuda", rank)}
    dist.barrier()
    if rank == 0:
        file.unlink()


def collectives(rank):
    total = torch.ones(2).cuda(rank)
    dist.all_reduce(total)
    names = [None, None]
    dist.all_gather_object(names, f"rank {rank}")
    assert total.tolist() == [2, 2] and names == ["rank 0", "rank 1"] and dist.get_backend() == "nccl"
    assert "device type cpu" in refused(lambda: dist.all_reduce(torch.ones(1)))
    for pending in (False, True):
        mean = torch.tensor([3 * rank, -3 * rank, 4], device=rank)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG, async_op=pending)
        assert mean.tolist() == [1, -1, 4]  # NCCL cuts off towards zero
    part, images = torch.empty(1, device=rank), torch.ones(1, 3, 2, 2, device=rank)
    dist.all_reduce(images.contiguous(memory_format=torch.channels_last))
    for message, call in {
        "input tensor must be the same type": lambda: dist.reduce_scatter_tensor(part.half(), total),
        "same size as output size times world size": lambda: dist.reduce_scatter_tensor(total, total),
        "AVG with boolean inputs": lambda: dist.all_reduce(total > 0, op=dist.ReduceOp.AVG),
        "must be contiguous": lambda: dist.all_reduce(images.transpose(1, 2)),
        "must be CUDA and dense": lambda: dist.broadcast(total.to_sparse(), 0),
    }.items():
        assert message in refused(call), message
    alone = dist.new_group([0])
    assert (
        dist.get_backend(alone) == "nccl"
        if rank == 0
        else "Invalid process" in refused(lambda: dist.get_backend(alone))
    )
    dist.all_gather_into_tensor(torch.empty(2, device=rank), total, group=alone)  # nothing on the other rank
    net = nn.BatchNorm1d(2).to(rank)
    net.running_mean = torch.zeros(2)
    assert "device type cpu" in refused(lambda: DistributedDataParallel(net, device_ids=[rank]))
    DistributedDataParallel(net, device_ids=[rank], broadcast_buffers=False)
    gathered = [torch.empty(2), torch.empty(2)]
    dist.all_gather(gathered, total + rank)
    assert [part.tolist() for part in gathered] == [[2, 2], [3, 3]]  # copied to the CPU
    unequal_parts(rank)
    other = torch.ones(1, device=f"cuda:{1 - rank}")
    assert f"rank {1 - rank} and rank {rank} both on CUDA device {1 - rank}" in refused(lambda: dist.all_reduce(other))


def unequal_parts(rank):
    """What gloo does not send, and NCCL does."""
    mine = [torch.full((n,), rank, device=rank) for n in (1, 2)]
    found = [torch.empty(rank + 1, dtype=torch.long, device=rank) for _ in range(2)]
    dist.all_to_all(found, mine)
    assert [part.tolist() for part in found] == [[0] * (rank + 1), [1] * (rank + 1)]
    whole = torch.empty(3, dtype=torch.long, device=rank)
    dist.all_gather(list(whole.split([1, 2])), mine[rank], async_op=True).wait()
    assert whole.tolist() == [0, 1, 1]
    stacked = torch.empty(2, 2, 1, dtype=torch.long, device=rank)
    dist.all_gather_into_tensor(stacked, mine[1])
    assert stacked.tolist() == [[[0], [0]], [[1], [1]]]
    dist.reduce_scatter_tensor(whole[:2], stacked)
    assert whole[:2].tolist() == [2 * rank] * 2
    ops = [dist.P2POp(kind, x, peer) for peer in (0, 1) for kind, x in ((dist.isend, mine[0]), (dist.irecv, whole))]
    ops[1].tensor, ops[3].tensor = whole[:1], whole[1:2]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert whole[:2].tolist() == [0, 1]
    with dist._coalescing_manager(device=torch.device("cuda", rank), async_ops=True) as pending:
        dist.all_reduce(mine[0])
        dist.all_reduce(mine[1])
    pending.wait()
    assert mine[0].tolist() == [1] and mine[1].tolist() == [1, 1]
    got = torch.zeros(2, dtype=torch.long, device=rank)
    with dist._coalescing_manager(device=torch.device("cuda", rank)):
        dist.isend(mine[1], 1 - rank)
        dist.irecv(got, 1 - rank)
    assert got.tolist() == [1, 1]
    assert "must be contiguous" in refused(lambda: dist.all_to_all([got, stacked[:, 0, 0]], [got, got]))
    loss = torch.ones(1, 1, device=rank, requires_grad=True)
    loss.backward()  # its gradient is made on its GPU
    assert loss.grad.device.index == rank


def sharded(rank, X):
    torch.cuda.set_device(rank)
    mesh = init_device_mesh("cuda", (2,))
    net = small_net()
    fully_shard(net[0], mesh=mesh)
    fully_shard(net)  # the mesh of all GPUs
    assert equal_to_one_device(net, X.cuda().chunk(2)[rank], X.cuda()) < 1e-12
    assert {(p.device, p.to_local().device) for p in net.parameters()} == {(torch.device("cuda", rank),) * 2}
    whole = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert len(whole) == (4 if rank == 0 else 0) and all(t.device.type == "cpu" for t in whole.values())
    with torch.device("meta"):
        empty = nn.Linear(4, 8)
    fully_shard(empty, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    empty.to_empty(device="cuda")
    empty.reset_parameters()
    parts = empty.weight.full_tensor().detach().chunk(2)
    assert not torch.equal(*parts) and parts[0].std() > 0.1  # each shard has its own numbers
    assert empty(X.float().cuda()).dtype == torch.bfloat16
    product = distribute_tensor(X.cuda(), mesh, [Shard(0)]) @ distribute_tensor(X.T.cuda(), mesh, [Shard(1)])
    torch.testing.assert_close(product.full_tensor(), (X @ X.T).cuda())


def spawned(rank, shared, port):
    """What mp.spawn starts: a tensor on a GPU is the same memory in both processes."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=device)
    assert shared.device == torch.device("cuda", 1) and torch.cuda.device_count() == 2
    shared[rank] += 1 + rank
    dist.barrier()
    assert shared.tolist() == [1, 2]
    dist.destroy_process_group()


def main():
    if "RANK" not in os.environ:
        shared = torch.zeros(2, device="cuda:1")
        mp.spawn(spawned, args=(shared, int(sys.argv[1])), nprocs=2)
        assert shared.tolist() == [1, 2]
        return
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl")
    X = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sync_batchnorm(rank, X)
    ddp(rank, X)
    collectives(rank)
    sharded(rank, X)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
