"""From a run that ended badly, or well, to findings, facts, text, JSON and a page; on made-up runs."""

import json
from dataclasses import replace

import pytest
from torch.distributed import distributed_c10d

from ddp_rehearsal import Finding, Rehearsal, report_json, report_page, report_text
from ddp_rehearsal.observations import Ended, Forward, LoaderBegins, Memory, RankObservations, Scheduled, Update
from ddp_rehearsal.ranks import Outcome
from ddp_rehearsal.rehearsal import rehearsal_of, with_comparison
from notebook_ranks import Collective, FlightRecord
from notebook_ranks.shared import explained
from packages.ddp_rehearsal.tests.packing import packed

SCRIPT = "/home/ada/train.py"
FRAMES = ((SCRIPT, 30, "<module>"), (SCRIPT, 12, "main"))
PRINTS = {"w": ("ab", packed(1.0))}


def update(step):
    return Update(
        step,
        (SCRIPT, 9, "main"),
        optimizer=0,
        name="SGD",
        lrs=(0.1,),
        grads=PRINTS,
        weights=PRINTS,
        devices=("cuda:0",),
        group=(0, 1),
    )


def run(ending, reports, updates=(2, 2), records=None, waited_s=15.0):
    observed = [RankObservations(r, [update(s + 1) for s in range(n)]) for r, n in enumerate(updates)]
    return Outcome(
        observed=observed,
        ending=ending,
        seconds=20.0,
        waited_s=waited_s,
        reports=dict(enumerate(reports)),
        records=records or {},
        outputs={0: "out", 1: ""},
    )


def error(message, frames=FRAMES, kind="RuntimeError"):
    return {"state": "error", "type": kind, "message": message, "frames": frames, "causes": ()}


def ending_of(given):
    """The finding of a run, besides that all its ranks are on one GPU."""
    found = rehearsal_of(given, "train.py")
    (finding,) = [f for f in [*found.findings, *found.notes] if "on cuda:0" not in f.words]
    return finding


@pytest.mark.parametrize(
    ("message", "repair"),
    [
        ("Expected all tensors to be on the same device, but found cpu and cuda:0!", ".to(device)"),
        ("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()", ".cpu()"),
        ("CUDA error: invalid device ordinal", "LOCAL_RANK"),
        ("No backend type associated with device type cpu", "NCCL"),
        ("Duplicate GPU detected: this rank computes on GPU 0, got cuda:1.", "set_device"),
        ("attempting to assign a gradient with device type 'cpu' to a tensor", "gradient"),
        ("Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same or input should "
         "be a MKLDNN tensor", "minibatch"),
    ],
)  # fmt: skip
def test_what_a_gpu_refuses(message, repair):
    finding = ending_of(run("failed", [error(message), error(message.replace("cuda:0", "cuda:1"))]))
    assert (finding.kind, finding.ranks, finding.place) == ("devices", (0, 1), (SCRIPT, 12, "main"))
    assert message in finding.words and repair in finding.repair and finding.step == 3
    refused_at_once = rehearsal_of(run("failed", [error(message)] * 2, updates=(0, 0)))
    assert not refused_at_once.error and refused_at_once.exit_code == 1


def test_ranks_on_one_gpu():
    message = "Duplicate GPU detected: rank 1 and rank 0 both on CUDA device 0."
    found = rehearsal_of(run("failed", [error(message), {"state": "running", "frames": FRAMES}], updates=(0, 0)))
    assert (found.findings[0].kind, found.findings[0].ranks) == ("devices", (0, 1))


def test_an_error_of_one_rank():
    finding = ending_of(run("failed", [{"state": "running", "frames": FRAMES}, error("no\nlabel", kind="KeyError")]))
    assert (finding.kind, finding.ranks) == ("error", (1,)) and finding.words == "rank 1 raised KeyError: no"


def test_an_error_of_all_ranks_before_any_update_is_no_finding():
    found = rehearsal_of(
        run("failed", [error("No module named 'x'", kind="ImportError")] * 2, updates=(0, 0)), "train.py"
    )
    assert found.exit_code == 2 and found.error == "ImportError: No module named 'x'"
    assert "could not be run. ImportError" in report_text(found) and report_text(found).endswith("out")
    warned = replace(found, outputs={0: "train.py:3: UserWarning: pretend GPUs: no such thing.\n" + "out\n" * 9})
    assert "\npretend GPUs: no such thing.\nout\n" in report_text(warned)
    later = rehearsal_of(run("failed", [error("no label", kind="KeyError")] * 2))
    assert later.exit_code == 1 and "all ranks raised KeyError" in later.findings[0].words
    one = rehearsal_of(run("failed", [error("x", kind="KeyError"), {"state": "done"}], updates=(0, 0)))
    assert one.exit_code == 1


