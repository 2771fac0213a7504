"""The rules on orders, tensors, files, scalers and samplers that differ, on made-up observations."""

from dataclasses import replace

import pytest

from ddp_rehearsal.observations import (
    Clipped,
    Drawn,
    Ended,
    Evaluated,
    JoinBegins,
    Loaded,
    LoaderBegins,
    LossReduced,
    LostAttributes,
    NothingLoaded,
    NotWaited,
    Opened,
    Reduced,
    Saved,
    Scheduled,
    State,
    UnusedTensors,
)
from ddp_rehearsal.rules.collectives import (
    gathered_without_gradient,
    loss_reduced_before_backward,
    not_waited_for,
    reductions_in_another_order,
)
from ddp_rehearsal.rules.copies import (
    are_copies,
    copies,
    left_out_updates,
    unlike_at_the_end,
    unlike_buffers,
    unlike_when_evaluated,
)
from ddp_rehearsal.rules.devices import rank_as_gpu
from ddp_rehearsal.rules.examples import (
    copies_of_workers,
    left_out_alone,
    padded_evaluation,
    same_order_again,
    sampler_seeds,
    uneven_loaders,
)
from ddp_rehearsal.rules.files import nothing_loaded, one_file, one_log_folder, read_too_early
from ddp_rehearsal.rules.gradients import (
    clipped_in_parts,
    clipped_while_scaled,
    left_over_minibatches,
    lost_gradients,
    scaled_updates,
)
from ddp_rehearsal.rules.networks import left_in_evaluation_mode, lost_attributes, same_random_numbers
from ddp_rehearsal.rules.optimizers import not_held, scheduled_for_all_ranks, too_many_steps_of_a_scheduler
from ddp_rehearsal.rules.side_by_side import aligned
from packages.ddp_rehearsal.tests.test_rules import HERE, forward, prints, ranks, the_one, update

LOOP = """for X, y in loader:
    step(X, y)
"""


def begins(**facts):
    return LoaderBegins(
        1, HERE, **{"loader": 0, "epoch": 0, "sampler": "DistributedSampler", "shuffles": True, **facts}
    )


def there(line):
    return "train.py", line, "main"


# copies


def test_updates_are_matched_by_the_backward_passes_before_them():
    first = [update(step, passes=step) for step in (1, 2, 3)]
    second = [update(step, passes=n) for step, n in ((1, 1), (2, 3))]  # it leaves out what follows the second pass
    assert [[u.passes for u in of] for of in aligned([first, second])] == [[1, 1], [3, 3]]
    own = [update(step, passes=5 * step) for step in (1, 2)]
    assert [[u.passes for u in of] for of in aligned([first, own])] == [[1, 5], [2, 10]]  # by their numbers


def test_an_update_that_one_rank_leaves_out():
    all_of_them = [update(step, passes=step, group=(0, 1)) for step in (1, 2, 3, 4)]
    apart = [replace(u, weights=prints(w=[9, 8.0], b=7)) for u in all_of_them]
    fewer = [all_of_them[0], replace(apart[2], step=2), replace(apart[3], step=3)]
    finding = the_one(left_out_updates(ranks(all_of_them, fewer)))
    assert finding.is_sure and (finding.ranks, finding.step) == ((1,), 2)
    assert "4 on rank 0, 3 on rank 1" in finding.words
    assert copies(ranks(all_of_them, fewer)) == []  # one cause, one finding
    assert left_out_updates(ranks(all_of_them, all_of_them[:3])) == []  # it has not come so far
    more_passes = [all_of_them[0], *(replace(all_of_them[i], passes=i + 2) for i in (1, 2))]
    assert left_out_updates(ranks(all_of_them, more_passes)) == []  # the weights are equal: it made a pass of its own
    twos, threes = ([update(s, passes=n * s, group=(0, 1)) for s in (1, 2, 3)] for n in (2, 3))
    assert left_out_updates(ranks(twos, threes)) == []  # each accumulates as it likes


