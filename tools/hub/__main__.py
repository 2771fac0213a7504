"""`make hub`, `python -m tools.hub`: JupyterHub on this machine alone, with an account and a copy of the book for each.

It listens on the loopback address. All servers run as you, so learners are not protected from each other: it is for
trying a class, and for people who may see each other's files. docs/teaching.md says more.
"""

import argparse
import signal
import socket
import sys
from pathlib import Path

from tools.hub.install import ROOT, install
from tools.hub.running_hub import running_hub

__all__ = ["main"]

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main(argv=None):
    """Start the hub, print where it is, and end it on Ctrl-C; return the exit status."""
    args = _parse(argv)
    try:
        install()
        _check_port(args.port)
        for number in ENDING:
            signal.signal(number, _interrupt)
        print(f"Copies of the book are in {args.folder / 'learners'}.", flush=True)
        hub = running_hub(args.learners, args.folder, args.port, args.book, args.most_servers)
        with hub as running:
            print(f"The hub is at {running.url}", flush=True)
            print(f"Learners: {', '.join(args.learners)}; password of all: {running.password}", flush=True)
            print("Ctrl-C stops it, with all servers and kernels.", flush=True)
            try:
                while True:
                    signal.pause()
            finally:
                for number in ENDING:
                    signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C would leave servers behind
                print("\nStopping servers and kernels ...", flush=True)
        print("Stopped.", flush=True)
    except KeyboardInterrupt:
        print("Stopped.", flush=True)
    except (RuntimeError, ValueError, OSError) as error:
        print(f"d2lite hub: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(argv):
    parser = argparse.ArgumentParser(prog="python -m tools.hub", description=__doc__)
    parser.add_argument("--learners", nargs="+", default=["ada", "ben", "cem"], metavar="NAME", help="the accounts")
    parser.add_argument("--port", type=int, default=8000, help="on 127.0.0.1, 8000 unless given")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".hub", help="for the learners' folders, .hub unless given"
    )
    parser.add_argument("--book", type=Path, help="a folder to copy for each, such as my-course/students")
    parser.add_argument(
        "--most-servers", type=int, default=0, help="so many servers at a time; 0, the default, means all"
    )
    args = parser.parse_args(argv)
    if args.book is not None and not (args.book / "book" / "index.ipynb").exists():
        parser.error(f"--book: expected a folder with book/index.ipynb in it, got {args.book}")
    return args


def _interrupt(*_):
    raise KeyboardInterrupt


def _check_port(port):
    """RuntimeError if something listens at the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise RuntimeError(
                f"--port: expected a free port, got {port} ({error.strerror}). Choose another."
            ) from None


if __name__ == "__main__":
    sys.exit(main())
