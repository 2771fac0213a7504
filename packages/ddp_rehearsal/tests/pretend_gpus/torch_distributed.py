"""PyTorch's own tests of torch.distributed, which come with its wheel, on pretend GPUs; they need `expecttest`.

With the environment of `test_torch_distributed.py`, `python torch_distributed.py 1 4` runs the second of four shards,
and `python torch_distributed.py 0 1 test_get_rank` one test. The last line that it prints is a JSON object, {test:
outcome}. An outcome is "passed", "skipped: <reason>" or "failed: <what the ranks said>".
"""

import json
import os
import sys
import time
import unittest
import zlib

import torch
from torch import nn
from torch.testing._internal import common_distributed
from torch.testing._internal.distributed import distributed_test as theirs

from ddp_rehearsal.pretend_gpus.devices import forget_use


class TorchDistributed(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
    """PyTorch's tests. Ranks are forks of a process that has imported everything, which spares most of the time."""

    def setUp(self):
        super().setUp()
        theirs.INIT_METHOD = os.environ["INIT_METHOD"]  # a file in the folder of this test
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, *args, **kwargs):
        forget_use()
        super()._run(*args, **kwargs)


class Outcomes(unittest.TestResult):
    """Notes the outcome of each test by its name."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def note(self, test, outcome):
        self.found[test.id().split(".")[-1]] = outcome

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, f"skipped: {reason}")

    def addFailure(self, test, error):
        self.note(test, f"failed: {error[1]}")

    addError = addFailure


def small_resnet():
    """In place of a ResNet-50 on images of a million pixels, for which a CPU needs seconds per step."""
    from torchvision.models.resnet import BasicBlock, ResNet

    class Narrow(ResNet):
        def _make_layer(self, block, planes, *args, **kwargs):
            return super()._make_layer(block, planes // 8, *args, **kwargs)

    net = Narrow(BasicBlock, [1, 1, 1, 1])
    net.conv1 = nn.Sequential(nn.AvgPool2d(16), net.conv1)
    net.fc = nn.Linear(64, 10)
    return net


def main(shard, n_shards, *names):
    common_distributed.TIMEOUT_OVERRIDE.clear()
    theirs.MASTER_PORT = int(os.environ["MASTER_PORT"]) - 1  # one test takes the next port
    if theirs.HAS_TORCHVISION:
        theirs.torchvision.models.resnet50 = small_resnet
    outcomes = Outcomes()
    for name in names or unittest.defaultTestLoader.getTestCaseNames(TorchDistributed):
        if zlib.crc32(name.encode()) % int(n_shards) == int(shard):
            began = time.monotonic()
            TorchDistributed(name).run(outcomes)
            print(f"{name}: {outcomes.found[name].split(':')[0]} in {time.monotonic() - began:.1f} s", flush=True)
    print(json.dumps(outcomes.found))


if __name__ == "__main__":
    main(*sys.argv[1:])
