"""What right scripts do that looks like a bug: no rule accuses it, on made-up observations."""

from dataclasses import replace

import pytest

from ddp_rehearsal.observations import (
    Evaluated,
    Loaded,
    LoaderBegins,
    LostAttributes,
    NotObserved,
    Opened,
    Reduced,
    Saved,
    State,
    UnusedTensors,
    Wrapped,
)
from ddp_rehearsal.ranks import Outcome
from ddp_rehearsal.report import run_facts
from ddp_rehearsal.rules.collectives import reductions_in_another_order
from ddp_rehearsal.rules.copies import are_copies, copies, said_of_copies, unlike_at_the_end
from ddp_rehearsal.rules.devices import group_of_one, one_gpu
from ddp_rehearsal.rules.examples import equal_minibatches, forgotten_set_epoch, padded_evaluation, shared_examples
from ddp_rehearsal.rules.files import loaded_to_gpu_0, one_file
from ddp_rehearsal.rules.gradients import gradients_kept
from ddp_rehearsal.rules.networks import left_in_evaluation_mode, lost_attributes
from ddp_rehearsal.rules.optimizers import not_held
from ddp_rehearsal.rules.script_text import averages_weights, runs_to_the_end, saves_for_each_rank, sets_in_forward
from packages.ddp_rehearsal.tests.packing import packed
from packages.ddp_rehearsal.tests.test_rules import HERE, JOINED, forward, prints, ranks, the_one, update


def begins(**facts):
    return LoaderBegins(
        1, HERE, **{"loader": 0, "epoch": 0, "sampler": "DistributedSampler", "shuffles": True, **facts}
    )


def two_epochs(**facts):
    first, second = ({"sampler_epoch": 0, "seed": 0, **{name: of[i] for name, of in facts.items()}} for i in (0, 1))
    trained = [forward(1, "a", loader=0, epoch=0), forward(2, "b", loader=0, epoch=1)]
    return ranks([begins(**first), begins(epoch=1, **second), *trained])


def test_a_sampler_whose_number_is_not_known_or_whose_seed_changes():
    assert "set_epoch was not called" in the_one(forgotten_set_epoch(two_epochs())).words
    assert forgotten_set_epoch(two_epochs(sampler_epoch=(-1, -1))) == []
    assert forgotten_set_epoch(two_epochs(seed=(0, 1))) == []
    assert forgotten_set_epoch(two_epochs(sampler=("mmdet.DistributedSampler",) * 2)) == []


def test_a_teacher_in_training_is_no_evaluation_and_a_largest_time_counts_nothing():
    loader = begins(repeats=1, num_examples=101, parts=1, part=102)
    reduced = Reduced(3, HERE, "all_reduce", values=(102.0,))
    evaluation = [loader, Evaluated(3, HERE, 0, 0), reduced]
    assert the_one(padded_evaluation(ranks(evaluation))).is_sure
    assert padded_evaluation(ranks([forward(1, "a", loader=0), *evaluation])) == []
    assert padded_evaluation(ranks([*evaluation[:2], replace(reduced, adds_up=False)])) == []


def test_each_rank_loads_its_own_checkpoint_or_sees_its_own_gpu_alone():
    saved, load = Saved(3, HERE, "/a/1.pt", on_gpu=True), Loaded(4, HERE, "/a/1.pt", mapped=False)
    assert loaded_to_gpu_0(ranks([], [saved, load])) == []
    alone = [replace(load, devices=("cuda:0",)), update(1, devices=("cuda:0",), visible="1")]
    assert loaded_to_gpu_0(ranks([], alone)) == []


def test_ranks_elect_one_by_a_file_that_only_one_can_make():
    claims = [[Opened(1, HERE, "/a/claimed", "x")] for _ in range(2)]
    assert one_file(ranks(*claims)) == []


def test_a_network_that_computes_a_part_on_each_rank():
    run = [forward(s, f"{s}", output="y") for s in (1, 2)] + [update(1), update(2)]
    assert the_one(equal_minibatches(ranks(run, run))).is_sure
    gathers = [*run, Reduced(1, HERE, "all_gather", in_forward=True)]
    assert not the_one(equal_minibatches(ranks(gathers, gathers))).is_sure


