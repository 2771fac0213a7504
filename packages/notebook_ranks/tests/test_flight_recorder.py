"""The recorder of a process, read as plain data; the pool's collection of all ranks, in bounded time."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch._C._distributed_c10d as c10d

from notebook_ranks.flight_recorder import OFF, FlightRecord, flight_record, read_recorder
from notebook_ranks.pool import Workers, WorkersError
from tests.by_value import by_value

TIMEOUT_S = 5  # of the pool

CALL = {"name": "all_reduce", "sizes": [[3, 4]], "dtype": "float32", "group": "0", "number": 7, "file": "a.py"}
CALL |= {"line": 5, "function": "step", "at_s": 1.5, "path": [["a.py", 5], ["b.py", 9]]}


def entry(**more):
    """An entry as PyTorch gives it."""
    frames = [
        {"filename": torch.__file__, "line": 1, "name": "all_reduce"},
        {"filename": "/home/me/train.py", "line": 12, "name": "step"},
    ]
    entry = {"profiling_name": "gloo:all_reduce", "input_sizes": [[8]], "output_sizes": [[8]], "frames": frames}
    entry |= {"input_dtypes": ["Float"], "output_dtypes": ["Float"], "process_group": ("0", "default_pg")}
    return entry | {"collective_seq_id": 3, "is_p2p": False, "time_created_ns": 2_000_000_000} | more


@pytest.fixture
def recorded(monkeypatch):
    """recorded(*entries): what PyTorch's recorder is to hold."""

    def hold(*entries):
        monkeypatch.setattr(c10d, "_dump_fr_trace", lambda: pickle.dumps({"entries": list(entries)}))

    return hold


def test_an_entry_becomes_plain_data_with_the_line_of_the_learner(recorded):
    recorded(entry())
    (call,) = json.loads(json.dumps(read_recorder()))["collectives"]
    assert (call["name"], call["sizes"], call["dtype"], call["number"]) == ("all_reduce", [[8]], "float32", 3)
    assert (call["file"], call["line"], call["function"]) == ("/home/me/train.py", 12, "step")
    assert call["path"] == [["/home/me/train.py", 12]] and call["at_s"] == 2.0


def test_earlier_calls_and_sends_are_left_out_and_the_order_is_that_of_time(recorded):
    late = entry(collective_seq_id=4, time_created_ns=5_000_000_000)
    recorded(late, entry(), entry(is_p2p=True), entry(time_created_ns=5))
    assert [c["number"] for c in read_recorder(1_000)["collectives"]] == [3, 4]


@pytest.mark.skipif(not hasattr(c10d, "FlightRecorderHook"), reason="this PyTorch has no second implementation of NCCL")
def test_the_recorder_of_the_second_implementation_of_nccl_is_read_as_well(tmp_path):
    """What a hook of PyTorch records, in a group without processes, whose recorder is read as that of NCCL."""
    path = tmp_path / "train.py"
    path.write_text("""
import json
import torch
import torch.distributed as dist
import torch._C._distributed_c10d as c10d
from torch.testing._internal.distributed.fake_pg import FakeStore
from notebook_ranks import flight_recorder

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
hook = c10d.FlightRecorderHook.attach(dist.group.WORLD, [0, 1])
dist.all_reduce(torch.ones(3))
read = c10d._dump_fr_trace
c10d._dump_fr_trace = lambda backend="gloo": read(backend={"nccl2": "fake"}.get(backend, backend))
c10d._dump_nccl_trace = read
dist.get_backend_config = lambda: "cpu:gloo,cuda:nccl"
print(json.dumps(flight_recorder.read_recorder()))
""")
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "9"}
    done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (call,) = json.loads(done.stdout)["collectives"]
    assert (call["name"], call["sizes"], call["dtype"], call["number"]) == ("all_reduce", [[3]], "float32", 1)
    assert call["file"] == str(path) and call["line"] == 11


def test_a_recorder_of_nccl_that_cannot_be_read_hides_no_other(recorded, monkeypatch):
    recorded(entry())  # this one takes no name of a backend
    monkeypatch.setattr(c10d, "_dump_nccl_trace", lambda: b"", raising=False)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: "cuda:nccl")
    monkeypatch.setattr("notebook_ranks.flight_recorder._groups", dict)
    assert [c["number"] for c in read_recorder()["collectives"]] == [3]


