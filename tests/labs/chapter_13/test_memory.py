"""The memory of a rank: ZeRO's own table, and the activations that autograd keeps of the transformer."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from d2lite import Transformer
from d2lite.labs.chapter_13 import OPTIMIZER_NUMBERS, predict_memory, transformer_activations
from d2lite.profiling import bytes_held

# Rajbhandari et al. 2020, arXiv:1910.02054v3, Table 1 (section 5.4): GB per device for stages 1, 2, 3; Adam in mixed
# precision. Compared with a public transcription of the table; the last digits are rounded or cut off there.
TABLE = {
    7.5e9: {
        1: (120, 120, 120), 4: (52.5, 41.3, 30), 16: (35.6, 21.6, 7.5),
        64: (31.4, 16.6, 1.88), 256: (30.4, 15.4, 0.47), 1024: (30.1, 15.1, 0.12),
    },
    128e9: {
        1: (2048, 2048, 2048), 4: (896, 704, 512), 16: (608, 368, 128),
        64: (536, 284, 32), 256: (518, 263, 8), 1024: (513, 257, 2),
    },
    1e12: {
        1: (16000, 16000, 16000), 4: (7000, 5500, 4000), 16: (4750, 2875, 1000),
        64: (4187, 2218, 250), 256: (4046, 2054, 62.5), 1024: (4011, 2013, 15.6),
    },
}  # fmt: skip


@pytest.mark.parametrize("num_params", TABLE)
def test_the_table_of_the_paper(num_params):
    for k, published in TABLE[num_params].items():
        for stage, gb in enumerate(published, start=1):
            found = predict_memory(num_params, stage=stage, k=k).total_n_bytes / 1e9
            assert found == pytest.approx(gb, rel=0.003, abs=0.005), (k, stage)


def test_what_more_gpus_save_of_llama_in_a_report():
    # github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, Tables 1 and 3: FSDP, Llama 3.1 8B,
    # microbatch 2: 82.4 GiB on each of 8 GPUs, and 67.0 on each of 128; compiled, 77.0 and 62.0
    on_8, on_128 = (predict_memory(8.03e9, "Adam", "float32", 3, k).total_n_bytes / 2**30 for k in (8, 128))
    for reported in (82.4 - 67.0, 77.0 - 62.0):
        assert on_8 - on_128 == pytest.approx(reported, rel=0.1)


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("optimizer", OPTIMIZER_NUMBERS)
def test_float64_takes_twice_the_bytes_of_float32(optimizer, stage):
    half, whole = (predict_memory(1e6, optimizer, precision, stage, 4) for precision in ("float32", "float64"))
    for name in ("parameters", "gradients", "optimizer"):
        assert getattr(whole, f"{name}_n_bytes") == 2 * getattr(half, f"{name}_n_bytes"), name


@pytest.mark.parametrize("optimizer", OPTIMIZER_NUMBERS)
def test_one_device_in_float32_is_what_torch_holds(optimizer):
    net, X = Transformer(32, 2), torch.zeros(2, 8, dtype=torch.int64)
    make = {
        "SGD": torch.optim.SGD,
        "SGD with momentum": lambda params, lr: torch.optim.SGD(params, lr, momentum=0.9),
        "Adam": torch.optim.Adam,
    }[optimizer]
    held = bytes_held(net.parameters(), net, X, make_optimizer=make)
    n = sum(p.numel() for p in net.parameters())
    found = predict_memory(n, optimizer, "float32")
    assert (found.parameters_n_bytes, found.gradients_n_bytes) == (held["parameters"], held["gradients"])
    # Adam keeps a count of its steps beside each parameter: 4 bytes
    assert 0 <= held["optimizer"] - found.optimizer_n_bytes <= 4 * len(list(net.parameters()))


@pytest.mark.parametrize("sizes", [(8, 64, 128, 4, 4), (4, 32, 256, 2, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations_are_what_autograd_keeps(sizes, dtype):
    b, t, width, num_blocks, num_heads = sizes
    net, X = Transformer(width, num_blocks, num_heads).to(dtype), torch.zeros(b, t, dtype=torch.int64)

    def loss(X):
        return F.cross_entropy(net(X).flatten(0, 1), X.flatten())

    counted = bytes_held(net.parameters(), loss, X)["activations"]
    assert transformer_activations(*sizes, 96, dtype.itemsize) == pytest.approx(counted, rel=0.01)


def test_attention_in_blocks_keeps_no_scores(monkeypatch):
    def forward(self, X):
        q, k, v = (layer(X).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    net, X = Transformer(context=128), torch.zeros(4, 128, dtype=torch.int64)
    monkeypatch.setattr(type(net.blocks[0].attention), "forward", forward)
    counted = bytes_held(net.parameters(), lambda X: F.cross_entropy(net(X).flatten(0, 1), X.flatten()), X)
    sizes = (4, 128, 128, 4, 4, 96)
    assert transformer_activations(*sizes, keep_scores=False) == pytest.approx(counted["activations"], rel=0.01)
    assert transformer_activations(*sizes) > 1.2 * counted["activations"]


def test_checkpointing_keeps_the_inputs_of_the_blocks():
    net, X = Transformer(), torch.zeros(16, 64, dtype=torch.int64)

    def loss(X):
        h = net.embedding(X)
        for block in net.blocks:
            h = checkpoint(block, h, use_reentrant=False)
        return F.cross_entropy(net.head(h).flatten(0, 1), X.flatten())

    counted = bytes_held(net.parameters(), loss, X)["activations"]
    block = 4 * (16 * 16 * 64 * 128 + 4 * 16 * 64 * 64)  # is computed again in the backward pass
    found = transformer_activations(16, 64, 128, 4, 4, 96, checkpointing=True)
    assert found - block == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"optimizer": "adam"}, "optimizer: expected one of SGD, SGD with momentum, Adam, got 'adam'"),
        ({"precision": "int8"}, "precision: expected one of float64, float32, bfloat16, mixed"),
        ({"stage": 4}, "stage: expected a whole number from 0 to 3"),
        ({"k": 0}, "k: expected a positive whole number"),
        ({"num_params": -1.0}, "num_params: expected a finite number from 0 on"),
    ],
)
def test_wrong_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        predict_memory(**{"num_params": 1e6} | arguments)
    with pytest.raises(TypeError):
        transformer_activations(1.5, 8, 8, 1, 1, 96)


@pytest.mark.parametrize("switch", ["checkpointing", "keep_scores"])
def test_a_switch_is_on_or_off(switch):
    with pytest.raises(TypeError, match=f"{switch}: expected True or False, got 'no'"):
        transformer_activations(1, 8, 8, 1, 1, 96, **{switch: "no"})