def test_a_join_gives_ranks_different_numbers_of_updates():
    def run(n):
        rows = [(0, JoinBegins(1, HERE))] + [(0, update(s, passes=s, joins=1, group=(0, 1))) for s in range(1, n + 1)]
        later = [(0, update(n + s, prints(w=s), prints(w=s), passes=s, joins=2, group=(0, 1))) for s in (1, 2)]
        return [one for _, one in [*rows, *later]]

    observed = ranks(run(4), run(3))
    assert left_out_updates(observed) == [] and copies(observed) == [] and are_copies(observed)
    stale = run(3)[:-2] + [replace(u, weights=prints(w=9.0)) for u in run(3)[-2:]]
    note = the_one(copies(ranks(run(4), stale)))
    assert not note.is_sure and "in a Join" in note.words


def state(**facts):
    return State(3, HERE, **{"model": 0, "name": "Net", "params": prints(w=1), "group": (0, 1), **facts})


def test_weights_that_no_optimizer_holds_are_compared_at_the_end():
    at = [[update(1), update(2), state(params=prints(w=1, own=r))] for r in (1, 2)]
    finding = the_one(unlike_at_the_end(ranks(*at)))
    assert finding.is_sure and "own of Net differs" in finding.words
    assert unlike_at_the_end(ranks(at[0], at[0])) == []
    shorter = [at[1][0], at[1][2]]
    assert unlike_at_the_end(ranks(at[0], shorter)) == []  # at different updates
    alone = [[*of[:2], replace(of[2], group=())] for of in at]
    assert not the_one(unlike_at_the_end(ranks(*alone))).is_sure


def test_buffers_that_differ_are_noted():
    def run(rank, name, **facts):
        return [update(1), state(buffers=prints(**{name: rank}), **facts)]

    note = the_one(unlike_buffers(ranks(run(1, "codebook"), run(2, "codebook"))))
    assert "codebook" in note.words and not note.is_sure
    assert unlike_buffers(ranks(run(1, "bn_running_mean"), run(2, "bn_running_mean"))) == []
    sent = {"syncs_buffers": True}
    assert unlike_buffers(ranks(run(1, "codebook", **sent), run(2, "codebook", **sent))) == []


@pytest.mark.parametrize("left", [("w",), ()])
def test_what_came_after_ddp_was_made_is_named(left):
    def run(rank):
        apart = update(2, prints(w=[rank, 1], b=1), prints(w=[rank, 9], b=1), group=(0, 1))
        return [update(1, group=(0, 1)), apart, state(not_averaged=left)]

    finding = the_one(copies(ranks(run(1), run(2))))
    assert finding.is_sure and ("this came later" in finding.words) == bool(left)


def test_updates_by_hand_are_compared():
    def run(rank):
        facts = {"closure": True, "group": (), "optimizer": -1, "name": "by hand"}
        divided = [begins(), forward(1, f"{rank}", loader=0)]
        return [*divided, replace(update(1, {}, prints(w=rank)), **facts)]

    finding = the_one(copies(ranks(run(1), run(2))))
    assert finding.is_sure and "are not the same on all ranks after the update by hand" in finding.words


# examples


def epochs(period, n, **facts):
    rows = [forward(step, f"{(step - 1) % period} a", f"{(step - 1) % period} b", loader=0) for step in range(1, n + 1)]
    return [begins(**facts), *rows]


def test_minibatches_that_come_again_in_the_same_order():
    run = epochs(4, 8, num_batches=4)
    finding = the_one(same_order_again(ranks(run, run)))
    assert (finding.step, finding.is_sure) == (5, True) and "keeps the first one" in finding.repair
    assert not the_one(same_order_again(ranks(epochs(4, 8, num_batches=9)))).is_sure  # a part, perhaps on purpose
    assert same_order_again(ranks(epochs(8, 8))) == []
    assert same_order_again(ranks(epochs(4, 8, shuffles=False))) == []  # nobody wants another order
    assert same_order_again(ranks(epochs(1, 8))) == []  # made up


