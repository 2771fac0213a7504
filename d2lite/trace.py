"""What was computed or sent, by which device, when, and how many bytes: plain data that figures are drawn from."""

from dataclasses import dataclass, field

__all__ = ["Event", "Send", "Trace"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One span on the lane of `rank`: `kind` is what was done ("forward", "all_reduce", ...), `name` is which one.

    Times are in seconds: since the start of the step if they are predicted or merged, on the clock of a Recorder if
    they are its own. `n_bytes` is what was sent, 0 for computing.
    """

    rank: int
    kind: str
    name: str
    start_s: float
    end_s: float
    n_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Send:
    """A chunk that device `src` sent to device `dst` in a step; step, devices and chunks count from 0.

    `dst` added it to its own chunk if `adds` is True; otherwise it replaced its own chunk. All chunks that one device
    sends to another in one step are one message.
    """

    step: int
    src: int
    dst: int
    chunk: int
    n_bytes: int
    adds: bool


Contributions = list[list[frozenset[int]]]  # [device][chunk] -> the devices whose contributions it holds


@dataclass
class Trace:
    """What a collective sent, in the order of its steps; pass a Trace() to a collective, which empties and fills it.

    `steps[s]` is the list of Sends of step s, `chunk_n_bytes[c]` the size of chunk c. `start[i][c]` is the set of
    devices whose contributions chunk c on device i holds before the first step; it is empty if the algorithm does not
    read it.

    Example:
        >>> import torch
        >>> from d2lite import all_reduce
        >>> trace = Trace()
        >>> all_reduce([torch.ones(6), torch.ones(6), torch.ones(6)], "sum", "ring", trace)
        >>> trace.world_size, len(trace.steps), trace.chunk_n_bytes
        (3, 4, [8, 8, 8])
        >>> trace.sends[0]
        Send(step=0, src=0, dst=1, chunk=2, n_bytes=8, adds=True)
        >>> trace.sent_n_bytes()
        [32, 32, 32]
    """

    collective: str = ""
    algorithm: str = ""
    start: Contributions = field(default_factory=list)
    chunk_n_bytes: list[int] = field(default_factory=list)
    steps: list[list[Send]] = field(default_factory=list)

    @property
    def world_size(self) -> int:
        """The number of devices."""
        return len(self.start)

    @property
    def sends(self) -> list[Send]:
        """All Sends in a list."""
        return [send for sends in self.steps for send in sends]

    def sent_n_bytes(self, num_steps: int | None = None) -> list[int]:
        """Return the bytes that each device has sent in the first `num_steps` steps, by default in all."""
        return self._sums("src", num_steps)

    def received_n_bytes(self, num_steps: int | None = None) -> list[int]:
        """Return the bytes that each device has received in the first `num_steps` steps, by default in all."""
        return self._sums("dst", num_steps)

    def _sums(self, end: str, num_steps: int | None) -> list[int]:
        sums = [0] * self.world_size
        for sends in self.steps[:num_steps]:
            for send in sends:
                sums[getattr(send, end)] += send.n_bytes
        return sums

    def whole(self) -> list[frozenset[int]]:
        """Return for each chunk the set of devices whose contributions a complete chunk holds."""
        return [frozenset[int]().union(*held) for held in zip(*self.start, strict=True)]

    def replay(self) -> list[Contributions]:
        """Return which contributions are held before the first step and after each step, each like `start`.

        Raises ValueError if a device sends a chunk of which it holds nothing, or adds a contribution a second time.
        """
        states = [[[frozenset(held) for held in row] for row in self.start]]
        for sends in self.steps:
            before, after = states[-1], [list(row) for row in states[-1]]
            for send in sends:
                sent, own = before[send.src][send.chunk], after[send.dst][send.chunk]
                event = f"step {send.step}: device {send.src} sends chunk {send.chunk} to device {send.dst}"
                if not sent:
                    raise ValueError(f"{event}, and has none of it.")
                twice = sorted(own & sent) if send.adds else []
                if twice:
                    raise ValueError(f"{event}, which adds the contributions of devices {twice} a second time.")
                after[send.dst][send.chunk] = own | sent if send.adds else sent
            states.append(after)
        return states
