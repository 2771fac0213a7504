import functools

import pytest

from d2lite import Panel


async def coroutine(lr=0.1):
    pass


async def async_generator(lr=0.1):
    yield


def generator(lr=0.1):
    yield lr


class Later:
    async def __call__(self, lr=0.1):
        pass


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (coroutine, "coroutine: expected .* got an async function"),
        (async_generator, "an async generator function"),
        (generator, "generator: expected .* got a generator function: a call only makes an object"),
        (functools.partial(generator, 1), "a generator function"),
        (Later(), "an async function"),
        (Later().__call__, "an async function"),
    ],
)
def test_what_would_run_nothing_is_refused_when_the_panel_is_made(function, kind):
    with pytest.raises(TypeError, match=kind):
        Panel(function)


@pytest.mark.parametrize("function", [coroutine, async_generator, generator])
def test_a_wrapper_that_hides_one_fails_when_it_has_returned_it(function):
    panel = Panel(lambda lr=0.1: function(lr))
    panel.train.click()
    with pytest.raises(
        TypeError, match="a training function that is done when it returns, got one that returned (a|an async) "
    ):
        panel.wait()
    assert panel.runs[0].status == "failed: TypeError" and not panel.train.disabled
    panel.close()
