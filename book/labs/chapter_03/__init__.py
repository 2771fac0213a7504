"""The laboratory of chapter 3, data parallelism in a few lines: the names that lessons of D2L call."""

__all__: list[str] = []
