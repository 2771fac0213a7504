"""The pretend GPUs that a rehearsal runs on where the machine has too few real ones."""

from d2lite.pretend_gpus import pretend_gpus as install_pretend_gpus

__all__ = ["install_pretend_gpus"]
