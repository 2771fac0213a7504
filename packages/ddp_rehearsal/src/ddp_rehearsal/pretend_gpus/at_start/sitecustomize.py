"""Give a process pretend GPUs, or an observer, as soon as it has imported torch: Python imports this file first.

Python does so if this folder is in PYTHONPATH. Where the machine has real GPUs, these are used. A program that a
rehearsed script starts is observed. Processes that do not import torch do not wait for it here.
"""

import importlib.machinery
import json
import os
import sys
from typing import Any

__all__ = []


class AfterTorch:
    """Finds torch like any other module, and has the pretend GPUs put in as soon as it is imported."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        """Return where torch is; None for any other module."""
        if name != "torch":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                begin()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def begin() -> None:
    """Give this process its pretend GPUs, unless it has real ones, and the observer that a rehearsal asks for."""
    import torch

    if os.environ.get("D2LITE_PRETEND_GPUS") and torch.cuda.device_count() == 0:
        from ddp_rehearsal.pretend_gpus.switch import pretend_visible_gpus

        pretend_visible_gpus()
    if request := os.environ.get("DDP_REHEARSAL_REQUEST"):
        from ddp_rehearsal.start_process import observe_program

        observe_program(json.loads(request))


if os.environ.get("D2LITE_PRETEND_GPUS") or os.environ.get("DDP_REHEARSAL_REQUEST"):
    sys.meta_path.insert(0, AfterTorch)