def test_each_worker_reads_all():
    def run(times, drawn=1, **facts):
        rows = [forward(step, f"{(step - 1) // times}", loader=0) for step in range(1, 9)]
        updates = [update(step, minibatches=drawn) for step in (1, 2)]
        return [begins(**{"iterable": True, "workers": 2, "sampler": "_Infinite", **facts}), *rows, *updates]

    finding = the_one(copies_of_workers(ranks(run(2), run(2))))
    assert "comes 2 times" in finding.words and "get_worker_info" in finding.repair
    assert copies_of_workers(ranks(run(2, drawn=0))) == []  # two updates for each minibatch
    assert copies_of_workers(ranks(run(1))) == [] and copies_of_workers(ranks(run(2, iterable=False))) == []


def test_samplers_of_different_seeds():
    def run(seed, **facts):
        return [begins(**{"seed": seed, "parts": 2, **facts}), forward(1, f"{seed}", loader=0)]

    assert "1 on rank 0, 2 on rank 1" in the_one(sampler_seeds(ranks(run(1), run(2)))).words
    assert sampler_seeds(ranks(run(1), run(1))) == []
    assert sampler_seeds(ranks(*(run(seed) for seed in (1, 1, 2, 2)))) == []  # a seed for each pair of ranks
    assert sampler_seeds(ranks(run(1, shuffles=False), run(2, shuffles=False))) == []


@pytest.mark.parametrize(
    ("loop", "is_sure"),
    [
        (LOOP, True),
        (LOOP + "    if done:\n        break\n", False),
        ("def endless():\n  while True:\n    for X in loader:\n      yield X\n", False),
        ("for X in islice(loader, 3):\n    step(X)\n", False),
    ],
)
def test_epochs_of_different_lengths(tmp_path, loop, is_sure):
    script = tmp_path / "train.py"
    script.write_text(loop)
    line = next(i for i, text in enumerate(loop.splitlines(), 1) if text.lstrip().startswith("for"))

    def run(n, *more):
        place = (str(script), line, "main")
        return [
            replace(begins(num_batches=n), place=place),
            forward(1, f"{n}", loader=0),
            update(1, group=(0, 1)),
            *more,
        ]

    finding = the_one(uneven_loaders(ranks(run(8), run(7))))
    assert finding.ranks == (1,) and finding.is_sure is is_sure and "8 on rank 0, 7 on rank 1" in finding.words
    assert uneven_loaders(ranks(run(8), run(8))) == []
    assert uneven_loaders(ranks(run(8, JoinBegins(1, HERE)), run(7))) == []
    ended = Ended(9, None, "returned")
    assert uneven_loaders(ranks(run(8, ended), run(7, ended))) == []  # and none has waited
    assert the_one(uneven_loaders(ranks(run(8), run(7, ended)))).is_sure is is_sure
    alone = [replace(forward(s, "a", loader=0), syncs=False) for s in (1, 2)]
    fours = [update(s, group=(0, 1), minibatches=4) for s in (2, 3)]
    assert uneven_loaders(ranks(run(11, *alone, *fours), run(9, *alone, *fours))) == []  # two updates on both ranks
    assert uneven_loaders(ranks(run(12, *alone, *fours), run(9, *alone, *fours))) != []


def test_streams_of_different_lengths():
    def run(n):
        epochs = [begins(iterable=True, sampler="_Infinite"), begins(iterable=True, sampler="_Infinite", epoch=1)]
        second = replace(epochs[1], step=n + 1)
        return [epochs[0], forward(1, f"{n}", loader=0), *(update(s, minibatches=1) for s in (1, 2)), second]

    assert "10 on rank 0, 5 on rank 1" in the_one(uneven_loaders(ranks(run(10), run(5)))).words
    assert uneven_loaders(ranks(run(10), run(5)[:-1])) == []  # the second epoch was not seen