def test_what_cannot_be_pretended_is_no_mistake_of_the_script():
    refused = error("pretend GPUs: CUDA graphs are not pretended.", kind="NotImplementedError")
    given = run("failed", [refused] * 2)
    own_gpus = [[replace(u, devices=(f"cuda:{one.rank}",)) for u in one.noted] for one in given.observed]
    given = replace(given, observed=[RankObservations(r, noted) for r, noted in enumerate(own_gpus)])
    found = rehearsal_of(given)
    assert found.exit_code == 2 and found.error.startswith("Stopped in step 3. NotImplementedError: pretend GPUs")
    apart = [replace(one, noted=[replace(u, scaled=True) for u in one.noted]) for one in given.observed]
    found = rehearsal_of(replace(given, observed=apart))  # what was found until then counts
    assert found.exit_code == 1 and [finding.kind for finding in found.notes] == ["error"]


def test_a_lost_connection_is_not_why_a_script_cannot_be_run():
    lost = error("[c10d] Connection closed by peer", kind="DistNetworkError")
    found = rehearsal_of(run("failed", [lost, lost], updates=(0, 0)))
    assert found.exit_code == 1 and found.findings[0].ranks == ()


def test_a_process_that_died():
    died = {"state": "died", "exitcode": -9, "output": ""}
    finding = ending_of(run("failed", [{"state": "running", "frames": FRAMES}, died]))
    assert (finding.kind, finding.ranks) == ("error", (1,)) and "SIGKILL" in finding.words
    found = rehearsal_of(run("failed", [died, died], updates=(0, 0)))
    assert found.exit_code == 2 and "(-9) before the script began" in found.error


def calls(*names):
    return tuple(
        Collective(
            name,
            ((4,),),
            "float32",
            group="0",
            number=number,
            file=SCRIPT,
            line=9 + len(name),
            function="main",
            at_s=float(number),
        )
        for number, name in enumerate(names, 1)
    )


def hanging(ending="hang", names=("all_reduce", "all_reduce", "barrier")):
    in_c10d = (distributed_c10d.__file__, 1)
    groups = {"0": (0, 1, 2)}
    records = {
        r: FlightRecord(r, calls("broadcast", name), groups=groups, state="running", frames=(*FRAMES, (*in_c10d, name)))
        for r, name in enumerate(names)
    }
    return run(
        ending, [{"state": "running", "frames": record.frames} for record in records.values()], (2, 2, 2), records
    )


def test_a_hang_names_the_guilty_rank_only_if_it_is_sure():
    finding = ending_of(hanging())
    assert (finding.kind, finding.ranks, finding.step, finding.is_sure) == ("hang", (2,), 3, True)
    assert "no rank has moved for 15 s: rank 2 called barrier no. 2" in finding.words
    assert ending_of(hanging(names=("all_reduce", "barrier", "broadcast"))).ranks == ()
    agree = ending_of(hanging(names=("all_reduce",) * 3))
    assert agree.ranks == () and "the collectives agree" in agree.words
    assert any(
        "rank 0 is in main, line 12, rank 1 is in main, line 12" in fact for fact in rehearsal_of(hanging()).facts
    )


def test_a_rank_that_waits_for_something_else_is_only_a_note():
    assert not ending_of(hanging("idle")).is_sure


def test_a_run_at_its_limit():
    states = [{"state": "running", "frames": FRAMES}, {"state": "silent"}]
    finding = ending_of(run("limit", states))
    assert not finding.is_sure and "rank 0 is in main, line 12; rank 1 did not answer" in finding.words


