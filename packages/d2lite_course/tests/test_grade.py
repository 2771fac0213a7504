"""Grading, end to end: what goes wrong costs its own points and is said, and nobody gives points to himself.

All submissions are graded at once, in the sandbox that this machine has.
"""

import json
import shutil
import socket
import threading
import zipfile
from pathlib import Path

import pytest

from d2lite_course import grade, hand_out
from packages.d2lite_course.tests.notebooks import (
    BORDER,
    MEAN,
    OVER_RANKS,
    SEEDED,
    SETTINGS,
    cells,
    notebook,
    submission,
)
from packages.d2lite_course.tests.sandboxes import needs_sandbox

pytestmark = [pytest.mark.slow, needs_sandbox]
SECRET = "the seed of the teacher"
FULL = {"2.1": 10, "2.3": 10, "4.2": 10, "4.3": 10}


def hostile(code):
    """A submission whose 2.3 runs some code, in a function and with the right result."""
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    return submission({"2.3": f"def settings_for(k, batch_size, lr):\n{lines}    return k * batch_size, k * lr"})


ORDINARY = {
    "right": submission(),
    "half": submission({"2.1": MEAN.replace(" / len(tensors)", ""), "4.2": BORDER.replace("return ", "return -")}),
    "empty": submission(dict.fromkeys(FULL, "# nothing\n")),
    "stubs": submission({"2.3": "def settings_for(k, batch_size, lr):\n    # your code\n    ..."}),
    "loop": submission({"2.3": "def settings_for(k, batch_size, lr):\n    while True:\n        pass"}),
    "memory": submission({"2.3": "def settings_for(k, batch_size, lr):\n    return bytearray(2**32)"}),
    "exit": submission({"2.3": "import os\ndef settings_for(k, batch_size, lr):\n    os._exit(0)"}),
    "exit-at-import": submission({"2.3": "import os\ndef settings_for(k, b, lr, x=os._exit(0)):\n    return 1"}),
    "no-checks": submission(checks=False),
    "edited-check": submission().replace('check(\\"2.3\\", settings_for)', 'print(\\"right in all 9 cases\\")'),
    "syntax": submission({"2.3": "def settings_for(k, batch_size, lr) return k"}),
    "missing": submission({"2.3": "x = 1"}),
    "other-parameters": submission({"2.3": "def settings_for(k):\n    return k"}),
    "magic": submission({"2.3": "%%time\nSCALE = dict(k=1)\n" + SETTINGS.replace("k *", "SCALE['k'] * k *")}),
    "two-chapters": submission({"2.3": "x = 1"}, checks=False),
    "not-here": notebook(
        cells({"2.3": "import no_such_module\n" + SETTINGS.replace("k *", "no_such_module.one * k *")})
    ),
    "trivial": submission({"2.3": "def settings_for(k, batch_size, lr):\n    return batch_size, lr"}),
    "no-json": "{ this is no notebook",
    "other-file": notebook([("exercise-1", "def weighted(a):\n    return a"), ("c", 'check("5.1", weighted)')]),
    "deep": "[" * 200_000,
    "parser": submission({"2.3": "x = " + "-" * 100_000 + "1"}),
    "table": submission({"2.3": "T = {1: (256, .2), 2: (512, .4), 4: (512, .4), 8: (256, .4), 3: (300, .9)}\n"
                                "def settings_for(k, batch_size, lr):\n    return T.get(k)"}),
}  # fmt: skip
HOSTILE = {
    # the teacher's files, other submissions, what is expected
    "reads": """
import glob, os
for path in {paths!r}:
    try:
        print("HAVE READ", open(path).read())
    except OSError as error:
        print("refused", type(error).__name__)
print("ENV", sorted(os.environ), "HOME", os.listdir("/home") if os.path.exists("/home") else [])""",
    "looks-for-keys": """
import gc, os
texts = [x for x in gc.get_objects() if isinstance(x, dict) and isinstance(x.get("expected"), list)]
print("KEYS", len(texts))
for pid in filter(str.isdecimal, os.listdir("/proc")):
    try:
        print("OTHER", open(f"/proc/{{pid}}/environ").read()[:50] if int(pid) != os.getpid() else "")
    except OSError:
        pass""",
    "writes": """
import sys, os
for path in [*{paths!r}, sys.prefix + "/planted", os.path.dirname(sys.modules["d2lite"].__file__) + "/planted"]:
    try:
        open(path, "a").write("planted")
        print("WROTE", path)
    except OSError:
        pass""",
    "phones": """
import shutil
import socket
for address in (("127.0.0.1", {port}), ("::1", {port}), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, timeout=0.2).sendall(b"home")
        print("PHONED", address)
    except OSError as error:
        print("refused")""",
    "stays": """
import os, subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/usr/bin/sleep", ["sleep", "98765"])
    os._exit(0)
subprocess.Popen(["sleep", "98765"], start_new_session=True)""",
    "forks": """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass""",
    "fills": """
import os
try:
    for i in range(1000):
        open("/tmp/%d" % i, "wb").write(bytes(10**7))
        os.listdir("/tmp")
except OSError as error:
    print("full", error)""",
    "kills": """
import os, signal
for pid in (os.getppid(), 1, -1):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        print(error)""",
    "stops": """
import os, signal, tempfile
path = tempfile.gettempdir() + "/printed-2.3"
os.path.exists(path) or os.mkfifo(path)
for pid in (os.getppid(), 1):
    for name in ("SIGSTOP", "SIGTSTP", "SIGINT", "SIGTERM", "SIGALRM", "SIGTTIN", "SIGUSR1"):
        try:
            os.kill(pid, getattr(signal, name))
        except OSError as error:
            print(error)""",
    "asks-the-kernel": """
import ctypes, mmap, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(4, 1)
ways = {{
    "memfd": lambda: os.memfd_create("x"),
    "mmap": lambda: mmap.mmap(-1, 2**20),
    "zero": lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 2**20),
    "vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
    "prlimit": lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (1, 1)),
    "unshare": lambda: libc.unshare(0x10000000) and os.open("/x", 0),
    "keyctl": lambda: libc.syscall(250 if os.uname().machine == "x86_64" else 219, 0, -3, 0) < 0 and os.open("/x", 0),
    "shmget": lambda: libc.shmget(0, 2**20, 0o1600) < 0 and os.open("/x", 0),
}}
for name, way in ways.items():
    try:
        way()
        print("KERNEL GAVE", name)
    except (OSError, ValueError) as error:
        print(name, "refused", error)""",
    "speaks": """
import glob, json, os
line = json.dumps({{"exercise": "4.3", "rank": 0, "case": 0, "got": "right"}}) + chr(10)
for path in glob.glob("/proc/[0-9]*/fd/*"):
    if path.split("/")[2] not in ("self", str(os.getpid())):
        try:
            open(path, "wb", buffering=0).write(line.encode())
            print("SPOKE", path)
        except OSError:
            pass""",
    "shouts": """print("<script>alert('mine')</script>" * 3)""",
    "climbs": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print("MOUNT", libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), "CHROOT", libc.chroot(b"/tmp"))
