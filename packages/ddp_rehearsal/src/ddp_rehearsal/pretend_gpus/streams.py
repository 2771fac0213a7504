"""Streams and events: everything is computed at once, and an event reads the CPU's clock."""

import contextlib
import threading
import time
from typing import Any

import torch

from ddp_rehearsal.pretend_gpus.devices import gpu_index, replace
from ddp_rehearsal.pretend_gpus.said_once import say_once

__all__ = ["pretend_streams"]

CLOCK = "elapsed_time is time on this CPU. It says nothing about a GPU's time."
_current = threading.local()  # `streams` of a thread: {index of a GPU: its current stream}


class Event:
    """`torch.cuda.Event`: a moment on the clock of this CPU."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self.enable_timing, self.moment = enable_timing, 0.0

    def record(self, stream: Any = None) -> None:
        """Keep this moment."""
        self.moment = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds from this event to `end`; raise ValueError as PyTorch does if there are none."""
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.moment and end.moment):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        say_once(CLOCK)
        return (end.moment - self.moment) * 1e3

    def query(self) -> bool:
        """Return True: everything before is computed."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait(self, stream: Any = None) -> None:
        """Wait for nothing."""


class DeviceEvent(Event):
    """`torch.Event`, which takes a device first."""

    def __init__(self, device: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class Stream:
    """`torch.cuda.Stream`: what is put in it is computed at once."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device, self.priority = torch.device("cuda", gpu_index(device)), priority
        self.device_index, self.device_type, self.stream_id, self.cuda_stream = self.device.index, 1, 0, 0

    def __enter__(self) -> "Stream":
        self.before = current_stream(self.device)
        set_stream(self)
        return self

    def __exit__(self, *error: object) -> None:
        set_stream(self.before)

    def query(self) -> bool:
        """Return True: everything is computed."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_stream(self, stream: Any) -> None:
        """Wait for nothing."""

    def wait_event(self, event: Any) -> None:
        """Wait for nothing."""

    def is_capturing(self) -> bool:
        """Return False: there are no CUDA graphs."""
        return False

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, by default a new one, and return it."""
        event = event or Event()
        event.record()
        return event


_default: dict[int, Stream] = {}  # index of a GPU -> its default stream


def default_stream(device: Any = None) -> Stream:
    """Return the default stream of a GPU."""
    return _default.setdefault(gpu_index(device), Stream(device))


def current_stream(device: Any = None) -> Stream:
    """Return the current stream of a GPU in this thread."""
    return vars(_current).get("streams", {}).get(gpu_index(device)) or default_stream(device)


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one of its GPU, in this thread."""
    if stream is not None:
        vars(_current).setdefault("streams", {})[stream.device.index] = stream


def pretend_streams() -> None:
    """Let torch.cuda and torch.accelerator have streams and events."""
    cuda: dict[str, Any] = {
        "Event": Event,
        "Stream": Stream,
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
        "stream": lambda stream: contextlib.nullcontext() if stream is None else stream,
        "is_current_stream_capturing": lambda: False,
    }
    replace(cuda, torch.cuda)
    replace({"Event": Event, "Stream": Stream}, torch.cuda.streams)
    replace({"Event": DeviceEvent, "Stream": Stream}, torch)
    replace({"record_stream": lambda tensor, stream: None}, torch.Tensor)  # its C++ wants a real stream
    replace({"current_stream": current_stream, "set_stream": set_stream}, torch.accelerator)
