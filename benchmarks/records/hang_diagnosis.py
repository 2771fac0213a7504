"""How often is the diagnosis of a hang right? Random jobs of 2 to 4 real ranks, with faults that `train_job` has not.

`python -m benchmarks.records.hang_diagnosis --seed 1 --save NAME`. The loops below are ordinary training loops on gloo.
One rank has a fault, of a kind that is drawn, in a step that is drawn. The job's flight records go to the diagnosis,
which does not know the fault. `--keep FILE` keeps the records, and `--again FILE` diagnoses them once more.
"""

import argparse
import pickle
import queue
import random
import threading
import warnings
from collections import Counter
from pathlib import Path

from benchmarks.records.hanging_jobs import LOOPS, Plan, reduce_all
from benchmarks.report import command_line, keep, machine
from d2lite import Workers, WorkersError
from notebook_ranks import diagnose_hang

__all__ = ["FAULTS", "draw", "main", "run_all", "table", "verdict"]

TIMEOUT_S, MOST_S = 2, 30  # of a collective; of a job


EVERYWHERE = ("sleeps", "loops", "killed", "skips a minibatch", "one minibatch more", "one minibatch fewer",
              "different numbers of minibatches", "receives from nobody", "sends to nobody")  # fmt: skip
STEPS = {"uneven", "missing"}  # a step that is left out is also a collective that is left out
# {fault: the causes that are right}
FAULTS = {
    "leaves out a call": STEPS,  # it may be the only one of a step
    "leaves out a call in a sub-group": {"missing"},
    "leaves out the rare call": {"missing"},
    "leaves the evaluation out": {"missing"},
    "leaves the loop in the middle": {"missing", "uneven"},
    "goes on to the next step": {"missing"},
    "skips a minibatch": STEPS,
    "loss is not a number": STEPS,
    "one minibatch more": {"uneven"},
    "one minibatch fewer": STEPS,
    "different numbers of minibatches": {"uneven"},
    "returns early": STEPS,
    "catches an error": STEPS,
    "catches a late error": {"missing"},
    "an additional call": {"extra"},
    "an additional call in a sub-group": {"extra"},
    "only rank 0 evaluates": {"extra"},
    "calls one twice": {"extra"},
    "swaps two": {"order"},
    "swaps two, one line": {"order"},
    "swaps two groups": {"order"},
    "wrong size": {"size"},
    "wrong size in a line of its own": {"size"},
    "wrong type": {"dtype"},
    "wrong group": {"group"},
    "wrong source": {"unknown"},
    "wrong destination": {"unknown"},
    "wrong splits": {"unknown"},
    "receives from nobody": {"unknown"},
    "sends to nobody": {"unknown"},
    "leaves out a receive": {"unknown"},
    "leaves out a send": {"unknown"},
    "forgets to wait": {"missing"},
    "sleeps": {"elsewhere", "data"},
    "loops": {"elsewhere"},
    "killed": {"dead"},
}


def _faults_of(loop):
    """Return the faults that a loop can have: those whose names its code contains."""
    names = {text for code in (LOOPS[loop].__code__, *_called(loop)) for text in _texts(code)}
    return [fault for fault in FAULTS if fault in names or fault in EVERYWHERE]


def _called(loop):
    return [reduce_all.__code__] if loop == "helpers" else []


def _texts(code):
    return [text for const in code.co_consts for text in (const if isinstance(const, tuple) else (const,))]


def draw(seed, healthy=False):
    """Return the plan of a job, drawn with a seed; its kind of fault is drawn first, so that all kinds are as often."""
    rng = random.Random(f"{seed} {healthy}")
    numbers = {"steps": rng.randint(3, 7), "epochs": rng.choice((1, 1, 2)), "size": rng.randint(20, 400), "seed": seed}
    if healthy:
        kind = rng.choice(("noise", "noise", "slow everywhere", "quick"))
        numbers |= {"noise_s": 0.3 if kind == "noise" else 0.0, "slow_s": 0.15 if kind == "slow everywhere" else 0.0}
        return Plan(rng.choice(list(LOOPS)), rng.randint(2, 4), **numbers)
    fault = rng.choice(list(FAULTS))
    loop = rng.choice([loop for loop in LOOPS if fault in _faults_of(loop)])
    world_size = rng.randint(3 if loop == "two_levels" else 2, 4)
    rank = 0 if fault == "only rank 0 evaluates" else rng.randrange(world_size)
    last = numbers["steps"] * numbers["epochs"] - 1
    counts = ()
    if fault == "different numbers of minibatches":
        base = numbers["steps"]
        while len(set(counts)) < 2:
            counts = tuple(base - rng.choice((0, 0, 1, 2)) for _ in range(world_size))
    numbers["noise_s"] = rng.choice((0.0, 0.0, 0.02, 0.1))
    return Plan(loop, world_size, fault, rank, rng.randint(0, last), counts=counts, **numbers)


def guilty(plan):
    """Return the ranks that may be named: that of the fault; of different numbers those that few have."""
    if not plan.counts:
        return {plan.rank}
    common = Counter(plan.counts).most_common()
    if len(common) > 1 and common[0][1] > common[1][1]:
        return {r for r, n in enumerate(plan.counts) if n != common[0][0]}
    return set(range(plan.world_size))


def run_one(plan, pool):
    """Run a job on a pool; return (plan, whether it failed, its records, the rank that the message names)."""
    pool.run(len, "")  # starts the ranks
    timer = threading.Timer(MOST_S, pool.stop)
    timer.start()
    try:
        pool.run(LOOPS[plan.loop], plan)
        return plan, False, pool.flight_records(), None
    except WorkersError as error:
        return plan, True, error.records, error.rank
    finally:
        timer.cancel()