def test_a_backward_pass_that_one_rank_leaves_out():
    def run(r, *more, **facts):
        drawn = {one.step for one in more}
        steps = [
            [
                forward(s, f"{r} {s}", in_ddp=True),
                update(s, **{"group": (0, 1), "minibatches": 1 + (s in drawn), **facts}),
            ]
            for s in (1, 2, 3)
        ]
        return [*more, *(one for of in steps for one in of)]

    skipped = forward(2, "nan", in_ddp=True)
    note = the_one(left_out_alone(ranks(run(0), run(1, skipped))))
    assert note.ranks == (1,) and note.step == 2 and "2 times in step 2, and others 1:" in note.words
    assert left_out_alone(ranks(run(0), run(1))) == []
    both = the_one(left_out_alone(ranks(run(0, replace(skipped, step=3)), run(1, skipped))))  # each in its turn
    assert (both.ranks, both.step) == ((1,), 2)
    assert left_out_alone(ranks(run(0, skipped), run(1, skipped))) == []  # decided together
    assert left_out_alone(ranks(run(0), run(1, replace(skipped, in_ddp=False)))) == []
    assert left_out_alone(ranks(run(0), run(1, skipped, minibatches=1))) == []  # it looks at a minibatch twice
    assert left_out_alone(ranks(run(0, backwards=2), run(1, skipped, backwards=2))) == []


def test_an_evaluation_that_counts_repeated_examples():
    def run(*values, **facts):
        evaluated = begins(num_examples=101, **{"repeats": 1, "parts": 2, "part": 51, **facts})
        return [evaluated, Evaluated(4, HERE, 0, 0), *(Reduced(4, HERE, "all_reduce", values=of) for of in values)]

    first, second = run((40.0, 51.0)), run((43.0, 51.0))  # right answers, examples; rank 1 has the repeat
    finding = the_one(padded_evaluation(ranks(first, second)))
    assert finding.is_sure and "1 of the 101" in finding.words and finding.words.endswith("counts it twice.")
    by_minibatch = run((17.0,), (17.0,), (17.0,))
    assert the_one(padded_evaluation(ranks(first, by_minibatch))).is_sure
    assert padded_evaluation(ranks(first, run((43.0, 50.0)))) == []  # it was left out
    note = the_one(padded_evaluation(ranks(first, run((0.7,)))))  # an accuracy, or a time
    assert not note.is_sure and note.words.endswith("does the evaluation count it twice?")
    assert padded_evaluation(ranks(first, run((43.0, 51.0), repeats=0))[1:]) == []
    trains = run((43.0, 51.0))
    trains.insert(2, forward(4, "x", loader=0))
    assert padded_evaluation(ranks([], trains)) == []


# arithmetic


def test_gradients_with_the_factor_of_a_scaler():
    clip = Clipped(1, HERE, {}, norm=3.0, most=1.0, scaled=True)
    assert "unscale_" in the_one(clipped_while_scaled(ranks([clip], [clip]))).repair
    assert clipped_while_scaled(ranks([replace(clip, scaled=False)])) == []
    finding = the_one(scaled_updates(ranks([update(1, scaled=True)], [update(1)])))
    assert finding.ranks == (0,) and "scaler.step" in finding.repair
    assert scaled_updates(ranks([update(1)])) == []


def test_gradients_that_are_cleared_before_the_update():
    run = [update(s, lost=3, minibatches=4) for s in (1, 2)]
    assert "the last of 4 minibatches" in the_one(lost_gradients(ranks(run, run))).words
    twice = [update(s, lost=1, minibatches=1) for s in (1, 2)]  # SAM and adversarial training: two passes over one
    assert lost_gradients(ranks(twice, twice)) == []
    two_networks = [*run, replace(run[0], optimizer=1)]
    assert lost_gradients(ranks(two_networks)) == []


def test_a_network_that_is_left_in_evaluation_mode():
    def run(*modes):
        noted = []
        for step, mode in enumerate(modes, 1):
            noted += [forward(step, f"{step}", training=mode, drops_out=mode), update(step)]
        return noted

    between = run(True, True, False, False, True)
    assert left_in_evaluation_mode(ranks(between)) == []  # a generator in the steps of its critic
    evaluation = Evaluated(3, HERE, 1, 0)
    finding = the_one(left_in_evaluation_mode(ranks([*between, evaluation], run(True, True, True, True, True))))
    assert (finding.step, finding.is_sure, finding.ranks) == (3, True, (0,)) and "train()" in finding.repair
    assert left_in_evaluation_mode(ranks([*between, replace(evaluation, loader=-1)])) == []  # of a teacher
    to_the_end = run(True, True, False, False)
    assert the_one(left_in_evaluation_mode(ranks(to_the_end, to_the_end))).ranks == (0, 1)
    assert left_in_evaluation_mode(ranks(run(True, True, True))) == []
    assert left_in_evaluation_mode(ranks(run(False, False, False))) == []  # it may be meant
    both = [forward(1, "a", drops_out=True), forward(1, "b", training=False), update(1)] * 3
    assert left_in_evaluation_mode(ranks(both)) == []