def test_ranks_of_two_groups_are_not_named_together():
    runs = [[forward(s, f"{s} {half}", output=half) for s in (1, 2)] + [update(1), update(2)] for half in "aabb"]
    assert the_one(equal_minibatches(ranks(*runs))).ranks == (0, 1)


LOCAL = """
for step in range(100):
    train()
    if step % 50 == 49:
        for param in model.parameters():
            dist.all_reduce(param.data)
"""
OF_STATES = """
state = model.state_dict()
for name in state:
    dist.all_reduce(state[name])
"""
AS_VECTOR = """
flat = parameters_to_vector(model.parameters())
dist.all_reduce(flat)
"""
TO_A_NEIGHBOUR = """
for p in model.parameters():
    dist.batch_isend_irecv([dist.P2POp(dist.isend, p, right), dist.P2POp(dist.irecv, theirs, left)])
"""
OF_GRADIENTS = """
def average(model):
    for param in model.parameters():
        dist.all_reduce(param.grad)
"""
GRADIENTS_AS_VECTOR = """
flat = torch.cat([p.grad.flatten() for p in model.parameters()])
dist.all_reduce(flat)
"""
SENT_AT_FIRST = """
for p in model.parameters():
    dist.broadcast(p, 0)
"""


@pytest.mark.parametrize(
    ("text", "is_sure"),
    [
        *((text, False) for text in (LOCAL, OF_STATES, AS_VECTOR, TO_A_NEIGHBOUR)),
        *((text, True) for text in (OF_GRADIENTS, GRADIENTS_AS_VECTOR, SENT_AT_FIRST, "train()")),
    ],
)
def test_weights_that_are_averaged_after_more_steps_than_were_seen(tmp_path, text, is_sure):
    (path := tmp_path / "train.py").write_text(text)
    there = (str(path), 1, "main")
    assert averages_weights(there) is not is_sure
    of = [
        [
            JOINED,
            begins(),
            forward(1, f"{r}", loader=0),
            replace(update(1, prints(w=[r, 3.0, 5, 7]), prints(w=[r, 1])), place=there),
        ]
        for r in (1, 2)
    ]
    assert the_one(copies(ranks(*of))).is_sure is is_sure


def script(tmp_path, text, line=1):
    (path := tmp_path / "script.py").write_text(text)
    return str(path), line, "main"


@pytest.mark.parametrize(
    ("text", "is_own"),
    [
        ('torch.save(model.state_dict(), f"shard-{rank}.pt")', True),
        ('torch.save(model.state_dict(), "shard-{}.pt".format(rank))', True),
        ('torch.save(model.state_dict(), f"epoch-{epoch}.pt")', False),
        ('torch.save({"rank": rank}, "model.pt")', False),
    ],
)
def test_each_rank_saves_a_network_of_its_own(tmp_path, text, is_own):
    assert saves_for_each_rank(there := script(tmp_path, text)) is is_own
    of = [
        [JOINED, begins(), forward(1, f"{r}", loader=0), replace(update(1, prints(w=r), prints(w=r)), place=there)]
        for r in (1, 2)
    ]
    assert the_one(copies(ranks(*of))).is_sure is not is_own


def test_a_table_on_each_rank_for_the_examples_of_all():
    def run(r, *more):
        start = update(1, prints(w=r), prints(w=r), before=prints(w=[r, 2]))
        return [JOINED, begins(), *more, forward(1, f"{r}", loader=0), start]

    assert the_one(copies(ranks(run(1), run(2)))).is_sure
    exchange = Reduced(1, HERE, "all_to_all_single")
    assert not the_one(copies(ranks(run(1, exchange), run(2, exchange)))).is_sure


FORWARD = """
class Net(nn.Module):
    def __init__(self):
        self.rounds = 0

    def forward(self, x):
        {}self.rounds += 1
        return x
"""


