"""Pipeline parallelism by hand: the network of one device, under any schedule, and torch.distributed.pipelining."""

from random import Random

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from d2lite.labs.chapter_15 import (
    TORCH_SCHEDULES,
    Pass,
    Stage,
    begin_send,
    gpipe,
    my_stage,
    one_f_one_b,
    parse_passes,
    pipeline_step,
    receive,
    run_passes,
    share_of_loss,
    torch_schedule,
)
from d2lite.profiling import Recorder, activations_held, recorded_collectives
from d2lite.transformer import Transformer
from tests.labs.chapter_15.schedules import random_schedule
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:[34] ranks share"),
]


pool = pool_of(2, 3, 4)
UNEVEN = {2: [3, 1], 3: [1, 3, 0], 4: [0, 2, 1, 1]}  # blocks; the first stage has the embedding, the last one the head


def make_net(width=24):
    return Transformer(width=width, num_blocks=4, num_heads=2, context=8, num_characters=13).double()


def batches(n=7, steps=4):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield tuple(torch.randint(0, 13, (2, n, 8), generator=generator))


def mean_loss(logits, y):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def alone():
    net, losses = make_net(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for X, y in batches():
        optimizer.zero_grad()
        loss = mean_loss(net(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return net, torch.stack(losses)


def sizes_of(is_even):
    return None if is_even else UNEVEN[dist.get_world_size()]


def on_rank(schedule, m, is_even):
    right, losses = alone()
    stage, mine = my_stage(make_net(), sizes=sizes_of(is_even)), []
    momenta = [torch.zeros_like(param) for param in stage.parameters()]
    for X, y in batches():
        mine.append(pipeline_step(stage, momenta, X, y, 0.1, schedule, m))
    expected = my_stage(right, sizes=sizes_of(is_even)).parameters()
    before = my_stage(make_net(), sizes=sizes_of(is_even)).parameters()
    apart, moved = [], []
    for param, theirs, old in zip(stage.parameters(), expected, before, strict=True):
        apart.append((param - theirs).abs().max().item())
        moved.append((param - old).abs().max().item())
    is_last = dist.get_rank() == dist.get_world_size() - 1
    losses_apart = (torch.stack(mine) - losses * is_last).abs().max().item()
    return max(apart), losses_apart, max(moved), all(param.grad is None for param in stage.parameters())


@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b])
@pytest.mark.parametrize("m", [1, 2, 4, 7])
def test_k_ranks_train_the_network_of_one(pool, m, schedule, is_even):
    for apart, losses_apart, moved, is_clear in pool.run(on_rank, schedule, m, is_even):
        assert apart < 1e-9 and losses_apart < 1e-9
        assert moved > 1e-3 and is_clear  # it has trained, and the next step begins without gradients


def gradients_apart(stage, expected):
    return max((p.grad - q.grad).abs().max().item() for p, q in zip(stage.parameters(), expected, strict=True))


def random_on_rank(seeds):
    X, y = next(batches())
    right = make_net()
    mean_loss(right(X), y).backward()
    rank, k, apart, orders = dist.get_rank(), dist.get_world_size(), [], set()
    for seed in seeds:
        random = Random(seed)
        m = random.randint(2, 7)
        passes = random_schedule(random, m, [*range(k)], split=False)[rank]
        sizes = random.choice([None, UNEVEN[k]])
        stage = my_stage(make_net(), sizes=sizes)
        run_passes(stage, passes, X, y, m)
        apart.append(gradients_apart(stage, my_stage(right, sizes=sizes).parameters()))
        orders.add(tuple(passes))
    return max(apart), len(orders)


def test_any_schedule_that_can_run_gives_the_gradient_of_one_device(pool):
    for apart, num_orders in pool.run(random_on_rank, range(25)):
        assert apart < 1e-9 and num_orders > 15


def more_microbatches_than_examples():
    X, y = next(batches(n=3))
    right, stage = make_net(), my_stage(make_net())
    right_loss = mean_loss(right(X), y)
    right_loss.backward()
    passes = one_f_one_b(dist.get_rank(), dist.get_world_size(), 5)
    loss = run_passes(stage, passes, X, y, 5)
    is_last = dist.get_rank() == dist.get_world_size() - 1
    return gradients_apart(stage, my_stage(right).parameters()), abs(loss - right_loss * is_last).item()


def test_a_microbatch_without_examples_adds_nothing(pool):
    for apart, losses_apart in pool.run(more_microbatches_than_examples):
        assert apart < 1e-9 and losses_apart < 1e-9


def twice_on_rank():
    X, y = next(batches())
    stage, passes = my_stage(make_net()), gpipe(dist.get_rank(), dist.get_world_size(), 2)
    run_passes(stage, passes, X, y, 2)
    first = [param.grad.clone() for param in stage.parameters()]
    run_passes(stage, passes, X, y, 2)
    return max((p.grad - 2 * grad).abs().max().item() for p, grad in zip(stage.parameters(), first, strict=True))


def test_gradients_are_added(pool):
    assert max(pool.run(twice_on_rank)) < 1e-9


def sends_on_rank():
    X, y = next(batches())
    stage, k, m, sent = my_stage(make_net().float()), dist.get_world_size(), 4, []

    def send_and_tell(tensor, to, microbatch, group):
        sent.append((to, microbatch, tuple(tensor.shape)))
        return begin_send(tensor, to, microbatch, group)

    with recorded_collectives() as calls:
        run_passes(stage, gpipe(dist.get_rank(), k, m), X, y, m, send=send_and_tell)
    return sent, [(call.name, call.sent_n_bytes) for call in calls]


def test_the_bytes_over_each_cut(pool):
    found = pool.run(sends_on_rank)
    cut_n_bytes = 7 * 8 * 24 * 4  # activations of a minibatch: pieces, places, width, bytes of a number
    k = len(found)
    for rank, (sent, calls) in enumerate(found):
        assert {name for name, _ in calls} == {"send"}
        assert sum(n_bytes for _, n_bytes in calls) == cut_n_bytes * ((rank < k - 1) + (rank > 0))
        right = [(rank + 1, i, (2 - (i == 3), 8, 24)) for i in range(4)] if rank < k - 1 else []
        left = [(rank - 1, i, (2 - (i == 3), 8, 24)) for i in range(4)] if rank > 0 else []
        assert sent == right + left
    assert sum(n_bytes for _, calls in found for _, n_bytes in calls) == 2 * cut_n_bytes * (k - 1)


def recorded_on_rank(schedule):
    X, y = next(batches())
    rank = dist.get_rank()
    passes, recorder = schedule(rank, dist.get_world_size(), 4), Recorder(rank)
    recorder.begin()
    run_passes(my_stage(make_net()), passes, X, y, 4, recorder=recorder)
    recorder.end()
    return [(one.kind, one.microbatch) for one in passes], recorder.steps[0]


@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b])
def test_a_recorder_gets_the_passes_in_their_order(pool, schedule):
    for rank, (passes, events) in enumerate(pool.run(recorded_on_rank, schedule)):
        assert {event.rank for event in events} == {rank}
        assert [event.kind for event in events[::2]] == ["wait"] * len(passes)
        assert [(event.kind, event.name) for event in events[1::2]] == [
            ({"F": "forward", "B": "backward"}[kind], f"{kind}{i}") for kind, i in passes
        ]
        assert all(one.end_s == then.start_s for one, then in zip(events, events[1:], strict=False))


