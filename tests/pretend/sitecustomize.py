"""Give kernels and ranks pretend GPUs: Python imports this module when it starts, if its folder is on the path.

Where the machine has real GPUs, these are used.
"""

import os

if os.environ.get("D2LITE_PRETEND_GPUS"):
    import torch

    if torch.cuda.device_count() == 0:
        import pretend_gpus

        pretend_gpus.install(int(os.environ["D2LITE_PRETEND_GPUS"]))
