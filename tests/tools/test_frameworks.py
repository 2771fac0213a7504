"""accelerate and Lightning train in the ranks of a pool as under torchrun, where make frameworks has been run."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".frameworks" / "bin" / "python"
MADE = (ROOT / ".frameworks" / ".d2lite-stamp").exists()
pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS"),
    pytest.mark.skipif(not MADE, reason="accelerate and Lightning are not installed here: make frameworks"),
]

START = """
    import os
    import sys

    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    from d2lite import Workers

    def rows():
        return DataLoader(TensorDataset(torch.arange(16.0).reshape(16, 1)), batch_size=4)
"""
ACCELERATE = """
    def train():
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        torch.manual_seed(dist.get_rank())
        net = torch.nn.Linear(1, 1)
        net, optimizer, data = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1e-3), rows())
        seen = []
        for (X,) in data:
            optimizer.zero_grad()
            accelerator.backward(net(X).square().mean())
            optimizer.step()
            seen += X.flatten().tolist()
        weights = [p.item() for p in net.parameters()]
        return accelerator.num_processes, accelerator.process_index, seen, weights
"""
LIGHTNING = """
    def train():
        import lightning

        class Net(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net, self.seen = torch.nn.Linear(1, 1), []

            def training_step(self, batch, i):
                self.seen += batch[0].flatten().tolist()
                return self.net(batch[0]).square().mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=1e-3)

        torch.manual_seed(dist.get_rank())
        net = Net()
        quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **quiet)
        trainer.fit(net, rows())
        return trainer.world_size, trainer.global_rank, net.seen, [p.item() for p in net.parameters()]
"""
CHECK = """
    with Workers(2, timeout_s=30) as workers:
        for _ in range(2):
            (size, rank, seen, weights), (other_size, other_rank, other_seen, other_weights) = workers.run(train)
            assert (size, other_size) == (2, 2) and (rank, other_rank) == (0, 1)
            assert sorted(seen + other_seen) == list(range(16))
            assert weights == other_weights
    print("each rank had a half of the data, and both end with the same weights")
"""


@pytest.mark.parametrize("train", [ACCELERATE, LIGHTNING], ids=["accelerate", "lightning"])
def test_a_framework_trains_one_model_on_two_ranks(train, tmp_path):
    file = tmp_path / "train.py"
    file.write_text("".join(map(textwrap.dedent, (START, train, CHECK))))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([PYTHON, file], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("each rank had a half of the data, and both end with the same weights\n")


def test_the_environment_leaves_that_of_the_book_alone():
    code = "import importlib.util as u; print([u.find_spec(m) is None for m in ('accelerate', 'lightning')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[True, True]"
