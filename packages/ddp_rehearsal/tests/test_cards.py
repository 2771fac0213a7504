"""Cards: their memory ends, their names and capabilities are told, and wrong names are refused."""

import subprocess
import sys

import pytest

from ddp_rehearsal import rehearse
from ddp_rehearsal.pretend_gpus.cards import CARDS, card_of

CODE = """
import torch
from ddp_rehearsal.pretend_gpus import pretend_gpus
from ddp_rehearsal.pretend_gpus.cards import Card
from ddp_rehearsal.pretend_gpus.devices import choose_card
pretend_gpus(2)
choose_card(Card("small card", 1, (7, 5)))
assert torch.cuda.get_device_capability() == (7, 5) and not torch.cuda.is_bf16_supported(including_emulation=False)
assert torch.cuda.get_device_properties(1).total_memory == 10**9 and "small card" in torch.cuda.get_device_name()
first = torch.empty(200_000_000, device="cuda:0")
second = torch.empty(200_000_000, device="cuda:1")
try:
    torch.empty(100_000_000, device="cuda:0")
except torch.OutOfMemoryError as error:
    print(error)
del first
torch.empty(100_000_000, device="cuda:0")
assert torch.cuda.mem_get_info(1)[1] == 10**9
"""


@pytest.mark.slow
def test_the_memory_of_a_card_ends():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "CUDA out of memory. Tried to allocate 0.37 GiB. GPU 0 has a total capacity of 0.93 GiB" in done.stdout
    assert "Predicted for a small card" in done.stdout


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("t4", 16e9), ("H100", 80e9), ("24GB", 24e9), ("141 gb", 141e9), (" A100-40GB ", 40e9)]
)
def test_names(text, n_bytes):
    assert card_of(text).n_bytes == n_bytes


@pytest.mark.parametrize("text", ["", "k80", "0GB", "-3GB", "24", "GB"])
def test_unknown_cards(text, tmp_path):
    with pytest.raises(ValueError, match="card: expected one of t4, .*, or a size such as 24GB, got"):
        card_of(text)
    script = tmp_path / "train.py"
    script.write_text("")
    if text:
        with pytest.raises(ValueError, match="card: expected one of"):
            rehearse(str(script), card=text)


def test_all_are_known_by_their_names():
    assert all(card_of(name) is card for name, card in CARDS.items())
