"""Streams and events: everything is computed at once, and an event reads the CPU's clock."""

import contextlib
import threading
import time
from typing import Any

import torch

from ddp_rehearsal.pretend_gpus.devices import DeviceLike, current_device, gpu_index, replace, set_device
from ddp_rehearsal.pretend_gpus.said_once import say_once

__all__ = ["pretend_streams"]

CLOCK = "elapsed_time is time on this CPU. It says nothing about a GPU's time."
_streams = threading.local()  # `streams` of a thread: {index of a GPU: its current stream}


class PretendEvent:
    """`torch.cuda.Event`: a moment on the clock of this CPU."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self.enable_timing, self.moment = enable_timing, 0.0

    def record(self, stream: object = None) -> None:
        """Keep this moment."""
        self.moment = time.perf_counter()

    def elapsed_time(self, end: "PretendEvent") -> float:
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

    def wait(self, stream: object = None) -> None:
        """Wait for nothing."""


class PretendDeviceEvent(PretendEvent):
    """`torch.Event`, which takes a device first."""

    def __init__(self, device: DeviceLike = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class PretendStream:
    """`torch.cuda.Stream`: what is put in it is computed at once."""

    def __init__(self, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> None:
        self.device, self.priority = torch.device("cuda", gpu_index(device)), priority
        self.device_index, self.device_type, self.stream_id, self.cuda_stream = self.device.index, 1, 0, 0

    def __enter__(self) -> "PretendStream":
        self.device_before, self.before = current_device(), current_stream(self.device)
        set_stream(self)
        return self

    def __exit__(self, *error: object) -> None:
        set_stream(self.before)
        set_device(self.device_before)

    def query(self) -> bool:
        """Return True: everything is computed."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_stream(self, stream: object) -> None:
        """Wait for nothing."""

    def wait_event(self, event: object) -> None:
        """Wait for nothing."""

    def is_capturing(self) -> bool:
        """Return False: there are no CUDA graphs."""
        return False

    def record_event(self, event: PretendEvent | None = None) -> PretendEvent:
        """Record an event, by default a new one, and return it."""
        event = event or PretendEvent()
        event.record()
        return event


_default_streams: dict[int, PretendStream] = {}  # index of a GPU -> its default stream


def default_stream(device: DeviceLike = None) -> PretendStream:
    """Return the default stream of a GPU."""
    return _default_streams.setdefault(gpu_index(device), PretendStream(device))


def current_stream(device: DeviceLike = None) -> PretendStream:
    """Return the current stream of a GPU in this thread."""
    return vars(_streams).get("streams", {}).get(gpu_index(device)) or default_stream(device)


def set_stream(stream: PretendStream | None) -> None:
    """Make a stream the current one of its GPU, and its GPU the current one, in this thread."""
    if stream is not None:
        set_device(stream.device)
        vars(_streams).setdefault("streams", {})[stream.device.index] = stream


def pretend_streams() -> None:
    """Let torch.cuda and torch.accelerator have streams and events."""
    cuda: dict[str, Any] = {
        "Event": PretendEvent,
        "Stream": PretendStream,
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
        "stream": lambda stream: contextlib.nullcontext() if stream is None else stream,
        "is_current_stream_capturing": lambda: False,
    }
    replace(cuda, torch.cuda)
    replace({"Event": PretendEvent, "Stream": PretendStream}, torch.cuda.streams)
    replace({"Event": PretendDeviceEvent, "Stream": PretendStream}, torch)
    replace({"record_stream": lambda tensor, stream: None}, torch.Tensor)  # its C++ wants a real stream
    replace({"current_stream": current_stream, "set_stream": set_stream}, torch.accelerator)
