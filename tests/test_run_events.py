import threading

import pytest

from d2lite.run_events import Stopped, emit, listening


def test_a_listener_hears_its_own_thread_only():
    has_listener = []
    with listening(lambda event, **facts: has_listener.append((event, facts))):
        emit("point", x=1)
        other = threading.Thread(target=emit, args=("elsewhere",))
        other.start()
        other.join()
    emit("after")
    assert has_listener == [("point", {"x": 1})]


def test_stopped_passes_through_except_exception():
    def listener(event, **facts):
        raise Stopped

    with pytest.raises(Stopped), listening(listener):
        try:
            emit("minibatch")
        except Exception:
            pytest.fail("swallowed")
    emit("minibatch")  # nobody listens any more