def test_parameters_that_no_optimizer_holds():
    run = [update(1), state(unheld={"head.weight": (3, 4), "head.bias": (3,)})]
    note = the_one(not_held(ranks(run)))
    assert not note.is_sure and "head.weight and head.bias of Net get gradients" in note.words
    finding = the_one(not_held(ranks([*run, UnusedTensors(2, HERE, 0, ((3, 4), (3,)))])))
    assert finding.is_sure and "2 tensors that no network has" in finding.words
    assert not_held(ranks([update(1), state()])) == []


def test_small_notes():
    drawn = [Drawn(2, HERE, "a")]
    assert not the_one(same_random_numbers(ranks(drawn, drawn))).is_sure
    assert same_random_numbers(ranks(drawn, [Drawn(2, HERE, "b")])) == same_random_numbers(ranks(drawn)) == []
    steps = [one for s in range(1, 6) for one in (update(s), *[Scheduled(s, HERE, "StepLR")] * 2)]
    assert "2 steps for each update" in the_one(too_many_steps_of_a_scheduler(ranks(steps, steps))).words
    assert too_many_steps_of_a_scheduler(ranks(steps)) == []
    gathered = [Reduced(1, HERE, "all_gather", with_grad=True)]
    assert "no gradient" in the_one(gathered_without_gradient(ranks(gathered))).words
    assert gathered_without_gradient(ranks([replace(gathered[0], with_grad=False)])) == []
    lost = [LostAttributes(1, HERE, ("counter",))]
    assert "counter" in the_one(lost_attributes(ranks(lost))).words


def test_reductions_in_another_order():
    a, b = (Reduced(1, there(line), "all_reduce") for line in (10, 12))
    finding = the_one(reductions_in_another_order(ranks([a, b], [b, a])))
    assert "line 10 first" in finding.words and "line 12" in finding.words
    assert reductions_in_another_order(ranks([a, b], [a, b])) == []
    assert reductions_in_another_order(ranks([a, a], [b, b])) == []  # each rank has a line of its own for it


# files


def test_files_that_several_ranks_open():
    written = [Opened(2, HERE, "/a/log.csv", "w")]
    finding = the_one(one_file(ranks(written, written)))
    assert finding.is_sure and "log.csv" in finding.words
    mixed = [Opened(1, HERE, "/a/log.txt", "a")]
    note = the_one(one_file(ranks(mixed, mixed)))
    assert not note.is_sure and "mixed" in note.words
    assert the_one(one_file(ranks(mixed + written, mixed + written))).is_sure  # what is sure comes first
    assert one_file(ranks(written, [Opened(2, HERE, "/a/1.csv", "w")])) == []
    # llm.c: each rank empties its log at the beginning, and rank 0 alone appends lines to it after a collective
    emptied, continued = Opened(1, HERE, "/a/main.log", "w", calls=3), Opened(1, HERE, "/a/main.log", "a", calls=5)
    note = the_one(one_file(ranks([emptied, continued], [emptied])))
    assert not note.is_sure and "rank 0 continues it" in note.words
    assert the_one(
        one_file(ranks([emptied, replace(continued, calls=3)], [emptied]))
    ).is_sure  # it may be emptied later
    assert the_one(one_file(ranks([emptied], [emptied]))).is_sure
    read = [Opened(2, HERE, "/a/data", "r")]
    assert one_file(ranks(read, read)) == []


def test_logs_in_one_folder():
    def log(folder, name):
        return Opened(1, None, f"/runs/{folder}/events.out.tfevents.{name}", "w")

    note = the_one(one_log_folder(ranks([log("a", "7")], [log("a", "8")])))
    assert not note.is_sure and note.ranks == (0, 1) and "the same folder, a:" in note.words
    assert one_log_folder(ranks([log("0", "7")], [log("1", "8")])) == []
    assert one_log_folder(ranks([log("a", "7"), log("a", "8")], [])) == []


