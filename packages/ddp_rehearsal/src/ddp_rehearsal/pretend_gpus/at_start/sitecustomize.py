"""Give a process pretend GPUs as soon as it has imported torch: Python imports this file when it starts.

It does so if this folder is in PYTHONPATH. Where the machine has real GPUs, these are used. Processes that do not
import torch do not wait for it here.
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
                pretend()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def pretend() -> None:
    """Give this process its pretend GPUs, unless it has real ones."""
    import torch

    if torch.cuda.device_count() == 0:
        from ddp_rehearsal.pretend_gpus.switch import pretend_visible_gpus

        pretend_visible_gpus()
        if request := os.environ.get("DDP_REHEARSAL_REQUEST"):
            from ddp_rehearsal.start_process import observe_program

            observe_program(json.loads(request))


if os.environ.get("D2LITE_PRETEND_GPUS"):
    sys.meta_path.insert(0, AfterTorch)
