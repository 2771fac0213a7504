"""What was computed or sent, by whom, when and how many bytes: plain records that figures are drawn from."""

from dataclasses import dataclass, field

__all__ = ["Event", "Send", "Trace"]


@dataclass(frozen=True)
class Event:
    """One span on the lane of `rank`: `kind` says what it was ("forward", "all_reduce", ...), `name` which one.

    Times are seconds since the start of the step on that rank's own clock; `n_bytes` is what was sent, 0 for computing.
    """

    rank: int
    kind: str
    name: str
    start_s: float
    end_s: float
    n_bytes: int = 0


@dataclass(frozen=True)
class Send:
    """A chunk that device `src` sent to device `dst` in a step; all four count from 0.

    `dst` added it to its own chunk (`adds`), or took it in its place. What goes from one device to another in one step
    is one message, of one chunk or of several.
    """

    step: int
    src: int
    dst: int
    chunk: int
    n_bytes: int
    adds: bool


@dataclass
class Trace:
    """What a collective sent, in the order of its steps; a collective that is given a Trace() fills it, anew each time.

    `start[i][c]` is the set of devices whose contribution is in chunk c on device i before the first step; it is empty
    where what is there does not matter. `chunk_n_bytes[c]` is the size of chunk c.
    """

    collective: str = ""
    algorithm: str = ""
    start: list = field(default_factory=list)
    chunk_n_bytes: list = field(default_factory=list)
    steps: list = field(default_factory=list)  # steps[s] is the list of Sends of step s

    @property
    def world_size(self):
        """The number of devices."""
        return len(self.start)

    @property
    def sends(self):
        """All Sends in a list."""
        return [send for sends in self.steps for send in sends]

    def sent_n_bytes(self, num_steps=None):
        """Return the bytes that each device has sent in the first `num_steps` steps, by default in all."""
        return self._sums("src", num_steps)

    def received_n_bytes(self, num_steps=None):
        """Return the bytes that each device has received in the first `num_steps` steps, by default in all."""
        return self._sums("dst", num_steps)

    def _sums(self, end, num_steps):
        sums = [0] * self.world_size
        for sends in self.steps[:num_steps]:
            for send in sends:
                sums[getattr(send, end)] += send.n_bytes
        return sums

    def whole(self):
        """Return for each chunk the set of devices whose contributions a finished chunk holds."""
        return [frozenset().union(*held) for held in zip(*self.start, strict=True)]

    def replay(self):
        """Return what is held before the first step and after each step, each like `start`.

        Raises ValueError where a device sends what it does not have, or adds a contribution a second time.
        """
        states = [[[frozenset(held) for held in row] for row in self.start]]
        for sends in self.steps:
            before, after = states[-1], [list(row) for row in states[-1]]
            for send in sends:
                sent = before[send.src][send.chunk]
                where = f"step {send.step}: device {send.src} sends chunk {send.chunk} to device {send.dst}"
                if not sent:
                    raise ValueError(f"{where}, and has none of it.")
                here = after[send.dst][send.chunk]
                twice = sorted(here & sent) if send.adds else []
                if twice:
                    raise ValueError(f"{where}, which adds the contributions of devices {twice} a second time.")
                after[send.dst][send.chunk] = here | sent if send.adds else sent
            states.append(after)
        return states
