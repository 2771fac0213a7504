"""Cases that only the grader uses: `python -m d2lite grade` draws them from the seed of the course.

They have the form of the exercise's own cases, {label: arguments}. This file is not handed out. An exercise without an
entry is graded on its own cases alone.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from d2lite.costs import Link

Cases = Mapping[str, Sequence[Any]]
Draw = Callable[[random.Random], Cases]


def _named(case: str, args: Sequence[Any]) -> Cases:
    return {f"{case} (drawn by the grader)": args}


def _data_bytes(r: random.Random) -> Cases:
    shapes = ((r.randint(2, 40), r.randint(2, 40), 3, 3), (r.randint(2, 99), r.randint(2, 99)), (r.randint(2, 99),))
    return {
        **_named("a few devices", (shapes, r.randint(2, 9))),
        **_named("many devices", (shapes[1:], r.randint(10, 99))),
    }


def _fewer_bytes(r: random.Random) -> Cases:
    c = 4 * r.randint(10, 999)
    return {
        **_named("the division leaves a remainder", (c * r.randint(2, 99) + r.randint(1, c - 1), c)),
        **_named("the division comes out even", (c * r.randint(2, 99), c)),
    }


def _parts(r: random.Random) -> Cases:
    widths = tuple(r.sample((1, 2, 3, 4, 5, 6, 7, 8), r.randint(2, 4)))
    return _named(f"parts of {list(widths)} inputs", (widths, r.randint(2, 6)))


def _mean_in_place(r: random.Random) -> Cases:
    k = r.randint(3, 7)
    return _named(f"{k} tensors", ((r.randint(2, 5), r.randint(2, 5)), k))


def _accuracy(r: random.Random) -> Cases:
    k = r.randint(2, 5)
    return _named(f"{k} devices", (k * r.randint(2, 4) + 1, k))


def _settings(r: random.Random) -> Cases:
    return _named("other settings", (r.choice((3, 5, 6, 7)), r.randint(9, 300), r.choice((0.01, 0.15, 0.7))))


def _prefix(r: random.Random) -> Cases:
    prefix = f"{r.choice(('wrapped', 'ddp', 'inner'))}{r.randint(1, 99)}."
    state = {f"{prefix}weight": 1, f"x.{prefix}bias": 2, f"{prefix}{prefix}a": 3, f"{prefix[:-1]}s.b": 4}
    return _named(f"the prefix {prefix}", (state, prefix))


def _replicas(r: random.Random) -> Cases:
    k = r.randint(5, 15)
    return _named(f"{k} replicas", (k, k * r.randint(3, 40)))


def _speeds(r: random.Random) -> Cases:
    speeds = tuple(float(r.randint(1, 9)) for _ in range(3))
    return _named(f"speeds {speeds}", (r.randint(60, 99), speeds))


def _sixteen(r: random.Random) -> Cases:
    return _named("another cluster", (32 * r.randint(5, 40), 2e-4, r.randint(1, 9) * 1.1e-3, r.randint(1, 9) * 0.7e-3))


def _butterfly(r: random.Random) -> Cases:
    return _named("more devices", (r.choice((32, 64)),))


def _border(r: random.Random) -> Cases:
    link = Link(r.randint(1, 99) * 1e-6, r.randint(1, 99) * 1e8)
    return _named("another link", (2 ** r.randint(2, 9), link))


def _owners(r: random.Random) -> Cases:
    k = r.randint(2, 4)
    return _named(f"{k} devices", (k, tuple(r.sample(range(1, 60), r.randint(4, 8)))))


def _rank_means(r: random.Random) -> Cases:
    return _named("other means", ([r.uniform(-5, 5) for _ in range(3)], [r.randint(1, 50) for _ in range(3)]))


def _ddp(r: random.Random) -> Cases:
    shapes = [[r.randint(1, 4)] if r.random() < 0.5 else [r.randint(1, 3), r.randint(1, 3)] for _ in range(5)]
    return _named("other gradients", (shapes, r.randint(3, 6)))


def _seeds(r: random.Random) -> Cases:
    return _named("another seed", (r.randint(2, 6), r.randint(2, 10**6)))


def _pieces(r: random.Random) -> Cases:
    p, times = r.randint(3, 20), r.randint(2, 9)
    return {
        **_named("equal pieces", (p, p * times)),
        **_named("a smaller piece at the end", (p, p * times + r.randint(1, p - 1))),
        **_named("one piece with room", (p * times + 1, p * times)),
        **_named("one piece more than half full", (2 * p + 1, 3 * p + 2)),
    }


def _loss(r: random.Random) -> Cases:
    return _named("another minibatch", (r.randint(7, 40),))


def _state(r: random.Random) -> Cases:
    kind, root = r.choice(("momentum", "Adam")), r.randint(0, 2)
    return _named(f"{kind}, root {root}", (kind, [r.randint(1, 4), r.randint(1, 4), 2], root))


def _every_nth(r: random.Random) -> Cases:
    n = r.randint(2, 5)
    return _named(f"n = {n}", ([r.randint(1, 3), r.randint(1, 3)], n))


def _bandwidth(r: random.Random) -> Cases:
    return _named("another network", (r.uniform(0.01, 3), r.randint(10**4, 10**8), r.randint(2, 20)))


def _checkpoints(r: random.Random) -> Cases:
    return _named("other times", (r.uniform(1, 90), r.uniform(5e3, 2e5)))


def _ring_hosts(r: random.Random) -> Cases:
    hosts = [i % 3 for i in range(r.randint(6, 12))]
    r.shuffle(hosts)
    return _named("GPUs on three hosts", tuple(hosts))


def _ways(r: random.Random) -> Cases:
    return _named("another step", (r.uniform(0.01, 1), r.randint(10**5, 10**8), r.uniform(1e6, 1e9)))


def _wait(r: random.Random) -> Cases:
    arrivals = [r.randint(0, 64) / 8 for _ in range(4)]
    return _named("four ranks", (arrivals, max(arrivals) + r.randint(1, 16) / 8))


def _minibatch(r: random.Random) -> Cases:
    return _named("other times", (r.randint(0, 9) / 8, 2.0 ** -r.randint(1, 6), r.randint(5, 99) / 16))


def _slowest(r: random.Random) -> Cases:
    low = r.uniform(0, 2)
    return _named("other ranks", (r.randint(3, 40), low, low + r.uniform(0.1, 2)))


def _buckets(r: random.Random) -> Cases:
    ready, send = [], []
    now = 0.0
    for _ in range(5):
        now += r.randint(0, 40) / 8
        ready.append(now)
        send.append(r.randint(1, 24) / 8)
    return _named("five buckets", (ready, send))


def _warm_up(r: random.Random) -> Cases:
    steps = r.randint(4, 20)
    return {
        **_named("inside the warm-up", (r.randint(1, steps - 1), r.uniform(0.01, 0.5), r.randint(2, 16), steps)),
        **_named("after it", (steps + r.randint(1, 9), r.uniform(0.01, 0.5), r.randint(2, 16), steps)),
    }


def _noise(r: random.Random) -> Cases:
    gradients = [[1 + r.uniform(-0.4, 0.4), 0.5 + r.uniform(-0.4, 0.4)] for _ in range(r.randint(3, 6))]
    return _named(f"{len(gradients)} devices", (gradients, r.randint(2, 64)))


def _together(r: random.Random) -> Cases:
    return _named("other tensors", ([[r.randint(1, 3), r.randint(1, 3)], [r.randint(1, 4)], [2, 1]], r.random() < 0.5))


def _statistics(r: random.Random) -> Cases:
    means, variances = [r.uniform(-9, 9) for _ in range(3)], [r.uniform(0.1, 9) for _ in range(3)]
    return _named("three shards", (means, variances, [r.randint(2, 40) for _ in range(3)]))


def _gradients(r: random.Random) -> Cases:
    sizes = [r.randint(1, 6), r.randint(2, 6), r.randint(1, 6)]
    generator = torch.Generator().manual_seed(r.randrange(2**32))
    X, grad = torch.randn(2, sum(sizes), generator=generator, dtype=torch.float64) + 0.5
    deviation = (X.var(correction=0) + 1e-5).sqrt().item()
    shards = list(grad.split(sizes)), list(((X - X.mean()) / deviation).split(sizes))
    return _named(f"shards of {sizes}", (*shards, deviation))


def _running(r: random.Random) -> Cases:
    numbers = [r.uniform(-5, 5), r.uniform(0.1, 5), r.uniform(-5, 5), r.uniform(0.1, 5)]
    return _named("another step", (*numbers, r.randint(2, 90), r.choice((0.05, 0.2, 0.7))))


def _factor(r: random.Random) -> Cases:
    k, n_i = r.randint(2, 6), r.randint(2, 20)
    n = n_i * k + r.randint(1, 9)
    return {**_named("a sum", (n_i, n, k, "sum")), **_named("a mean", (n_i, n, k, "mean"))}


def _drift(r: random.Random) -> Cases:
    def replica() -> list[torch.Tensor]:
        return [torch.tensor([r.randint(-40, 40) / 8 for _ in range(n)]) for n in (2, 3)]

    first, *others = [replica() for _ in range(r.randint(4, 6))]
    i, j = r.randint(1, len(others) - 2), r.randrange(3)  # neither the first nor the last of them
    others[i][1][j] = first[1][j] - 12 - r.randint(0, 9) / 8  # the largest difference is negative
    others[i - 1][1][j] = first[1][j] + 11  # on the other side of replica 0
    return {
        **_named(f"{len(others) + 1} replicas", ([first, *others],)),
        **_named("copies", ([[p.clone() for p in first] for _ in range(2)],)),
    }


def _calls(r: random.Random) -> Cases:
    common = [("all_reduce", r.randint(1, 99)) for _ in range(r.randint(2, 6))]
    other = [*common[:-1], ("broadcast", common[-1][1])]
    return {
        **_named("the last call differs", ([common, common, other],)),
        **_named("one rank ends early", ([common, common[: r.randint(0, len(common) - 1)], common],)),
    }


def _behind(r: random.Random) -> Cases:
    return _named("five ranks", ([r.randint(3, 9) for _ in range(5)],))


def _sharded_step(r: random.Random) -> Cases:
    return _named("other parameters", ([r.randint(1, 6) for _ in range(r.randint(2, 8))], r.randint(1, 30) / 100))


def _sharded_norm(r: random.Random) -> Cases:
    sizes = [r.randint(1, 3) for _ in range(r.randint(1, 3))]
    parts = [[[r.randint(-9, 9) / 2 for _ in range(size)] for size in sizes] for _ in range(3)]
    parts[0][0][0], parts[2][0][0] = 6.0, -3.5  # so that the norm is above 6.9
    return {**_named("a norm above the limit", (parts, r.randint(1, 6))), **_named("below", (parts, 99.0))}


def _row_parallel(r: random.Random) -> Cases:
    b, inputs, outputs = r.randint(2, 6), r.randint(4, 11), r.randint(2, 6)
    return _named(f"{b} examples, {inputs} inputs, {outputs} outputs", (b, inputs, outputs, r.randint(9, 10**6)))


def _vocabulary(r: random.Random) -> Cases:
    characters, places = r.randint(4, 11), r.randint(3, 8)
    tokens = [r.randrange(characters) for _ in range(places)]
    return _named(f"{places} of {characters} characters", (tokens, characters, r.randint(1, 4), r.randint(9, 10**6)))


def _attention(r: random.Random) -> Cases:
    n, keys, scale = r.randint(2, 5), r.randint(4, 11), float(r.randint(1, 800))
    return _named(f"{n} queries, {keys} keys", (n, keys, r.randint(2, 4), scale, r.randint(9, 10**6)))


def _tokens(r: random.Random) -> Cases:
    num_experts = r.randint(4, 9)
    experts = [[r.randrange(num_experts) for _ in range(r.randint(2, 9))] for _ in range(3)]
    return _named(f"{num_experts} experts", (experts, r.randint(1, 4)))


def _held(r: random.Random) -> Cases:
    """Return passes of one rank in which microbatches go backward in one pass or in two, some of them early."""
    m, passes, running, waiting = r.randint(11, 15), [], [], []
    for i in range(m):
        passes.append(f"F{i}")
        running.append(i)
        while running and (r.random() < 0.4 or i == m - 1):
            first = running.pop(0)
            halves = r.random() < 0.5
            passes.append(f"{'I' if halves else 'B'}{first}")
            waiting += [first] * halves
            if waiting and r.random() < 0.5:
                passes.append(f"W{waiting.pop(0)}")
    return _named(f"{m} microbatches", ([*passes, *(f"W{i}" for i in waiting)],))


def _pipeline(r: random.Random) -> Cases:
    sizes = [r.randint(1, 4) for _ in range(r.randint(2, 4))]
    sizes.append(sizes[0] + 1)  # so that they differ
    return _named(f"microbatches of {sizes}", (sizes, r.randint(2, 4), r.randint(9, 10**6)))


def _mesh_groups(r: random.Random) -> Cases:
    shape = tuple(r.randint(2, 6) for _ in range(3))
    i, size = r.randrange(3), shape[0] * shape[1] * shape[2]
    flat = (*shape[:i], 1, *shape[i:])
    return {
        **_named(f"the shape {shape}", (shape, r.randrange(1, size - 1))),
        **_named(f"the shape {flat}", (flat, r.randrange(size))),
    }


def _best_mesh(r: random.Random) -> Cases:
    n, heads = r.choice((12, 18, 20, 24, 36, 60)), r.choice((4, 6, 8, 12))
    params, state, activations = (r.randint(1, 40) * 1e10 for _ in range(3))
    tensor = r.choice([t for t in range(1, heads + 1) if n % t == 0 and heads % t == 0])
    limit = params / tensor + state / n + activations / tensor  # what a mesh with pipe = 1 holds
    cost_s = (8.0, *(r.randint(1, 32) / 8 for _ in range(3)))
    args = (n, r.randint(2, 9), heads, (params, state, activations), cost_s)
    return {**_named(f"{n} ranks", (*args, limit)), **_named(f"{n} ranks, no mesh fits", (*args, state / n))}


def _hidden(r: random.Random) -> Cases:
    k, flops, link = r.randint(2, 200), r.randint(10, 900) * 1e12, r.randint(2, 400) * 1e9
    return _named(f"{k} ranks", (k, flops, link))


FRESH: dict[str, Draw] = {
    "1.1": _data_bytes,
    "1.2": _fewer_bytes,
    "1.3": _parts,
    "2.1": _mean_in_place,
    "2.2": _accuracy,
    "2.3": _settings,
    "3.1": _prefix,
    "3.2": _replicas,
    "3.3": _speeds,
    "3.4": _sixteen,
    "4.1": _butterfly,
    "4.2": _border,
    "4.3": _owners,
    "5.1": _rank_means,
    "5.2": _ddp,
    "5.3": _seeds,
    "5.4": _pieces,
    "6.1": _loss,
    "6.2": _state,
    "6.3": _every_nth,
    "6.4": _together,
    "7.1": _bandwidth,
    "7.2": _checkpoints,
    "7.3": _ring_hosts,
    "7.4": _ways,
    "8.1": _wait,
    "8.2": _minibatch,
    "8.3": _slowest,
    "8.4": _buckets,
    "9.2": _warm_up,
    "9.3": _noise,
    "10.1": _statistics,
    "10.2": _gradients,
    "10.3": _running,
    "11.1": _factor,
    "11.2": _drift,
    "12.1": _calls,
    "12.2": _behind,
    "13.1": _sharded_step,
    "13.2": _sharded_norm,
    "14.1": _row_parallel,
    "14.2": _vocabulary,
    "15.1": _held,
    "15.2": _pipeline,
    "16.1": _mesh_groups,
    "16.2": _best_mesh,
    "16.3": _hidden,
    "17.1": _attention,
    "17.2": _tokens,
}