def test_facts():
    def rank(r, n):
        rows = tuple(f"{r} {i}" for i in range(n))
        return RankObservations(r, [
            Forward(1, None, model=0, name="Net", rows=rows), update(1), Scheduled(2, None, "StepLR"), update(2),
            Memory(3, None, parameters=400, gradients=400, optimizer=800, activations=10**10), Ended(3, None, "enough"),
        ])  # fmt: skip

    facts = rehearsal_of(Outcome(observed=[rank(0, 4), rank(1, 3)], ending="enough", seconds=1.0)).facts
    assert "Global minibatch: 7 = 4 + 3 rows. SGD, learning rate 0.1." in facts
    assert "Learning rates: 1 steps of a scheduler in 2 updates." in facts
    assert "The weights in the optimizer are the same on all ranks after each update." in facts
    assert any("fits in 24 GB (predicted)" in fact and "10.0 GB kept by the forward pass" in fact for fact in facts)
    same = [RankObservations(r, [Forward(1, None, model=0, name="Net", rows=("a", "b")), update(1)]) for r in (0, 1)]
    assert (
        "Minibatch: 2 rows, the same on all ranks."
        in rehearsal_of(Outcome(observed=same, ending="enough", seconds=1.0)).facts[0]
    )
    # a GradScaler skips the first two updates: the first one that is made follows three minibatches
    rows = [("a",), ("b",), ("c",)], [("d",)], [("e",)]
    scaled = [Forward(i + 1, None, model=0, name="Net", rows=one) for i, of_step in enumerate(rows) for one in of_step]
    facts = rehearsal_of(
        Outcome(
            observed=[RankObservations(0, [*scaled, update(1), update(2), update(3)])], ending="enough", seconds=1.0
        )
    ).facts
    assert "Minibatch: 1 row. SGD, learning rate 0.1." in facts
    loader = LoaderBegins(1, None, loader=0, epoch=0, sampler="DistributedSampler", num_batches=9)
    begun = [loader, Forward(1, None, model=0, name="Net", rows=("a",), loader=0, epoch=0), update(1)]
    for how, is_told in (("enough", True), ("returned", False)):  # the latter leaves the epoch by itself
        ended = RankObservations(0, [*begun, Ended(1, None, how)])
        facts = rehearsal_of(Outcome(observed=[ended], ending="enough", seconds=1.0)).facts
        assert any("See its end with --steps 10" in fact for fact in facts) is is_told
    large = RankObservations(0, [update(1), Memory(2, None, parameters=10**11, gradients=0, optimizer=0)])
    assert any(
        "does not fit in 80 GB (predicted)" in fact
        for fact in rehearsal_of(Outcome(observed=[large], ending="enough", seconds=1.0)).facts
    )


def test_the_memory_of_a_gpu_is_the_sum_of_all_its_parts():
    memory = Memory(2, None, parameters=10**9, gradients=2 * 10**9, optimizer=4 * 10**9, activations=8 * 10**9)
    one = RankObservations(0, [update(1), memory])
    found = rehearsal_of(Outcome(observed=[one], ending="enough", seconds=1.0))
    assert found.costs["memory"] == 15 * 10**9
    assert any("fits in 24 GB (predicted)" in fact for fact in found.facts)


def test_a_run_on_one_gpu_that_ended_badly_is_told():
    both = run("enough", [{"state": "done"}] * 2)
    found = replace(rehearsal_of(both, "train.py"), findings=[])
    wrong = with_comparison(found, both, run("failed", [error("no such k", kind="KeyError")], updates=(0,)))
    assert wrong.exit_code == 2 and wrong.error == "On 1 GPU: KeyError: no such k"
    first = Finding("files", "all ranks write model.pt", "Write on rank 0.")
    wrong = with_comparison(replace(found, findings=[first]), both, run("failed", [error("no such k")], updates=(0,)))
    assert (wrong.exit_code, wrong.error, wrong.findings) == (1, "", [first])  # what several GPUs have shown counts
    assert wrong.facts[0].startswith("Not compared with 1 GPU: ") and wrong.same_as_one is False
    wrong = with_comparison(found, both, run("failed", [error("no such k", kind="KeyError")], updates=(1,)))
    assert wrong.exit_code == 1 and wrong.same_as_one is False
    (added,) = [f for f in wrong.findings if f not in found.findings]
    assert added.words == "on 1 GPU rank 0 raised KeyError: no such k"
    assert wrong.facts[0] == "Not compared with 1 GPU."
    wrong = with_comparison(found, both, run("limit", [{"state": "silent"}], updates=(1,)))
    assert wrong.same_as_one is False and wrong.notes[0].words.startswith("on 1 GPU ended after 20 s")