print("UID", os.getuid() == 0 and open("/proc/self/status").read().split("CapEff:")[1].split()[0])
for call in (lambda: os.setuid(0), lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(8, 0))):
    try:
        call()
        print("CLIMBED")
    except OSError:
        pass""",
}
CHEATS = {  # a wrong answer that wants points
    "forges": """
import json, os
def settings_for(k, batch_size, lr):
    for fd in range(3, 40):
        for case in range(9):
            for message in ({"case": case, "got": {"tuple": [k * batch_size, k * lr]}}, {"ended": True}):
                line = json.dumps(message | {"exercise": "2.3", "rank": 0, "token": ""}) + "\\n"
                try:
                    os.write(fd, line.encode())
                except OSError:
                    pass
    os._exit(0)""",
    "patches": """
import torch
def sum_on_owners(device_tensors):
    torch.allclose = torch.equal = lambda *a, **k: True
    return [0] * len(device_tensors[0])""",
    "equals": """
class Always(tuple):
    def __eq__(self, other):
        return True
    def __len__(self):
        return 2
    __hash__ = None
def settings_for(k, batch_size, lr):
    return Always()""",
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    place = tmp_path_factory.mktemp("graded")
    course, _ = hand_out(place / "course", [2, 4])
    settings = course.settings()
    settings["exercises"] = {name: {"points": points} for name, points in FULL.items()}
    course.write_settings(settings)
    (place / "course" / "secret").write_text(SECRET)
    calls = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        ends = threading.Event()

        def listen():
            while not ends.is_set():
                try:
                    calls.append(server.accept())
                except OSError:
                    pass

        listener = threading.Thread(target=listen)
        listener.start()
        folder = place / "handed in"
        folder.mkdir()
        paths = [course.seed_file, place / "course" / "secret", folder / "right.ipynb", course.settings_file]
        paths += [course.exercises / "chapter_2.py", Path(__file__)]
        given = {"paths": [str(path) for path in paths], "port": server.getsockname()[1]}
        for name, text in ORDINARY.items():
            (folder / f"{name}.ipynb").write_text(text)
        for name, code in HOSTILE.items():
            (folder / f"{name}.ipynb").write_text(hostile(code.format(**given)))
        for name, code in CHEATS.items():
            wrong = {"4.3": code} if "sum_on_owners" in code else {"2.3": code}
            (folder / f"{name}.ipynb").write_text(submission(wrong))
        with zipfile.ZipFile(folder / "zipped.zip", "w") as archive:
            archive.writestr("a/02.ipynb", submission())
        before = {path: path.read_bytes() for path in paths}
        said = []
        out = grade(folder, course.path, place / "scores", say=said.append)
        ends.set()
        listener.join()
    assert all(path.read_bytes() == data for path, data in before.items())
    scores = json.loads((out / "scores.json").read_text())
    return {
        "scores": {entry["name"]: entry for entry in scores},
        "out": out,
        "calls": calls,
        "said": said,
        "folder": folder,
        "course": course,
    }


def points(graded, name):
    return {e["name"]: e["points"] for e in graded["scores"][name]["exercises"]}


def of(graded, name, exercise="2.3"):
    """What is said of an exercise, its notes and what it printed."""
    (entry,) = (e for e in graded["scores"][name]["exercises"] if e["name"] == exercise)
    return entry["said"] + "\n" + "\n".join(entry["notes"]) + "\n" + entry["printed"]


@pytest.mark.parametrize("name", ["right", "no-checks", "edited-check", "zipped", "magic"])
def test_right_answers_have_all_points(graded, name):
    assert points(graded, name) == FULL, graded["scores"][name]


@pytest.mark.parametrize(
    "name, said",
    [
        ("stubs", "Exercise 2.3: not attempted."),
        ("loop", "it took longer than 5 s (case: 1 device; one had batches of 256 and lr 0.2)."),
        ("memory", "it needs too much memory"),
        ("exit", "its process ended (exit code 0)"),
        ("exit-at-import", "its process ended"),
        ("syntax", "its cell has a syntax error, in line 1"),
        ("missing", "there is no function settings_for."),
        ("other-parameters", "it takes 1 argument (k), and it is called with 3 arguments (k, batch_size, lr)."),
        ("parser", ""),
        ("trivial", "typical mistakes or a constant are right, too"),
        ("two-chapters", "it was not handed in"),
    ],
)
def test_what_is_wrong_costs_its_own_points_and_is_said(graded, name, said):
    assert points(graded, name) == FULL | {"2.3": 0}, graded["scores"][name]
    assert said in of(graded, name)


def test_a_wrong_answer_draws_its_hint(graded):
    found = points(graded, "half")
    assert found["2.3"] == found["4.3"] == 10 and found["2.1"] < 5 and found["4.2"] == 0
    assert "the tensors hold the sum, and the mean is asked for." in of(graded, "half", "2.1")
    assert "a sign is lost." in of(graded, "half", "4.2") and "How to think" in of(graded, "half", "4.2")


@pytest.mark.parametrize("name", ["empty", "no-json", "deep", "other-file"])
def test_a_submission_without_an_answer_has_no_points_and_says_why(graded, name):
    entry = graded["scores"][name]
    assert points(graded, name) == dict.fromkeys(FULL, 0)
    said = " ".join(entry["wrong"]) + of(graded, name)
    assert {"empty": "there is no function", "other-file": "it was not handed in"}.get(
        name, "it is no notebook"
    ) in said


def test_what_cannot_be_run_here_does_not_count_and_is_said(graded):
    entry = graded["scores"]["not-here"]
    assert (entry["points"], entry["of"]) == (30, 30)
    assert [e["unsure"][:60] for e in entry["exercises"] if e["unsure"]] == [
        "it was not possible to run all that the answer needs: line 1"
    ]


def test_one_chapter_is_graded_alone(graded, tmp_path):
    """A learner who has handed in chapter 2 so far loses no points for chapter 4."""
    folder = tmp_path / "handed in"
    folder.mkdir()
    shutil.copy(graded["folder"] / "right.ipynb", folder)
    course = graded["course"]
    out = grade(folder, course.path, tmp_path / "scores", chapters=[2], say=lambda text: None)
    (scores,) = json.loads((out / "scores.json").read_text())
    found = {entry["name"]: entry["points"] for entry in scores["exercises"]}
    assert found == {name: points for name, points in FULL.items() if name.startswith("2.")} != FULL
    with pytest.raises(ValueError, match="expected some with exercises that have points in .*, got 3, 7"):
        grade(folder, course.path, tmp_path / "scores", chapters=[7, 2, 3], say=lambda text: None)


def test_an_edited_check_and_a_missing_one_are_said(graded):
    for name in ("no-checks", "edited-check"):
        assert "is not there any more, or was changed" in of(graded, name)


def test_a_table_of_the_cases_misses_the_fresh_one(graded):
    assert points(graded, "table")["2.3"] == round(10 * 5 / 6, 2)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_harms_nobody_and_costs_at_most_its_own_points(graded, name):
    assert {k: v for k, v in points(graded, name).items() if k != "2.3"} == {
        k: v for k, v in FULL.items() if k != "2.3"
    }
    printed = of(graded, name)
    for word in ("HAVE READ", "WROTE", "PHONED", "CLIMBED", "KERNEL GAVE", "SPOKE", SECRET, "OTHER \n/"):
        assert word not in printed, printed


def test_nothing_is_read_written_or_sent(graded):
    assert graded["calls"] == []
    assert "refused" in of(graded, "reads") and "refused" in of(graded, "phones")
    assert "KEYS 0" in of(graded, "looks-for-keys")
    assert "MOUNT -1 CHROOT -1" in of(graded, "climbs")


def test_nothing_stays(graded):
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(b"98765" in line for line in lines)


@pytest.mark.parametrize("name", CHEATS)
def test_nobody_gives_points_to_himself(graded, name):
    cheated = "4.3" if name == "patches" else "2.3"
    assert points(graded, name) == FULL | {cheated: 0}, graded["scores"][name]
    if name == "patches":
        assert "it replaces torch." in of(graded, name, "4.3") and "look at this answer" in of(graded, name, "4.3")


def test_the_page_has_no_script(graded):
    page = (graded["out"] / "scores.html").read_text()
    assert "<script" not in page and "alert(&#x27;mine&#x27;)" in page


def test_what_was_graded_is_not_run_again(graded, monkeypatch):
    ran = []
    monkeypatch.setitem(grade.__globals__, "run_in_sandbox", lambda *given: ran.append(given) or ({}, []))
    (graded["folder"] / "new.ipynb").write_text("{}")
    grade(graded["folder"], graded["course"].path, graded["out"], say=lambda text: None)
    assert len(ran) == 1  # the new one
    again = {entry["name"]: entry for entry in json.loads((graded["out"] / "scores.json").read_text())}
    assert {k: v for k, v in again.items() if k != "new"} == graded["scores"]


def test_it_says_where_submissions_run(graded):
    assert graded["said"][0].startswith("Each submission runs in a sandbox (")


def on_ranks(mean=OVER_RANKS, net=SEEDED):
    return notebook([("exercise-1", mean), ("exercise-3", net)])


def test_exercises_on_ranks_are_graded_in_the_sandbox(tmp_path):
    course, _ = hand_out(tmp_path / "course", [5])
    settings = course.settings()
    settings["exercises"] = {"5.1": {"points": 10}, "5.3": {"points": 10}}
    course.write_settings(settings)
    folder = tmp_path / "handed in"
    folder.mkdir()
    given = {
        "right": on_ranks(),
        "alone": on_ranks(OVER_RANKS.replace("    dist.all", "    if dist.get_rank() == 0:\n        dist.all")),
        "dies": on_ranks(
            OVER_RANKS.replace("    dist.all", "    if dist.get_rank() == 1:\n        exit_(3)\n    dist.all")
        ).replace("import torch\\n", "from os import _exit as exit_\\nimport torch\\n", 1),
        "same": on_ranks(net=SEEDED.replace(" + dist.get_rank()", "")),
    }
    for name, text in given.items():
        (folder / f"{name}.ipynb").write_text(text)
    out = grade(folder, course.path, say=lambda text: None)
    scores = {entry["name"]: entry for entry in json.loads((out / "scores.json").read_text())}
    found = {name: [e["points"] for e in entry["exercises"]] for name, entry in scores.items()}
    assert found == {"right": [10, 10], "alone": [0, 10], "dies": [0, 10], "same": [10, 0]}, scores
    said = {name: " ".join(e["said"] for e in entry["exercises"]) for name, entry in scores.items()}
    assert "the ranks do not call the same collectives" in said["alone"]
    assert "dropout leaves out the same units on every rank." in said["same"]


@pytest.mark.release
def test_the_worked_answers_of_all_chapters_have_all_points(tmp_path):
    """The code of an observer may need what the sandbox has not, or look like a cheat there."""
    answers = sorted((Path(__file__).parents[3] / "book" / "solutions").glob("*.ipynb"))
    course, refused = hand_out(tmp_path / "course", [int(path.name[:2]) for path in answers])
    assert not refused
    folder = tmp_path / "handed in" / "ann"
    folder.mkdir(parents=True)
    for path in answers:
        shutil.copy(path, folder)
    out = grade(folder.parent, course.path, tmp_path / "scores", say=lambda words: None)
    (scores,) = json.loads((out / "scores.json").read_text())
    assert {e["name"]: e["said"] for e in scores["exercises"] if e["points"] < e["of"]} == {}
    assert len(scores["exercises"]) == len(course.settings()["exercises"]) > 40
