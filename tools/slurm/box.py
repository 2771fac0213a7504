"""Two nodes on one machine, with a real Slurm: a controller on node1, a slurmd on both, authentication by munge.

A node is a host of tools.cluster with a host name, processes and mounts of its own. Whatever runs on it ends with its
first process, and that one ends with this program, however this program ends.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.cluster import agents, hosts
from tools.cluster.processes import end, tree

__all__ = ["Box", "NODES", "running_slurm", "slurm_conf", "version", "why_not"]

NODES = ("node1", "node2")
_PROGRAMS = {
    "slurm-wlm": ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo"),
    "munge": ("munged",),
    "util-linux": ("unshare", "nsenter", "setpriv", "mount"),
}
_START_S = 60  # until both nodes are idle
_LONGEST = 107 - len("/notebook-ranks-12345678/run/munge.socket")  # the path of a socket has 107 characters at most
# The first process of a node: its mounts are its own, and so are its host name and its processes. The folder "run" is
# empty until a node mounts memory there, so both nodes have the same paths and different sockets in them.
_FIRST_PROCESS = """
set -e
echo "$1" > /proc/sys/kernel/hostname
cd "$2"
mount -t tmpfs none run
mount -t tmpfs none /sys/fs/cgroup
mount --bind hosts /etc/hosts
munged --foreground --force --key-file="$2/munge.key" --socket="$2/run/munge.socket" --seed-file="$2/run/munge.seed" \
    --pid-file="$2/run/munged.pid" &
for _ in $(seq 200); do [ -S run/munge.socket ] || sleep 0.05; done
shift 2
for program in "$@"; do $program -D -f "$SLURM_CONF" & done
wait
"""


def why_not():
    """Return why there can be no Slurm here, in a few words, or "" where it can be."""
    if why := hosts.why_no_namespaces():
        return why
    lacking = {package: [p for p in programs if not shutil.which(p)] for package, programs in _PROGRAMS.items()}
    if any(lacking.values()):
        programs = ", ".join(program for found in lacking.values() for program in found)
        packages = " ".join(package for package, found in lacking.items() if found)
        return f"these programs are not installed: {programs} (Debian, Ubuntu: apt-get install {packages})"
    if len(folder := tempfile.gettempdir()) > _LONGEST:
        return f"TMPDIR, {folder}, is too long for the paths of sockets: set it to one of {_LONGEST} characters at most"
    return ""


def version():
    """Return Slurm's version, such as "22.05.8"."""
    return subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, timeout=20).stdout.split()[-1]