def test_a_file_that_is_read_while_it_may_be_written():
    saved, load = Saved(3, HERE, "/a/1.pt", calls=9), Loaded(3, HERE, "/a/1.pt", mapped=True, calls=9)
    early = ranks([replace(saved, calls=4), saved], [load])
    note = the_one(read_too_early(early))
    assert not note.is_sure and note.ranks == (1,) and "rank 1 reads 1.pt, which rank 0 writes" in note.words
    opened = Opened(1, HERE, "/a/1.json", "w", calls=0)
    assert the_one(read_too_early(ranks([opened], [replace(opened, mode="r")]))).ranks == (1,)
    assert read_too_early(ranks([saved, load], [replace(load, calls=10)])) == []  # after a barrier
    assert read_too_early(ranks([replace(saved, path="/a/0.pt")], [load])) == []
    assert read_too_early(ranks([saved], [Opened(1, HERE, "/a/1.lock", "lock"), load])) == []
    unknown = ranks([replace(saved, calls=-1)], [replace(load, calls=-1)])
    assert read_too_early(unknown) == []


def test_a_reduction_that_is_not_waited_for_is_the_one_cause():
    left = NotWaited(1, HERE, "all_reduce")
    apart = [replace(update(s), weights=prints(w=[9, 8.0], b=7), grads=prints(w=[3, 3], b=4)) for s in (1, 2)]
    observed = ranks([left, update(1, group=(0, 1)), update(2, group=(0, 1))], apart)
    finding = the_one(not_waited_for(observed))
    assert finding.is_sure and finding.ranks == (0,) and "all_reduce(async_op=True)" in finding.words
    assert copies(observed) == [] == not_waited_for(observed[1:])


def test_a_loss_that_is_reduced_before_the_backward_pass():
    in_ddp = [update(s, group=(0, 1)) for s in (1, 2)]
    half, whole = LossReduced(1, HERE, 0.5), LossReduced(1, HERE, 1.0)
    assert "2 times too small" in the_one(loss_reduced_before_backward(ranks([half, *in_ddp], in_ddp))).words
    assert loss_reduced_before_backward(ranks([whole, *in_ddp], in_ddp)) == []
    by_hand = [update(s) for s in (1, 2)]  # gradients may be added up afterwards
    assert loss_reduced_before_backward(ranks([half, *by_hand], by_hand)) == []
    accumulated = [replace(u, backwards=2) for u in in_ddp]
    assert loss_reduced_before_backward(ranks([half, *accumulated], accumulated)) == []


def test_parts_that_are_clipped_by_their_own_norms():
    one = Clipped(1, HERE, {}, norm=3.0, most=1.0, flat=True)
    finding = the_one(clipped_in_parts(ranks([one], [replace(one, norm=4.0)])))
    assert finding.is_sure and "3 on rank 0, 4 on rank 1" in finding.words
    assert clipped_in_parts(ranks([one], [replace(one, norm=3.00001)])) == []  # NO_SHARD
    small = replace(one, most=9.0)
    assert clipped_in_parts(ranks([small], [replace(small, norm=4.0)])) == []
    assert clipped_in_parts(ranks([replace(one, flat=False)], [replace(one, norm=4.0)])) == []


def test_an_optimizer_that_holds_nothing_of_the_network():
    strangers = UnusedTensors(9, None, 0, ((3, 2), (3,)), are_all=True)
    finding = the_one(not_held(ranks([update(), strangers])))
    assert finding.is_sure and "its updates change nothing" in finding.words
    assert not_held(ranks([update(), replace(strangers, are_all=False)])) == []
    other = replace(update(), optimizer=1)
    assert not_held(ranks([update(), other, strangers])) == []


