"""torchrun on each host: the command, the processes, what they said."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.cluster.forks import Program
from tools.cluster.hosts import ROOT, free_port, loopback
from tools.cluster.processes import end, tree

__all__ = ["Job", "command", "environment", "last_words", "torchrun"]

PORT = 29500  # inside namespaces, where nobody else can listen
_ERROR = re.compile(r"^(\[rank\d+\]: )?[\w.]*(Error|Exception)\b|Signal \d+ \(\w+\) received")
# Linux: an agent whose starter is killed is told to end, and ends its workers; it keeps its process id.
_LEASH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def command(
    host, endpoint, nnodes, args, job="job1", is_host=None, max_restarts=0, join_timeout_s=60, workers_per_host=1
):
    """Return the torchrun command of one host; `is_host` None: the first serves the rendezvous.

    `nnodes` is "2", or "1:2" for a job that may lose a host; `args` is what torchrun shall run: a script or -m and a
    module, and their arguments.
    """
    serves = host.number == 0 if is_host is None else is_host
    conf = {
        "is_host": int(serves),
        "join_timeout": join_timeout_s,
        "read_timeout": join_timeout_s,
        "last_call_timeout": 2,
        "keep_alive_interval": 2,
        "keep_alive_max_attempt": 2,
    }
    return [
        *host.prefix,
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nnodes={nnodes}",
        f"--nproc-per-node={workers_per_host}",
        f"--max-restarts={max_restarts}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-id={job}",
        f"--local-addr={host.address}",
        "--rdzv-conf=" + ",".join(f"{name}={value}" for name, value in conf.items()),
        *args,
    ]


def environment(host, folder, interface=None):
    """Return a host's environment: one thread per rank, gloo on its interface, temporary files in `folder`.

    GPUs are hidden: the hosts share one machine, and each would take the first. The workers do not share the store of
    the agents: after a restart they would find their predecessors' addresses in it (pytorch issue 135712).
    """
    mine = {
        "GLOO_SOCKET_IFNAME": interface or host.interface,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TMPDIR": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
    }
    return {k: v for k, v in os.environ.items() if not k.startswith(("MASTER_", "TORCHELASTIC_"))} | mine


def _leashed(words):
    return [sys.executable, "-c", _LEASH, str(os.getpid()), *words] if sys.platform == "linux" else words


def _start(programs, folder):
    """Start programs, (words, environment, file for the output) each.

    Return (processes, those of them or above them whose end with all that they have started leaves nothing).
    """
    for _, _, output in programs:
        Path(output).touch()
    common = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "start_new_session": True}  # Ctrl-C is ours to handle
    if sys.platform == "linux" and all(words[0] == sys.executable for words, _, _ in programs):
        folder = Path(tempfile.mkdtemp(dir=folder))
        (folder / "programs.json").write_text(json.dumps(programs, default=str))
        words = _leashed([sys.executable, "-m", "tools.cluster.forks", str(folder)])
        with open(folder / "output.txt", "wb") as output:
            starter = subprocess.Popen(words, env=programs[0][1], stdout=output, stderr=output, **common)
        return [Program(starter, folder, number) for number in range(len(programs))], [starter]
    started = []
    try:
        for words, env, output in programs:
            with open(output, "wb") as file:
                started.append(subprocess.Popen(_leashed(words), env=env, stdout=file, stderr=file, **common))
    except BaseException:
        _end(started)
        raise
    return started, started


def _end(roots):
    """Kill what is left of processes, with all that they have started."""
    running = [root for root in roots if root.poll() is None]
    end([root.pid for root in running])
    for root in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            root.wait(5)


class Job:
    """One torchrun on every host of a cluster. A context manager: leaving it ends what still runs.

    `settings` are those of `command`; `each` may hold a dict of settings for every host. `interface` is what
    the hosts are told instead of their own. `hurt` holds the hosts that `kill_host` and `silence_host` were called for.
    """

    def __init__(self, cluster, args, interface=None, port=None, each=None, **settings):
        self.cluster, self.hurt = cluster, set()
        self._undo = contextlib.ExitStack()
        first = cluster.hosts[0]
        self.endpoint = f"{first.address}:{port or (PORT if first.space else free_port())}"
        settings = {"nnodes": str(len(cluster.hosts)), "args": args} | settings
        programs = [
            (
                command(host, self.endpoint, **(settings | own)),
                environment(host, cluster.folder, interface),
                self._said(host.number),
            )
            for host, own in zip(cluster.hosts, each or [{}] * len(cluster.hosts), strict=True)
        ]
        self.agents, self._roots = _start(programs, cluster.folder)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()

    def _said(self, number):
        return self.cluster.folder / f"host-{number}.txt"

    def said(self, number):
        """Return what a host's torchrun and its worker have written so far."""
        return self._said(number).read_text(errors="replace")

    def codes(self):
        """Return the exit codes of the agents, None for one that runs."""
        return [agent.poll() for agent in self.agents]

    def wait(self, limit_s):
        """Wait until all agents have ended, at most `limit_s`; return their exit codes (None: it still runs)."""
        deadline = time.monotonic() + limit_s
        while None in self.codes() and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.codes()

    def pids(self, number):
        """Return the processes of one host: the agent first, then its workers."""
        return tree(self.agents[number].pid)

    def kill_host(self, number):
        """Kill all that runs on a host at once."""
        self.hurt.add(number)
        end([self.agents[number].pid])

    def silence_host(self, number, limit_s=60):
        """Stop (SIGSTOP) all that runs on a host: its connections stay open, and nobody answers.

        A helper process does it, and kills what it has stopped after `limit_s` seconds, should this process be gone.
        """
        self.hurt.add(number)
        script = f'kill -STOP "$@"; sleep {limit_s}; kill -KILL "$@"'
        pids = [str(pid) for pid in self.pids(number)]
        helper = subprocess.Popen(["sh", "-c", script, "sh", *pids], start_new_session=True)
        self._undo.callback(helper.wait)
        self._undo.callback(end, [helper.pid])

    def end(self):
        """Kill what is left on all hosts."""
        self._undo.close()
        _end(self._roots)