def held_on_rank(schedule, m):
    """How many times the activations of one microbatch a rank has held, and the bytes that it holds afterwards."""
    stage, rank, k = my_stage(make_net(width=48)), dist.get_rank(), dist.get_world_size()
    X, y = next(batches(n=2 * m))  # of which the tokens are held as a whole: less than 1%
    held = []
    for passes, part, parts in ((gpipe(rank, k, 1), slice(2), 1), (schedule(rank, k, m), slice(None), m)):
        with activations_held(stage.parameters()) as found:
            run_passes(stage, passes, X[part].clone(), y[part].clone(), parts)
        held.append(found.most_n_bytes)
    return held[1] / held[0], found.now_n_bytes


@pytest.mark.parametrize("m", [1, 2, 6])
def test_the_activations_held_are_those_of_the_schedule(pool, m):
    gpipe_held, one_held = pool.run(held_on_rank, gpipe, m), pool.run(held_on_rank, one_f_one_b, m)
    k = len(gpipe_held)
    assert [held for held, _ in gpipe_held] == pytest.approx([m] * k, rel=0.01)
    assert [held for held, _ in one_held] == pytest.approx([min(k - rank, m) for rank in range(k)], rel=0.01)
    assert {now for _, now in gpipe_held + one_held} == {0}


def messages_on_rank():
    """The last rank receives what the first one has sent, in another order; rows of a transposed tensor among it."""
    k, whole = dist.get_world_size(), torch.arange(12.0).view(3, 4)
    if dist.get_rank() == 0:
        sent = [begin_send(whole.T[i : i + 2].requires_grad_(), k - 1, i) for i in range(3)]
        for work, _ in sent:
            work.wait()
        return True
    if dist.get_rank() == k - 1:
        found = {i: receive(torch.empty(2, 3), 0, i) for i in (2, 0, 1)}
        return all(torch.equal(found[i], whole.T[i : i + 2]) for i in range(3))
    return True


def test_a_message_belongs_to_its_microbatch(pool):
    assert all(pool.run(messages_on_rank))


def refused_on_rank(sizes, num_blocks):
    try:
        my_stage(Transformer(width=8, num_blocks=num_blocks), sizes=sizes)
    except ValueError as error:
        return str(error)


def test_stages_for_other_numbers_of_ranks(pool):
    k = len(pool.run(dist.get_rank))
    words = f"sizes: expected one for each of {k} ranks, got [1, 1, 1, 1, 1]."
    assert set(pool.run(refused_on_rank, [1] * 5, 5)) == {words}