def test_sizes_that_may_differ_between_ranks_are_not_compared(recorded):
    recorded(
        entry(profiling_name="gloo:scatter", input_sizes=[[2, 8]], input_dtypes=["Float"]),
        entry(profiling_name="gloo:all_to_all"),
    )
    scatter, all_to_all = read_recorder()["collectives"]
    assert scatter["sizes"] == [[8]] and all_to_all["sizes"] == [] and all_to_all["dtype"] == ""


def test_a_pytorch_without_the_recorder_says_so(monkeypatch):
    monkeypatch.delattr(c10d, "_dump_fr_trace")
    assert (
        f"this PyTorch ({torch.__version__}) has no flight recorder that this kit can read"
        in (read_recorder()["missing"])
    )


@pytest.mark.parametrize("dump", [b"", b"no pickle", pickle.dumps({"entries": [{}]}), pickle.dumps([])])
def test_a_recorder_of_another_form_is_missing_with_a_reason(dump, monkeypatch):
    monkeypatch.setattr(c10d, "_dump_fr_trace", lambda: dump)
    assert "has no flight recorder that this kit can read" in read_recorder()["missing"]


@pytest.mark.parametrize(
    ("variables", "is_off"),
    [
        ({"TORCH_FR_BUFFER_SIZE": "0"}, True),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, True),  # its older name
        ({"TORCH_FR_BUFFER_SIZE": "9", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, False),
        ({"TORCH_FR_BUFFER_SIZE": "many"}, False),  # PyTorch refuses it when it reads
        ({}, False),  # PyTorch's default, and no group that it could list
    ],
)
def test_a_recorder_that_is_off(variables, is_off, recorded, monkeypatch):
    recorded()
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, size in variables.items():
        monkeypatch.setenv(name, size)
    assert read_recorder() == ({"missing": OFF} if is_off else {"collectives": [], "groups": {}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "words"), [(None, "collectives"), ("0", OFF), ("many", "Invalid value for environment variable")]
)
def test_a_process_of_its_own_without_a_call_says_whether_the_recorder_is_on(size, words, tmp_path):
    join = f"dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
    code = (
        "import torch.distributed as dist\nfrom notebook_ranks.flight_recorder import read_recorder\n"
        f"{'' if size == 'many' else join}print(read_recorder(), end='')"  # with such a size PyTorch never joins
    )
    variables = {k: v for k, v in os.environ.items() if "_BUFFER_SIZE" not in k}
    variables |= {} if size is None else {"TORCH_FR_BUFFER_SIZE": size}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=variables)
    assert words in done.stdout, done.stderr


def test_a_group_that_the_recorder_does_not_list_says_that_it_is_off(recorded, monkeypatch):
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: "cpu:gloo")
    recorded()
    assert read_recorder() == {"missing": OFF}
    listed = {"entries": [], "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0]"}}}
    monkeypatch.setattr(c10d, "_dump_fr_trace", lambda: pickle.dumps(listed))
    assert read_recorder()["collectives"] == []


def test_what_a_rank_sent_becomes_its_record():
    record = flight_record(1, {"collectives": [CALL], "groups": {"0": [0, 1]}}, {"state": "error", "frames": []})
    assert record.collectives[0].sizes == ((3, 4),) and record.groups == {"0": (0, 1)} and record.state == "error"
    assert record.collectives[0].place == (("a.py", 5), ("b.py", 9))
    assert str(record).splitlines()[1] == "  all_reduce no. 7 of [3, 4] float32, group 0, line 5 in step"


@pytest.mark.parametrize(
    ("state", "words"),
    [("died", "its process has ended"), ("silent", "it is stopped"), ("running", "it did not answer in time")],
)
def test_a_rank_without_an_answer_says_why(state, words):
    record = flight_record(0, None, {"state": state})
    assert words in record.missing and words in str(record) and record.collectives == ()


