"""A real Slurm on one machine, two nodes as namespaces: what `make slurm` runs."""

__all__ = ["box", "demonstrations"]
