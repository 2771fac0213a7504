"""Several hosts on one machine, each with a torchrun of its own: what `make cluster` runs, and chapter 7 with it."""

__all__ = ["agents", "delay", "faults", "forks", "hosts", "links", "processes", "speed"]