@pytest.mark.slow
def test_the_compiler_is_not_imported_for_a_look_at_the_recorder():
    code = (
        "import os, sys; os.environ['TORCH_FR_BUFFER_SIZE'] = '9'\n"
        "from notebook_ranks.flight_recorder import read_recorder\n"
        "import torch; assert 'missing' not in read_recorder(); print('torch._inductor' in sys.modules)\n"
        "print('_inductor' in vars(torch), torch._inductor.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split() == ["False", "False", "torch._inductor"]


@pytest.mark.slow
def test_the_main_thread_compiles_while_another_thread_looks_at_the_recorder():
    code = """
import pickle, threading
import torch
import torch._C._distributed_c10d as c10d
from notebook_ranks.flight_recorder import read_recorder
torch_getattr, inside, compiled, answers = torch.__getattr__, threading.Event(), threading.Event(), []

def dump():
    answers.append(hasattr(torch, "_inductor"))  # as PyTorch asks
    inside.set()
    compiled.wait(60)
    return pickle.dumps({"entries": [], "pg_config": {"0": {}}})

c10d._dump_fr_trace = dump
reader = threading.Thread(target=lambda: answers.append(read_recorder()))
reader.start()
inside.wait(60)
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item(), torch._inductor.config.__name__)
from torch import _inductor
compiled.set()
reader.join()
print(answers[0], "missing" in answers[1], torch.__getattr__ is torch_getattr, _inductor is torch._inductor)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.splitlines() == ["2.0 torch._inductor.config", "False False True True"]


@pytest.mark.slow
def test_a_send_before_an_abort_that_never_ends_does_not_keep_the_process():
    code = (
        "import os, time\nfrom notebook_ranks import flight_recorder as f\n"
        "f.ABORT_S = 1\nf.send_before_abort(lambda: (print('sending', flush=True), time.sleep(60)))\nos.abort()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout.strip() == "sending" and done.returncode == -signal.SIGALRM


@by_value
def three():
    import torch.distributed as dist

    for n in (1, 2, 3):
        dist.all_reduce(torch.ones(n))


@pytest.mark.slow
def test_the_pool_gives_the_last_call_of_each_rank(gloo_pool):
    assert Workers(1).flight_records() == {}  # it has not begun
    gloo_pool.run(len, "")
    assert [record.collectives for record in gloo_pool.flight_records().values()] == [(), ()]
    gloo_pool.run(three)
    records = gloo_pool.flight_records()
    assert [[c.sizes for c in record.collectives] for record in records.values()] == [[((1,),), ((2,),), ((3,),)]] * 2
    assert all(record.state == "done" and record.groups == {"0": (0, 1)} for record in records.values())
    assert all(isinstance(record, FlightRecord) for record in records.values())


@pytest.mark.slow
def test_a_call_that_hangs_is_looked_at_from_another_thread(gloo_pool):
    @by_value
    def wait_on_rank_0():
        import time

        import torch.distributed as dist

        if dist.get_rank():
            time.sleep(4)
        dist.barrier()
        return "done"

    gloo_pool.run(len, "")
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(gloo_pool.run(wait_on_rank_0)))
    thread.start()
    for _ in range(100):
        records = gloo_pool.flight_records()
        if records and records[0].collectives:
            break
        time.sleep(0.05)
    assert records[0].collectives[-1].name == "barrier" and records[1].collectives == ()
    thread.join(60)
    assert outcome == [["done", "done"]]


@pytest.mark.slow
def test_a_rank_that_gloo_aborts_has_sent_its_record(gloo_pool):
    @by_value
    def unequal():
        import torch.distributed as dist

        dist.all_reduce(torch.ones(1000 - 500 * dist.get_rank()))

    with pytest.raises(WorkersError, match="aborted inside") as caught:
        gloo_pool.run(unequal)
    records = caught.value.records
    assert records[1].state == "died" and [c.sizes for c in records[1].collectives] == [((500,),)]
    assert gloo_pool.flight_records() == records  # after a failure: those that were kept


@pytest.mark.slow
def test_a_killed_rank_has_no_record_and_the_others_do(gloo_pool):
    @by_value
    def killed():
        import os
        import signal

        import torch.distributed as dist

        if dist.get_rank():
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    gloo_pool.run(len, "")
    with pytest.raises(WorkersError, match="SIGKILL") as caught:
        gloo_pool.run(killed)
    assert caught.value.records[1].missing == "its process has ended"
    assert caught.value.records[0].collectives[-1].name == "barrier"
