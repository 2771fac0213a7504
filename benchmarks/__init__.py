"""Side by side with peers, in one run: `python -m benchmarks`, on a card `python -m benchmarks.gpu`."""

__all__ = []