def last_words(text, most=1):
    """Return the last `most` lines in which a host names an error or a signal, without repetitions; else its last."""
    lines = [line.strip() for line in text.splitlines()]
    errors = [line for line in lines if _ERROR.search(line)]
    return list(dict.fromkeys(errors))[-most:] or [line for line in lines if line][-most:]


def torchrun(num_hosts, workers_per_host, script, *arguments, limit_s=120):
    """Run a script under plain torchruns, one per host, all on this machine and without GPUs.

    Prints the commands, then all that the hosts have written. Raises subprocess.TimeoutExpired where a host takes more
    than `limit_s` seconds. Nothing is left running.
    """
    port, programs = free_port(), []
    with loopback(num_hosts) as cluster:
        for host in cluster.hosts:
            options = [f"--nnodes={num_hosts}", f"--node-rank={host.number}", f"--nproc-per-node={workers_per_host}"]
            options += ["--master-addr=127.0.0.1", f"--master-port={port}"]
            print(f"host {host.number}$ torchrun", *options, Path(script).name, "...")
            words = [sys.executable, "-m", "torch.distributed.run", *options, script, *arguments]
            said = cluster.folder / f"host-{host.number}.txt"
            programs.append((words, environment(host, cluster.folder), said))
        agents, roots = _start(programs, cluster.folder)
        try:
            for agent in agents:
                agent.wait(limit_s)
            print(*[said.read_text(errors="replace") for _, _, said in programs])
        finally:
            for agent in agents:  # after an interrupt: give torchrun time to end its workers
                if agent.poll() is None:
                    os.kill(agent.pid, signal.SIGTERM)
            for agent in agents:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    agent.wait(10)
            _end(roots)