def slurm_conf(folder, addresses):
    """Return the text of slurm.conf for nodes with these addresses: one core each, and short time-outs."""
    settings = {
        "ClusterName": "d2lite",
        "SlurmctldHost": f"{NODES[0]}({addresses[0]})",
        "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",  # listen on the node's address alone
        "AuthType": "auth/munge",
        # a job that is requeued starts again after cred_expire seconds; 120 by default
        "AuthInfo": f"socket={folder}/run/munge.socket,cred_expire=5",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool-%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/slurmd.pid",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerParameters": "sched_interval=2,bf_interval=2",
        "ReturnToService": "2",  # a node that comes back is used again
        "SlurmdTimeout": "10",  # a node that is silent for so many seconds is down; 300 by default
        "KillWait": "5",  # from SIGTERM to SIGKILL at the time limit; 30 by default
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += [f"NodeName={name} NodeAddr={address} CPUs=1" for name, address in zip(NODES, addresses, strict=True)]
    return "\n".join([*lines, "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE", ""])


@dataclass
class Box:
    """A Slurm that runs: `home` is the folder that both nodes see, and where commands run."""

    cluster: hosts.Cluster
    home: Path
    processes: dict  # of each node that is on: what keeps its first process

    def words(self, command, node=0):
        """Return a command as the words that run it on a node, in `home`."""
        first = tree(self.processes[node].pid)[1]
        enter = ["nsenter", f"--target={first}", "--mount", "--uts", "--net", "--pid", "--"]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', str(self.home), *command]

    def environment(self, node=0):
        """Return the environment of commands on a node; jobs get that of their sbatch."""
        folder = self.cluster.folder
        env = agents.environment(self.cluster.hosts[node], folder / "tmp")
        path = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
        own = {"PATH": path, "SLURM_CONF": f"{folder}/etc/slurm.conf", "HOME": str(self.home)}
        own |= {"HISTFILE": "", "PS1": rf"{NODES[node]}:\w\$ "}
        return {k: v for k, v in env.items() if not k.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))} | own

    def run(self, line, node=0, limit_s=30):
        """Run a line of shell on a node and return what it prints.

        Raises RuntimeError with what it has said where it fails, subprocess.TimeoutExpired after `limit_s` seconds.
        """
        done = subprocess.run(
            self.words(["bash", "-c", line], node),
            env=self.environment(node),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
        )
        if done.returncode:
            raise RuntimeError(f"{NODES[node]}: `{line}` said: {done.stdout.strip() or done.returncode}")
        return done.stdout.rstrip()

    def wait(self, condition, limit_s, what):
        """Wait until `condition()` is true and return it; TimeoutError, with the ends of the logs, after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {limit_s} s.\n{self.logs()}")
            time.sleep(0.2)
        return found

    def state(self, job):
        """Return a job's state, such as "PENDING", "RUNNING" or "COMPLETED"; of an array the states, joined by "+"."""
        return "+".join(re.findall(r"JobState=(\w+)", self.run(f"scontrol show job {job}")))

    def idle(self):
        """Return how many nodes are idle; 0 while the controller does not answer."""
        with contextlib.suppress(RuntimeError, IndexError):  # IndexError: the first process is not there yet
            return len(self.run("sinfo --noheader --Node --states=idle").splitlines())
        return 0

    def logs(self, most=5):
        """Return the last lines of what the nodes' programs and the jobs have written."""
        paths = sorted([*self.cluster.folder.glob("*.log"), *self.home.glob("*.txt")])
        return "\n".join(
            f"{path.name}:\n" + "\n".join(path.read_text(errors="replace").splitlines()[-most:]) for path in paths
        )

    def power_on(self, node):
        """Start a node's first process, and with it munged, slurmd and, on the first node, slurmctld."""
        self.cluster.mend(node)
        folder, host = self.cluster.folder, self.cluster.hosts[node]
        programs = ["slurmctld", "slurmd"] if node == 0 else ["slurmd"]
        with open(folder / f"{NODES[node]}.log", "ab") as log:
            self.processes[node] = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig=KILL"),  # should this program be killed
                    *host.prefix,
                    *("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"),
                    *("sh", "-c", _FIRST_PROCESS, "sh", NODES[node], str(folder), *programs),
                ],
                env=self.environment(node),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours to handle
            )

    def power_off(self, node):
        """Cut a node's cable, then kill all that runs on it: no connection is closed, as when the power fails."""
        self.cluster.cut(node)
        self.kill(node)

    def kill(self, node):
        """Kill all that runs on a node."""
        process = self.processes.pop(node)
        end([process.pid])
        process.wait(5)


@contextlib.contextmanager
def running_slurm():
    """Start Slurm on two nodes, hand it out once both are idle, and leave nothing of it behind.

    Raises RuntimeError where it cannot run here, TimeoutError, with the ends of the logs, where it does not start.
    """
    if why := why_not():
        raise RuntimeError(f"no Slurm: {why}.")
    with hosts.namespaces(len(NODES)) as cluster, contextlib.ExitStack() as undo:
        folder = cluster.folder
        for name in ("etc", "home", "run", "state", "tmp", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        addresses = [host.address for host in cluster.hosts]
        names = zip(["127.0.0.1", *addresses], ["localhost", *NODES], strict=True)
        # in both notations: torchrun looks for the name of an address in that of IPv6
        (folder / "hosts").write_text(
            "".join(f"{address} {name}\n::ffff:{address} {name}\n" for address, name in names)
        )
        (folder / "etc" / "slurm.conf").write_text(slurm_conf(folder, addresses))
        # older versions want a plugin, and are content with v1 and nothing in it
        plugin = "disabled" if tuple(map(int, version().split(".")[:2])) >= (24, 5) else "cgroup/v1"
        (folder / "etc" / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")
        (folder / "munge.key").touch(mode=0o600)
        (folder / "munge.key").write_bytes(os.urandom(128))
        box = Box(cluster, folder / "home", {})
        for node in range(len(NODES)):
            undo.callback(lambda node=node: node in box.processes and box.kill(node))
            box.power_on(node)
        box.wait(lambda: box.idle() == len(NODES), _START_S, "all nodes are idle")
        yield box
