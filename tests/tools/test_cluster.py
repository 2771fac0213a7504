"""Several hosts on one machine: the commands, the arithmetic, the story of a fault. Nothing is started here."""

import ast
import json
import re
import socket
import sys
import time
from pathlib import Path

import nbformat
import pytest

from tools.cluster import __main__ as cli
from tools.cluster import agents, delay_without_netem, faults, hosts, link_figures, links, rings, speed
from tools.cluster.hosts import Host

ROOT = Path(__file__).parents[2]


def test_the_command_of_each_host():
    first, second = (Host(i, links.address(i), "eth0", ["ip", "netns", "exec", f"n{i}"], f"n{i}") for i in range(2))
    words = agents.command(first, "10.77.0.1:29500", "1:2", ["a.py", "--x"], max_restarts=2, join_timeout_s=7)
    assert words[:4] == ["ip", "netns", "exec", "n0"] and words[4:7] == [sys.executable, "-m", "torch.distributed.run"]
    assert words[-2:] == ["a.py", "--x"]
    assert {"--nnodes=1:2", "--max-restarts=2", "--rdzv-endpoint=10.77.0.1:29500", "--local-addr=10.77.0.1"} <= set(
        words
    )
    conf = next(word for word in words if word.startswith("--rdzv-conf="))
    assert conf.startswith("--rdzv-conf=is_host=1,join_timeout=7,") and "keep_alive_interval=2" in conf
    assert "is_host=0," in " ".join(agents.command(second, "10.77.0.1:29500", "2", []))
    assert "is_host=1," in " ".join(agents.command(second, "10.77.0.1:29500", "2", [], is_host=True))


def test_the_environment_names_the_interface_and_leaves_the_old_meeting_out(monkeypatch, tmp_path):
    monkeypatch.setenv("MASTER_PORT", "1")
    env = agents.environment(Host(0, "10.77.0.1", "eth0"), tmp_path)
    assert env["GLOO_SOCKET_IFNAME"] == "eth0" and env["OMP_NUM_THREADS"] == "1" and env["TMPDIR"] == str(tmp_path)
    assert env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1" and "MASTER_PORT" not in env


@pytest.mark.parametrize(
    ("mbit", "delay_ms", "netem", "expected"),
    [
        (None, 0, True, []),
        (None, 0, False, []),
        (100, 5, True, ["netem limit 10000 delay 5ms rate 100mbit"]),
        (None, 0.1, True, ["netem limit 10000 delay 0.1ms"]),
        (25, 0, True, ["netem limit 10000 rate 25mbit"]),
        (25, 5, False, ["tbf rate 25mbit burst 65536 latency 400ms"]),
        (1000, 0, False, ["tbf rate 1000mbit burst 1250000 latency 400ms"]),
        (None, 5, False, []),
    ],
)
def test_a_link_is_shaped(mbit, delay_ms, netem, expected):
    commands = [" ".join(words) for words in links.shape("s", mbit, delay_ms, netem)]
    assert commands == [f"tc -n s qdisc replace dev eth0 root {words}" for words in expected]
    assert all("port1" in words for words in links.shape("s", 25, 0, netem, links.port(1)))


def test_links_have_names():
    assert links.link_name(None, 0) == "not limited, no delay added"
    assert links.link_name(1000, 0.1) == "1 Gb/s, 0.1 ms" and links.link_name(25, 5) == "25 Mb/s, 5 ms"


def test_the_prediction():
    assert speed.predicted_step_s(0.1, 1000, 2) == 0.1
    assert speed.predicted_step_s(0.1, 1000, 2, 1000) == pytest.approx(1.1)  # 2(k-1)/k = 1
    assert speed.predicted_step_s(0.1, 1000, 4, 1000) == pytest.approx(1.6)
    assert speed.predicted_step_s(0.1, 1000, 4, 1000, 0.01, 3) == pytest.approx(1.6 + 3 * 6 * 0.01)
    assert speed.predicted_step_s(0.1, 1000, 1, 1000, 0.01, 3) == 0.1


def record(mbit, delay_ms, k=2, small=0.001):
    nets = {"LeNet": {"n_bytes": 1_000_000, "all_reduces": 2, "compute_s": 0.1, "step_s": [0.3, 0.2]}}
    about = {"mbit": mbit, "delay_ms": delay_ms, "where": "here", "world_size": k, "small_all_reduce_s": small}
    return about | {"nets": nets}


def test_rows_predict_from_the_first_record_and_fit_nothing():
    free, slow = speed.rows([record(None, 0), record(8, 5, small=0.5)])
    assert free["step_s"] == 0.25 and free["predicted_s"] == pytest.approx(0.1 + 2 * 2 * 0.0005)
    assert slow["predicted_s"] == pytest.approx(0.1 + 1.0 + 2 * 2 * (0.0005 + 0.005))
    text = speed.table([record(None, 0), record(8, 5)])
    assert "8 Mb/s, 5 ms" in text and "predicted" in text and text.count(" 0.1000 ") == 2  # computing
    assert len(text.splitlines()) == 3