def test_fewer_blocks_than_stages_between_the_ends(pool):
    k = len(pool.run(dist.get_rank))
    words = f"1 blocks in all, and at least one in each inner stage, got {[1, 0, 0, 0][:k]}."
    assert set(pool.run(refused_on_rank, None, 1)) == {f"sizes: expected {words}" if k > 2 else None}


@pytest.mark.parametrize("sizes", [[4], [1, 3], [0, 4], [4, 0], [0, 4, 0], [2, 1, 1]])
def test_the_stages_are_the_network(sizes):
    net = make_net()
    X, _ = next(batches())
    stages, activations = [Stage(net, i, sizes) for i in range(len(sizes))], X
    for i, stage in enumerate(stages):
        if i > 0:
            like = stage.empty_activations(X)
            assert (like.shape, like.dtype) == (activations.shape, activations.dtype)
        activations = stage(activations)
    assert torch.equal(activations, net(X))
    assert [id(param) for stage in stages for param in stage.parameters()] == [id(param) for param in net.parameters()]


@pytest.mark.parametrize(
    "sizes",
    [[1, 2], [5, -1], [2, 0, 2]],
)
def test_sizes_that_do_not_cut_the_network(sizes):
    words = f"sizes: expected 4 blocks in all, and at least one in each inner stage, got {sizes}."
    for i in range(len(sizes)):
        with pytest.raises(ValueError) as caught:
            Stage(make_net(), i, sizes)
        assert str(caught.value) == words


def test_shares_of_the_loss_add_up_to_the_mean():
    X, y = next(batches())
    logits = make_net()(X)
    parts = zip(logits.tensor_split(3), y.tensor_split(3), strict=True)
    assert abs(sum(share_of_loss(*part, len(y)) for part in parts) - mean_loss(logits, y)) < 1e-12


def by_torch(name, m):
    """A step by torch.distributed.pipelining: gradients and loss compared with one device's, and what has run."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import get_schedule_class

    ran = []

    class Watched(PipelineStage):
        def forward_one_chunk(self, fwd_chunk_id, *args, **kwargs):
            ran.append(Pass("F", self.stage_index, fwd_chunk_id))
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

        def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
            ran.append(Pass("B" if full_backward else "I", self.stage_index, bwd_chunk_id))
            return super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

        def backward_weight_one_chunk(self, bwd_chunk_id, *args, **kwargs):
            ran.append(Pass("W", self.stage_index, bwd_chunk_id))
            return super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)

    X, y = next(batches(n=2 * m))
    right = make_net()
    right_loss = mean_loss(right(X), y)
    right_loss.backward()
    rank, k = dist.get_rank(), dist.get_world_size()
    if TORCH_SCHEDULES[name] == 1:
        sizes, mine = [2, 2], [rank]
    else:
        sizes, mine = [1, 1, 1, 1], [rank, 2 * k - 1 - rank if "V" in name else rank + k]
    net = make_net()
    layers = [Stage(net, i, sizes) for i in mine]
    stages = [Watched(part, i, len(sizes), torch.device("cpu")) for part, i in zip(layers, mine, strict=True)]
    schedule = get_schedule_class(name)(stages if len(stages) > 1 else stages[0], m, loss_fn=mean_loss)
    losses = []
    if 0 in mine:
        schedule.step(X, target=y, losses=losses)
    else:
        schedule.step(target=y, losses=losses)
    apart = max(
        gradients_apart(part, Stage(right, i, sizes).parameters()) for part, i in zip(layers, mine, strict=True)
    )
    loss = torch.stack(losses).mean() if len(sizes) - 1 in mine else right_loss
    return apart, (loss - right_loss).abs().item(), ran


@pytest.mark.parametrize("pool", [2], indirect=True)
@pytest.mark.parametrize("name", TORCH_SCHEDULES)
def test_pytorchs_schedules_on_two_ranks(pool, name):
    found = pool.run(by_torch, name, 4)
    for apart, losses_apart, _ in found:
        assert apart < 1e-9 and losses_apart < 1e-9
    assert [ran for _, _, ran in found] == torch_schedule(name, 2, 4)


def passes_refused_on_rank(words):
    net = make_net()
    stage, (X, y) = my_stage(net), next(batches())
    try:
        run_passes(stage, parse_passes(words, dist.get_rank()), X, y, 2)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("words", ["F0 I0 W0", "7F0", "F2"])
def test_passes_that_are_not_those_of_the_rank(pool, words):
    for rank, said in enumerate(pool.run(passes_refused_on_rank, words)):
        got = next(str(one) for one in parse_passes(words, rank) if str(one) != f"{rank}F0")
        assert said == f"passes of rank {rank}: expected F and B of stage {rank}, microbatches 0 to 1, got {got}."


@pytest.mark.parametrize(
    ("words", "missing"),
    [("F0 B0", "F1 once, got it 0 times"), ("F0 F1 B0", "B1 once, got it 0"), ("F0 B0 F0 F1 B1", "F0 once, got it 2")],
)
def test_a_list_that_leaves_out_a_pass_or_has_it_twice(pool, words, missing):
    for rank, said in enumerate(pool.run(passes_refused_on_rank, words)):
        assert said.startswith(f"passes of rank {rank}: expected {missing}")
