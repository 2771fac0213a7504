"""Give kernels and ranks pretend GPUs: Python imports this module when it starts, if its folder is on the path.

Where the machine has real GPUs, these are used. Processes that do not import torch do not wait for it here.
"""

import importlib.machinery
import os
import sys


class AfterTorch:
    """Finds torch like any other module, and has the pretend GPUs put in as soon as it is imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                install_pretend_gpus()

            spec.loader.exec_module = exec_module
        return spec


def install_pretend_gpus():
    import torch

    if torch.cuda.device_count() == 0:
        import pretend_gpus

        pretend_gpus.install(int(os.environ["D2LITE_PRETEND_GPUS"]))


if os.environ.get("D2LITE_PRETEND_GPUS"):
    sys.meta_path.insert(0, AfterTorch)
