"""Pipes: whole messages in any pieces, and a notebook's end that never waits."""

import os
import socket
import threading

import pytest

from notebook_ranks.pipe import NotebookEnd, RankEnd, pack


@pytest.fixture
def ends():
    mine, their = socket.socketpair()
    notebook, rank = NotebookEnd(mine), RankEnd(their.detach())
    yield notebook, rank
    notebook.close()
    rank.socket.close()


def test_messages_arrive_whole_in_whatever_pieces(ends):
    notebook, rank = ends
    sent = b"".join(part for message in (1, "two", {"three": b"3" * 1000}) for part in pack(message))
    received = []
    for byte in sent:
        rank.socket.sendall(bytes([byte]))
        received += notebook.receive()
    assert received == [1, "two", {"three": b"3" * 1000}] and not notebook.closed
    assert notebook.n_received == len(sent)


def test_what_a_pipe_cannot_take_is_sent_later_and_in_order(ends):
    notebook, rank = ends
    large = pack(bytes(5_000_000))
    for parts in (large, pack("next"), large):
        notebook.send(parts)  # returns, although nobody receives
    assert notebook.unsent and notebook.flush() == 0
    received = []
    thread = threading.Thread(target=lambda: received.extend(rank.receive() for _ in range(3)))
    thread.start()
    while notebook.unsent:
        notebook.flush()
    thread.join(20)
    assert [len(message) for message in received] == [5_000_000, 4, 5_000_000]


@pytest.mark.parametrize("junk", [b"", b"half", (5).to_bytes(8, "big") + b"no!!!", (2**50).to_bytes(8, "big")])
def test_an_end_and_what_is_no_message_close_the_pipe(ends, junk):
    notebook, rank = ends
    rank.send("before")
    rank.socket.sendall(junk)
    if len(junk) < 8:
        rank.socket.close()
        notebook.receive()
        assert notebook.receive() == []
    else:
        assert notebook.receive() == ["before"]
    assert notebook.closed


def test_nothing_is_sent_to_a_closed_end(ends):
    notebook, rank = ends
    rank.socket.close()
    notebook.send(pack(bytes(5_000_000)))
    assert not notebook.unsent and notebook.receive() == [] and notebook.closed


def test_a_rank_without_its_notebook_finds_out(ends):
    notebook, rank = ends
    notebook.close()
    with pytest.raises(EOFError):
        rank.receive()
    with pytest.raises(OSError):
        rank.send("to nobody")


def test_messages_of_two_threads_of_a_rank_do_not_mix(ends):
    notebook, rank = ends
    other = threading.Thread(target=rank.send, args=("other",))

    class Pipe:
        """The other thread begins to send when the first one is in the middle of its message."""

        def sendall(self, data, sendall=rank.socket.sendall):
            sendall(data)
            if other.ident is None:
                other.start()
                other.join(0.2)  # it waits for the first one

    socket, rank.socket = rank.socket, Pipe()
    rank.send("one")
    other.join(20)
    rank.socket = socket
    assert notebook.receive() == ["one", "other"] and not notebook.closed


def test_a_program_that_a_rank_starts_does_not_have_its_pipe():
    mine, their = socket.socketpair()
    descriptor = their.detach()
    os.set_inheritable(descriptor, True)  # as a rank gets it from the program that starts it
    rank = RankEnd(descriptor)
    assert not os.get_inheritable(descriptor)
    rank.socket.close()
    mine.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_of_a_rank_sends_nothing(ends):
    notebook, rank = ends
    with rank.lock:  # another thread of the rank sends
        child = os.fork()
        if not child:
            rank.send("from the child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert notebook.receive() == [] and not notebook.closed
    assert not os.get_inheritable(rank.socket.fileno())