def test_the_comparison_is_in_the_verdict_and_the_exit_code():
    assert "nothing found, and the same as on 1 GPU." in report_text(replace(FOUND, findings=[], same_as_one=True))
    other = replace(FOUND, findings=[], same_as_one=False)
    assert "nothing found; not shown to be the same as on 1 GPU." in report_page(other) and other.exit_code == 1
    assert (
        json.loads(report_json(other))["same_as_one"] is False and json.loads(report_json(FOUND))["same_as_one"] is None
    )


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ("Expected to have finished reduction in the prior iteration before", "arithmetic", "that of b: it was frozen"),
        ('Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "0.weight". \n\t'
         'Unexpected key(s) in state_dict: "module.0.weight".', "files", 'begin with "module.", and those'),
        ('Error(s) in loading state_dict for DDP:\n\tMissing key(s) in state_dict: "module.0.weight". \n\t'
         'Unexpected key(s) in state_dict: "0.weight".', "files", 'do not begin with "module."'),
        ('Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "0.weight".', "error", "loading"),
    ],
)  # fmt: skip
def test_errors_whose_cause_is_known(message, kind, words):
    failed = run("failed", [error(message)] * 2)
    without = [
        replace(one, noted=[replace(u, grads={**PRINTS, "b": None}) for u in one.noted]) for one in failed.observed
    ]
    found = rehearsal_of(replace(failed, observed=without))
    (finding,) = [f for f in found.findings if "on cuda:0" not in f.words]
    assert finding.kind == kind and words in finding.words and finding.ranks == (0, 1)


FINDING = Finding("copies", "the <weights> differ", "Mend it.", ranks=(0, 1), step=3, place=(SCRIPT, 12, "main"))
FOUND = Rehearsal(
    command="train.py",
    gpus=2,
    are_real=False,
    steps=20,
    seconds=7.4,
    findings=[FINDING],
    notes=[replace(FINDING, is_sure=False)],
    facts=["A fact."],
    outputs={0: "<b>\x1b[1m"},
)


def test_the_text_fits_a_screen():
    text = report_text(FOUND)
    assert text.startswith("train.py on 2 pretend GPUs, 20 steps in 7 s: 1 finding.")
    assert "✗ copies (ranks 0, 1, step 3, train.py line 12): the <weights> differ\n    Mend it." in text
    assert "? copies" in text and "A fact." in text and "Not known without GPUs: speed" in text
    many = report_text(replace(FOUND, notes=[FINDING] * 9))
    assert many.count("?") == 5 and "and 5 more to look at" in many and len(many.splitlines()) < 25
    real = report_text(replace(FOUND, are_real=True, gpus=1))
    assert "on 1 GPU, 20" in real and "Not looked at: speed" in real and "without GPUs" not in real
    assert "2 GPUs" in report_text(replace(FOUND, are_real=True)) and FOUND.exit_code == 1
    assert "nothing found" in report_text(replace(FOUND, findings=[])) and "\x1b" not in text


def test_the_json_has_all_but_the_collectives():
    report = json.loads(report_json(FOUND))
    assert report["findings"][0]["place"] == [SCRIPT, 12, "main"] and report["exit_code"] == 1
    assert report["unknown"] == FOUND.unknown and "records" not in report and "outputs" not in report


def test_the_page_is_escaped_and_complete():
    page = report_page(FOUND)
    assert "the &lt;weights&gt; differ" in page and "&lt;b&gt;" in page and "(not sure)" in page
    assert "prefers-color-scheme: dark" in page and "default-src 'none'" in page and "<table" not in page
    hangs = report_page(rehearsal_of(hanging(), "train.py"))
    assert hangs.count("<tr>") == 4 and hangs.count("class=wrong") == 3  # a row for each rank, and one for the numbers
    assert "<td class=wrong>barrier 4 float32, line 16</td>" in hangs


def test_nothing_that_a_script_writes_is_markup_on_the_page(tmp_path):
    evil = "<script>alert(1)</script> a < b &"
    script = tmp_path / "<b>train.py"
    script.write_text(f"if a < b: print({evil!r})\n")
    finding = Finding(evil, evil, evil, ranks=(0,), step=1, place=(str(script), 1, evil))
    call = Collective(evil, ((4,),), evil, evil, 1, str(script), 1, evil)
    records = {rank: FlightRecord(rank, (call,), {evil: (0, 1)}) for rank in (0, 1)}
    page = report_page(
        replace(
            FOUND, command=evil, findings=[finding], notes=[finding], facts=[evil], records=records, outputs={0: evil}
        )
    )
    assert "<script" not in page and "<b>" not in page and "a < b" not in page
    assert page.count("if a &lt; b: print(") == 2 and "<table" in page  # the line of each finding, and the collectives


def test_a_failure_says_where_its_message_is_explained(monkeypatch):
    monkeypatch.setattr(explained, "_explains", [lambda message: f"See {message}." * ("no such k" in message)])
    finding = ending_of(run("failed", [error("no such k", kind="KeyError")] * 2))
    assert finding.repair.endswith("--html shows it. See KeyError: no such k.")