def run_all(plans, num_pools=2):
    """Yield (plan, failed, records, the rank that the message names) of each job; `num_pools` of them at a time."""
    due, done = queue.SimpleQueue(), queue.SimpleQueue()
    for plan in plans:
        due.put(plan)

    def work():
        pools = {}
        try:
            while True:
                plan = due.get_nowait()
                if plan.world_size not in pools:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # more ranks than cores
                        pools[plan.world_size] = Workers(plan.world_size, TIMEOUT_S)
                    pools[plan.world_size].backend = "gloo"
                try:
                    done.put(run_one(plan, pools[plan.world_size]))
                except BaseException as error:  # a job that was stopped, or a pool that did not start
                    done.put((plan, None, repr(error), None))
                if plan.fault:
                    pools.pop(plan.world_size).close()  # groups of a job stay in a pool
        except queue.Empty:
            pass
        finally:
            for pool in pools.values():
                pool.close()

    threads = [threading.Thread(target=work) for _ in range(num_pools)]
    for thread in threads:
        thread.start()
    for _ in plans:
        yield done.get(timeout=20 * MOST_S)
    for thread in threads:
        thread.join()


COLUMNS = ("right", "right rank, cause open", "unsure", "wrong rank", "wrong cause")


def verdict(plan, found):
    """Return one of COLUMNS for a diagnosis of a job: the last two are false accusations."""
    if not plan.fault:
        return "right" if not found.cause or found.rank is None else "wrong rank" if found.rank_is_sure else "unsure"
    if found.rank is None or not found.rank_is_sure:
        sure_nothing = found.is_sure and found.rank is None  # "nothing is wrong", of a job that failed
        return "wrong cause" if sure_nothing else "unsure"
    if found.rank not in guilty(plan):
        return "wrong rank"
    if not found.is_sure:
        return "right rank, cause open"
    return "right" if found.cause in FAULTS[plan.fault] else "wrong cause"


def table(jobs):
    """Return {fault: {column: how many}} of finished jobs, and the false accusations as lines."""
    counts, wrong = {}, []
    for plan, _, records, _ in jobs:
        found = diagnose_hang(records)
        kind = verdict(plan, found)
        counts.setdefault(plan.fault or "(healthy)", Counter())[kind] += 1
        if kind.startswith("wrong"):
            wrong.append(f"{kind}: {plan.loop}, {plan.world_size} ranks, {plan.fault} on rank {plan.rank}: {found}")
    return counts, wrong


def show(counts):
    """Print the table."""
    print(f"{'':34}" + "".join(f"{c:>24}" for c in COLUMNS))
    names = sorted(counts, key=lambda name: (name == "(healthy)", name))
    failed = sum((counts[n] for n in names if n != "(healthy)"), Counter())
    for name, row in [*((n, counts[n]) for n in names), ("all failed jobs", failed)]:
        print(f"{name:34}" + "".join(f"{row[c] or '.':>24}" for c in COLUMNS))


def main(argv=None):
    """Run the jobs, or read their records from a file; print the table, and keep it if a name is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.hang_diagnosis", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (1)")
    parser.add_argument("--failed", type=int, default=200, help="jobs that must fail (200)")
    parser.add_argument("--healthy", type=int, default=100, help="jobs without a fault (100)")
    parser.add_argument("--pools", type=int, default=2, help="jobs at a time (2)")
    parser.add_argument("--keep", metavar="FILE", help="keep the records in FILE, as a pickle")
    parser.add_argument("--again", metavar="FILE", help="diagnose the records in FILE, which you have kept, once more")
    parser.add_argument("--save", metavar="NAME", help="keep the table in benchmarks/results/NAME.json")
    args = parser.parse_args(argv)
    facts = machine()
    jobs = pickle.loads(Path(args.again).read_bytes()) if args.again else _jobs(args)
    counts, wrong = table(jobs)
    show(counts)
    print(*wrong, sep="\n")
    if args.save:
        found = {"jobs": "kept in a file by --keep, and diagnosed again from it"} if args.again else {}
        found |= {"seeds": sorted({job[0].seed // 1000 for job in jobs})}
        found |= {"failed": sum(bool(job[1]) for job in jobs), "healthy": sum(not job[0].fault for job in jobs)}
        found["by_fault"] = {name: dict(row) for name, row in sorted(counts.items())}
        command = command_line("benchmarks.records.hang_diagnosis", argv)
        for file in filter(None, (args.keep, args.again)):
            command = command.replace(file, Path(file).name)  # where it lies is of this machine only
        keep(args.save, command, facts, found)


def _jobs(args):
    """Run jobs until enough have failed; a fault that lets a job end (types that mix, for example) is not counted."""
    failed, healthy, first = [], [], 1000 * args.seed
    while len(failed) < args.failed:
        plans = [draw(first + i) for i in range(args.failed - len(failed))]
        first += len(plans)
        failed += [job for job in run_all(plans, args.pools) if job[1]]
        print(f"{len(failed)} failed jobs", flush=True)
        _keep(args.keep, failed)
    for job in run_all([draw(1000 * args.seed + i, healthy=True) for i in range(args.healthy)], args.pools):
        if job[1] is not False:
            print(f"a healthy job failed: {job[0]}: {str(job[2])[:300]}")
            continue
        healthy.append(job)
    jobs = failed[: args.failed] + healthy
    _keep(args.keep, jobs)
    return jobs


def _keep(file, jobs):
    if file:
        Path(file).write_bytes(pickle.dumps(jobs))


if __name__ == "__main__":
    main()