def test_what_an_accumulation_leaves_over():
    def epoch(number, first, *backwards, lost=0):
        for i, n in enumerate(backwards):
            step = first + i
            yield from (forward(step, "abcdefg"[k], loader=0, epoch=number) for k in range(2))
            yield update(step, backwards=n, lost=lost if i == 0 else 0)

    left = [forward(3, "x", loader=0, epoch=0)]  # the fifth minibatch, which joins the third update
    joined = [*epoch(0, 1, 2, 2), *left, *epoch(1, 3, 3, 2), *epoch(2, 5, 2, 2)]
    note = the_one(left_over_minibatches(ranks(joined)))
    assert not note.is_sure and note.step == 3 and "1 more minibatch" in note.words
    cleared = [*epoch(0, 1, 2, 2), *left, *epoch(1, 3, 2, 2, lost=1), *epoch(2, 5, 2, 2)]
    assert "are cleared without an update" in the_one(left_over_minibatches(ranks(cleared))).words
    even = [*epoch(0, 1, 2, 2), *epoch(1, 3, 2, 2), *epoch(2, 5, 2, 2)]
    assert left_over_minibatches(ranks(even)) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('rank = int(os.environ["RANK"])\ntorch.cuda.set_device(rank)\n', 2),
        ('rank = dist.get_rank()\ndevice = torch.device(f"cuda:{rank}")\n', 2),
        ("rank = dist.get_rank()\nnet = net.to(rank)\n", 2),
        ("rank = dist.get_rank()\nnet.cuda(rank % torch.cuda.device_count())\n", 0),
        ('rank = dist.get_rank()\nnet.cuda(rank)\nlocal = os.environ["LOCAL_RANK"]\n', 0),
        ("def main(rank):\n    net.cuda(rank)\n\nmp.spawn(main, nprocs=2)\n", 0),
        ("rank = dist.get_rank()\nprint(rank)\n", 0),
    ],
)
def test_a_rank_that_chooses_the_gpu(tmp_path, text, line):
    path = tmp_path / "train.py"
    path.write_text(text)
    place = (str(path), 2, "main")
    second = replace(update(devices=("cuda:1",)), place=place)
    found = rank_as_gpu(ranks([update()], [second]))
    assert [note.place[1] for note in found] == [line] * (line > 0)
    assert rank_as_gpu(ranks([update()], [replace(second, devices=("cuda:0",))])) == []


def test_a_checkpoint_of_which_nothing_is_loaded():
    nothing = NothingLoaded(1, HERE, "module.weight", "weight")
    finding = the_one(nothing_loaded(ranks([nothing], [])))
    assert finding.is_sure and finding.ranks == (0,) and "such as module.weight" in finding.words
    assert nothing_loaded(ranks([], [])) == []


def test_a_scheduler_that_was_made_for_the_steps_of_all_ranks():
    def run(total, taken=5, how="returned"):
        steps = [
            one for i in range(taken) for one in (update(i + 1), Scheduled(i + 1, HERE, "CosineAnnealingLR", total))
        ]
        return ranks([*steps, Ended(9, None, how)], [*steps, Ended(9, None, how)])

    note = the_one(scheduled_for_all_ranks(run(10)))
    assert not note.is_sure and "made for 10 steps, 2 times as many as the 5" in note.words and note.step == 5
    for right in (run(5), run(-1), run(10, how="enough"), run(12)):
        assert scheduled_for_all_ranks(right) == []


def test_a_network_that_is_evaluated_and_is_another_one_on_each_rank():
    def run(value, evaluated=True):
        state = State(9, None, model=1, name="Average", params=prints(w=[value, 1.0]), evaluated=evaluated)
        return [update(1, passes=1, group=(0, 1)), state]

    note = the_one(unlike_when_evaluated(ranks(run(1.0), run(2.0))))
    assert not note.is_sure and note.ranks == (0, 1) and "all ranks evaluate Average" in note.words
    assert unlike_when_evaluated(ranks(run(1.0), run(1.0))) == []
    assert unlike_when_evaluated(ranks(run(1.0, False), run(2.0, False))) == []
    assert unlike_at_the_end(ranks(run(1.0), run(2.0))) == []  # said once
    assert unlike_when_evaluated(ranks(run(1.0), [update(1, passes=1, group=(0, 1))])) == []  # rank 0 alone
