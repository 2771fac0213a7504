import threading

import pytest

from d2lite.events import Stopped, listening, tell


def test_a_listener_hears_its_own_thread_only():
    heard = []
    with listening(lambda event, **facts: heard.append((event, facts))):
        tell("point", x=1)
        other = threading.Thread(target=tell, args=("elsewhere",))
        other.start()
        other.join()
    tell("after")
    assert heard == [("point", {"x": 1})]


def test_stopped_passes_through_except_exception():
    def listener(event, **facts):
        raise Stopped

    with pytest.raises(Stopped), listening(listener):
        try:
            tell("minibatch")
        except Exception:
            pytest.fail("swallowed")
    tell("minibatch")  # nobody listens any more