def test_a_counter_that_begins_anew_in_each_pass_loses_nothing(tmp_path):
    anew, on = (script(tmp_path, FORWARD.format(text)) for text in ("self.rounds = 0; ", ""))
    assert not sets_in_forward(on, "rounds")
    lost = ranks([LostAttributes(1, on, ("part.rounds",))])
    assert the_one(lost_attributes(lost)).is_sure
    script(tmp_path, FORWARD.format("self.rounds = 0; "))
    assert sets_in_forward(anew, "rounds") and lost_attributes(lost) == []


LOOP = """
def step(x):
    loss(x).backward()

for x in loader:
    step(x)
"""


def test_a_backward_pass_below_the_loop_may_let_the_others_go_on(tmp_path):
    assert runs_to_the_end(script(tmp_path, LOOP, 5))
    assert not runs_to_the_end(script(tmp_path, f"{LOOP}step(zeros)\n", 5))
    assert not runs_to_the_end(script(tmp_path, f"{LOOP}for x in rest:\n    loss(x).backward()\n", 5))
    assert runs_to_the_end(script(tmp_path, f"{LOOP}def other(x):\n    x.backward()\n", 5))


def test_files_that_are_locked_or_written_one_after_the_other():
    saved = Saved(3, HERE, "/a/x.pt", calls=4)
    assert the_one(one_file(ranks([saved], [saved]))).is_sure
    assert one_file(ranks([saved], [replace(saved, calls=6)])) == []  # the best member of a search, after a reduction
    assert one_file(ranks([Opened(1, HERE, "", "lock"), saved], [saved])) == []


def test_reductions_of_two_steps_are_in_no_other_order():
    a, b = (Reduced(1, ("train.py", line, "main"), "all_reduce") for line in (10, 12))
    later = [replace(one, step=2) for one in (b, a)]
    assert reductions_in_another_order(ranks([a, later[0]], [b, later[1]])) == []


def test_processes_with_a_group_of_their_own():
    alone = [replace(JOINED, size=1), update(1)]
    assert not the_one(group_of_one(ranks(alone, alone))).is_sure  # trials of a search
    wrapped = [*alone, Wrapped(1, HERE, (0,), "Net")]
    assert the_one(group_of_one(ranks(wrapped, wrapped))).is_sure
    assert group_of_one(ranks(wrapped)) == [] == group_of_one(ranks([replace(JOINED, size=2)], [JOINED]))


def test_processes_that_share_a_gpu_by_gloo():
    shared = [replace(JOINED, backend="gloo"), update(1)]
    assert not the_one(one_gpu(ranks(shared, shared))).is_sure
    assert the_one(one_gpu(ranks([JOINED, update(1)], [JOINED, update(1)]))).is_sure


def test_a_parameter_that_is_not_trained_may_differ():
    of = [State(3, HERE, model=0, name="Net", params=prints(w=1, bank=r), group=(0, 1)) for r in (1, 2)]
    runs = [[update(1), update(2), one] for one in of]
    assert the_one(unlike_at_the_end(ranks(*runs))).is_sure
    frozen = [[*run[:2], replace(run[2], untrained=("bank",))] for run in runs]
    assert not the_one(unlike_at_the_end(ranks(*frozen))).is_sure
    divided = [[begins(), forward(1, f"{r}", loader=0), *run] for r, run in enumerate(frozen)]
    assert the_one(unlike_at_the_end(ranks(*divided))).is_sure  # the examples of a rank change from epoch to epoch


def test_a_mode_that_is_changed_on_purpose():
    def run(*modes):
        noted = [(forward(step, f"{step}", training=mode, drops_out=mode), update(step)) for step, mode in modes]
        return [one for of_step in noted for one in of_step]

    to_the_end = run(*enumerate([True, True, False, False], 1))
    assert not the_one(left_in_evaluation_mode(ranks(to_the_end))).is_sure
    again = run(*enumerate([True, False, False, True, False, False], 1))  # a generator in the steps of its critic
    assert left_in_evaluation_mode(ranks(again)) == []