def test_the_answer_to_the_gap_of_the_chapter_is_the_formula_of_the_table():
    def tree_of(source):
        node = next(n for n in ast.walk(ast.parse(source)) if getattr(n, "name", "") == "predicted_step_s")
        node.body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
        return ast.dump(node)

    chapter = nbformat.read(ROOT / "book" / "solutions" / "07-many-machines.ipynb", as_version=4)
    shown = next(cell.source for cell in chapter.cells if cell.id == "predict")
    assert tree_of(shown) == tree_of(Path(speed.__file__).read_text())


def test_the_kept_figures_say_where_they_were_measured():
    text = cli.RESULT.read_text()
    kept = json.loads(text)
    assert kept["schema"] == speed.SCHEMA and kept["command"].startswith("python -m tools.cluster")
    assert kept["machine"]["cores"] >= 1 and kept["machine"]["torch"] and kept["machine"]["date"]
    assert not re.search(r"/(home|root|tmp|work|Users)\b", text)
    assert all("network namespaces" in found["where"] for found in [*kept["links"], *kept["faults"]])
    assert {told["fault"] for told in kept["faults"]} == set(faults.FAULTS)
    assert {row["hosts"] for row in speed.rows(kept["links"])} == {2, 4}


def test_the_figure_shows_what_was_measured_on_two_hosts_and_what_is_predicted():
    figure = link_figures.bandwidth_figure([record(None, 0), record(8, 5, small=0.5), record(8, 0, k=4)])
    marks, line = figure.data
    assert marks.name == "LeNet, 5 ms" and tuple(marks.x) == tuple(line.x) == (8,)
    assert tuple(marks.y) == (0.25,) and line.y[0] == pytest.approx(0.1 + 1.0 + 2 * 2 * (0.0005 + 0.005))


def test_the_sliders_move_the_prediction():
    explorer = link_figures.hosts_explorer(speed.predicted_step_s)
    assert list(explorer.controls) == ["mbit", "latency_ms", "compute_ms", "n_bytes"]
    for mbit in (100, 1000):
        explorer.controls["mbit"].value = mbit
        ideal, predicted = explorer.figure.data
        values = {name: control.value for name, control in explorer.controls.items()}
        expected = link_figures.times_as_fast(speed.predicted_step_s, **values)
        assert list(predicted.y) == pytest.approx(expected) and list(ideal.y) == list(link_figures.HOSTS)
        two_s = speed.predicted_step_s(0.05, 516_272, 2, mbit * 1e6 / 8)
        assert expected[0] == 1 and expected[1] == pytest.approx(0.1 / two_s)


def event(when, kind, pid, **facts):
    return {"time": when, "event": kind, "pid": pid, "rank": 0, "world_size": 2, "steps": 10} | facts


def test_the_story_of_a_fault():
    steps = [event(10 + i / 10, "step", 1, done=i) for i in range(16)]
    error = event(11.75, "error", 1, type="RuntimeError", message="[pair.cc:1] Read error. This is typically caused by")
    again = [event(14, "start", 2, world_size=1), event(15, "step", 2, done=10, world_size=1)]
    log = [*steps, error, *again, event(16, "finished", 2)]
    told = faults.story(log, [(11.8, "torchrun of host 1: its worker ended with -9")], 11.55, 40, {0: 0, 1: 1})
    assert told["done"] == 15 and told["lost_steps"] == 5 and told["ranks"] == 1
    assert told["noticed_by"] == "worker 0: Read error" and told["noticed_s"] == pytest.approx(0.2)
    assert told["resumed_s"] == pytest.approx(3.45) and told["end"] == "all 40 steps done (host 1: exit 1)"

    nobody = faults.story(steps, [], 11.55, 40, {1: None})
    assert nobody["noticed_by"] is None and nobody["resumed_s"] is None and nobody["lost_steps"] == 5
    assert nobody["end"] == "over; 10 of 40 steps are in the checkpoint (host 1: still waiting)"
    text = faults.table([{"fault": "kill a host"} | told, {"fault": "cut the link"} | nobody])
    assert "| 1 rank " in text and "| –" in text and "still waiting) |" in text and len(text.splitlines()) == 4


def test_what_an_agent_writes_is_read():
    said = (
        "W0102 03:04:05.678000 99 torch/distributed/elastic/x.py:1] Sending process 1 closing signal SIGTERM\n"
        "E0102 03:04:06.250000 99 torch/distributed/elastic/x.py:9] failed (exitcode: -9) local_rank: 0 (pid: 7) of x\n"
    )
    [(when, text)] = faults.agent_notices(said, 1)
    assert text == "torchrun of host 1: its worker ended with -9" and when % 1 == pytest.approx(0.25)


def test_last_words():
    said = "starting\n  raise ValueError\nValueError: too few\nValueError: too few\n====\n"
    assert agents.last_words(said) == ["ValueError: too few"] and agents.last_words("a\nb\n\n", 2) == ["a", "b"]


