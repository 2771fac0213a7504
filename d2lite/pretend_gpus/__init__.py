"""Pretend GPUs: a machine without GPUs behaves as if it had k of them; values are real, speed and memory are not."""

from d2lite.pretend_gpus.switch import pretend_gpus, pretend_gpus_environment, pretend_visible_gpus

__all__ = ["pretend_gpus", "pretend_gpus_environment", "pretend_visible_gpus"]