def test_two_passes_in_one_epoch_have_one_order():
    once = two_epochs(epochs_set=(1, 1))
    assert not the_one(forgotten_set_epoch(once)).is_sure and "called once" in the_one(forgotten_set_epoch(once)).words
    often = the_one(forgotten_set_epoch(two_epochs(epochs_set=(1, 2))))
    assert often.is_sure and "called 2 times" in often.words


def test_members_of_different_kinds_may_have_all_examples():
    def run(r, name):
        rows = [forward(1, *(f"{i}" for i in range(9 * r, 9 * r + 20)), loader=0, epoch=0)]
        return [begins(sampler="RandomSampler", num_examples=99), *rows, update(1, weights=prints(**{name: 1}))]

    assert the_one(shared_examples(ranks(run(0, "a"), run(1, "a")))).is_sure
    assert shared_examples(ranks(run(0, "a"), run(1, "b"))) == []


def test_an_optimizer_of_the_script_may_keep_gradients():
    def run(is_own):
        return [update(s, kept=s > 1, is_own=is_own) for s in (1, 2, 3)]

    assert the_one(gradients_kept(ranks(run(False)))).is_sure
    assert not the_one(gradients_kept(ranks(run(True)))).is_sure


def test_tensors_of_other_shapes_were_not_replaced():
    state = State(3, HERE, model=0, name="Net", params=prints(w=1), unheld={"probe": (2, 5)})
    assert not the_one(not_held(ranks([update(1), state, UnusedTensors(2, HERE, 0, ((3, 4),))]))).is_sure
    assert the_one(not_held(ranks([update(1), state, UnusedTensors(2, HERE, 0, ((2, 5),))]))).is_sure


def test_what_is_said_of_copies():
    assert "all ranks" in said_of_copies(ranks(*[[update(1)]] * 2))
    pairs = [[update(1, group=(0, 1) if r < 2 else (2, 3), weights=prints(w=r // 2))] for r in range(4)]
    assert "the same on ranks 0 and 1 and on ranks 2 and 3 after" in said_of_copies(ranks(*pairs))
    assert "does not ignore" in said_of_copies(ranks(*[[update(1, ignores=True)]] * 2))
    rounded = [replace(update(1), weights={"w": (f"{r}", packed(1, 2))}) for r in (0, 1)]
    assert "by rounding at most" in said_of_copies(ranks(*([one] for one in rounded)))
    apart = [[update(1, weights=prints(w=r))] for r in (0, 1)]
    assert said_of_copies(ranks(*apart)) == "" == said_of_copies(ranks([update(1)]))


def test_equal_values_that_were_read_do_not_show_that_all_are_equal():
    one, other = update(1), replace(update(1), weights={"w": ("another digest", packed(1, 2, 1, 2)), **prints(b=-1)})
    assert are_copies(ranks([one], [one]))
    same = replace(one, weights={"w": ("a digest", packed(1, 2, 1, 2)), **prints(b=-1)})
    assert not are_copies(ranks([same], [other])) and copies(ranks([same], [other])) == []


def test_a_tensor_of_an_optimizer_that_is_used_later():
    state = State(3, HERE, model=0, name="Net", params=prints(w=1), unheld={"a": (3, 4), "b": (4,), "c": (5,)})
    assert not the_one(not_held(ranks([update(1), state, UnusedTensors(2, HERE, 0, ((3, 4),))]))).is_sure


def test_reductions_in_groups_of_their_own():
    calls = [[Reduced(1, ("train.py", line, "main"), "all_reduce", group=(r,)) for line in of]
             for r, of in enumerate(((3, 4), (4, 3)))]  # fmt: skip
    assert reductions_in_another_order(ranks(*calls)) == []


def test_what_was_not_compared_or_observed_is_said():
    def facts(*noted):
        observed = ranks(list(noted), list(noted))
        return " ".join(run_facts(Outcome(observed=observed, ending="enough", seconds=1.0, outputs={}, offered=2)))

    assert "Sharded weights were not compared" in facts(update(1, sharded=True))
    assert "Not all of rank 1 was observed: KeyError: 3" in facts(update(1), NotObserved(1, None, "KeyError: 3"))
    assert "Sharded" not in facts(update(1)) and "observed" not in facts(update(1))