def test_a_cut_short_line_of_a_diary_is_left_out(tmp_path):
    (tmp_path / "rank-0-1.jsonl").write_text('{"time": 2}\n{"ti')
    (tmp_path / "rank-1-2.jsonl").write_text('{"time": 1}\n')
    assert faults.read_log(tmp_path) == [{"time": 1}, {"time": 2}]


def test_the_delay_line_holds_packets_back_and_drops_what_is_for_nobody():
    ours, theirs = {}, {}
    for i in (1, 2):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        a.setblocking(False)
        b.settimeout(10)
        ours[bytes([10, 77, 0, i])], theirs[i] = a, b
    try:
        packet = bytes(10 + 16) + bytes([10, 77, 0, 2]) + b"hello"
        theirs[1].send(packet)
        theirs[1].send(bytes(10 + 16) + bytes([10, 77, 0, 9]))
        start = time.monotonic()
        delay_without_netem.relay({address: s.fileno() for address, s in ours.items()}, 0.05, rounds=3)
        assert theirs[2].recv(100) == packet and time.monotonic() - start >= 0.05
        theirs[2].setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs[2].recv(100)
    finally:
        for s in [*ours.values(), *theirs.values()]:
            s.close()


@pytest.mark.parametrize(
    "wrong",
    [["fly"], ["--hosts", "1"], ["--bandwidths", "0"], ["--delays", "-1"], ["--timeout-s", "nan"], ["--faults", "x"]],
)
def test_wrong_arguments(wrong, capsys):
    with pytest.raises(SystemExit):
        cli.main(wrong)
    assert re.search("expected|invalid choice", capsys.readouterr().err)


def test_which_links_are_measured():
    args = cli._parse(["--hosts", "2", "4", "--bandwidths", "100", "25", "--delays", "0", "5"])
    assert cli._links(args, "") == [
        *((2, None, 0), (2, 100, 0), (2, 25, 0), (2, 100, 5), (2, 25, 5)),
        *((4, None, 0), (4, 100, 0), (4, 25, 0)),
    ]
    assert cli._links(args, "not root") == [(2, None, 0)]


def test_unknown_faults_and_cables():
    with hosts.loopback(2) as cluster:
        with pytest.raises(ValueError, match="expected a function of the job, or one of kill a worker"):
            faults.inject(cluster, "earthquake")
        with pytest.raises(ValueError, match="no cable"):
            faults.inject(cluster, "cut the link")


def test_without_namespaces_it_says_why_and_takes_loopback(monkeypatch, capsys):
    monkeypatch.setattr(hosts.shutil, "which", lambda name: None)
    assert "iproute2" in hosts.why_no_namespaces() or sys.platform != "linux"
    monkeypatch.setattr(cli.speed, "measure", lambda *args: record(None, 0) if args[3] else None)
    assert cli.main(["speed"]) == 0
    out = capsys.readouterr().out
    assert "No network namespaces: " in out and "loopback" in out and "LeNet" in out


def ring_record(per_host=1, **seconds):
    """A job of four ranks that sum a million bytes over cables of 8 Mb/s: a second for a million bytes."""
    return {
        **{"hosts": 4 // per_host, "per_host": per_host, "world_size": 4, "mbit": 8, "delay_ms": 0, "n_bytes": 1e6},
        **{"small_s": 0.001, "message_s": 0.002, "seconds": seconds},
    }


def test_all_reduces_are_predicted_from_single_messages():
    naive, ring = rings.rows([ring_record(naive=[6.5, 6.2, 99.0], ring=[2.6])])
    assert naive["measured_s"] == 6.5 and naive["predicted_s"] == pytest.approx(6 * 1.001)
    assert ring["predicted_s"] == pytest.approx(6 * (0.001 + 0.25))
    assert ring["measured_factor"] == 2.5 and ring["predicted_factor"] == pytest.approx(6.006 / 1.506)
    (_, two) = rings.rows([ring_record(2, naive=[4.2], **{"two-level": [1.1]})])
    inside = 2 * (0.001 + 0.5e6 / 1e9)  # two ranks of a host, a million bytes in a millisecond
    assert two["predicted_s"] == pytest.approx(inside + 2 * (0.001 + 0.5))


def test_the_table_of_rings_has_a_line_for_each():
    lines = rings.table([ring_record(naive=[6.5], ring=[2.6])]).splitlines()
    assert len(lines) == 3 and "8 Mb/s" in lines[1] and lines[2].split()[-2:] == ["2.50", "3.99"]


def test_rings_without_namespaces_say_so(monkeypatch, capsys):
    monkeypatch.setattr(hosts, "why_no_namespaces", lambda: "this is a test")
    assert rings.main([]) == 1
    assert "No network namespaces: this is a test." in capsys.readouterr().out


def test_kept_rings_are_of_this_schema():
    kept = json.loads((ROOT / "benchmarks/results/rings.json").read_text())
    assert kept["schema"] == rings.SCHEMA and kept["command"].startswith("python -m tools.cluster.rings")
    for row in rings.rows(kept["records"]):
        assert row["measured_s"] > 0.85 * row["predicted_s"], row  # nothing is faster than its cables
