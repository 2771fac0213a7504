"""The memory of FSDP: published peaks, its parts, and the bytes of the loss as PyTorch holds them."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d2lite.labs.chapter_13 import (
    LOSS_N_BYTES,
    MEMORY_MODELS,
    PUBLISHED_MEMORY,
    predict_fsdp_memory,
    predict_memory,
    transformer_activations,
)

LLAMA = next(model for model in MEMORY_MODELS if model.name == "Llama 2, 7 B")


@pytest.mark.parametrize("run", PUBLISHED_MEMORY, ids=lambda run: run.name)
def test_a_published_peak_is_close_or_the_row_says_what_is_left_out(run):
    assert abs(run.difference) < 0.15 or (run.why and -0.25 < run.difference < -0.15)


def test_what_more_gpus_save_of_llama():
    of_8, of_128 = (next(run for run in PUBLISHED_MEMORY if f"8 B on {k} GPUs" == run.name) for k in (8, 128))
    assert of_8.predicted_gib - of_128.predicted_gib == pytest.approx(of_8.gib - of_128.gib, rel=0.35)


class Live(TorchDispatchMode):
    """Counts the bytes of the storages that operations have made and that are alive."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and (storage := tensor.untyped_storage())._cdata not in self.known:
                self.known.add(storage._cdata)
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self.forget, storage._cdata, storage.nbytes())
        return out

    def forget(self, key, n_bytes):
        self.known.discard(key)
        self.now -= n_bytes


def test_the_loss_holds_fourteen_bytes_for_each_logit():
    h, weight = (torch.randn(n, 8, dtype=torch.bfloat16, requires_grad=True) for n in (512, 4000))
    y = torch.randint(0, 4000, (512,))
    with Live() as live:
        logits = h @ weight.T
        F.cross_entropy(logits.float(), y).backward()
    assert live.most / (512 * 4000) == pytest.approx(LOSS_N_BYTES, rel=0.02)


def test_what_is_sharded_falls_with_more_ranks_and_nothing_else():
    few, many = (predict_fsdp_memory(LLAMA, k) for k in (8, 64))
    assert many.parameters_n_bytes == few.parameters_n_bytes / 8 == 4 * LLAMA.num_params / 64
    assert many.optimizer_n_bytes == 2 * many.parameters_n_bytes == few.optimizer_n_bytes / 8
    assert (many.gathered_n_bytes, many.activations_n_bytes) == (few.gathered_n_bytes, few.activations_n_bytes)
    alone = predict_fsdp_memory(LLAMA, 1)
    assert alone.gathered_n_bytes == 0
    whole = predict_memory(LLAMA.num_params, "Adam", "float32", 3, 8)
    assert few.parameters_n_bytes == whole.parameters_n_bytes and few.optimizer_n_bytes == whole.optimizer_n_bytes


def test_a_pipeline_holds_its_gradients_complete_and_its_first_microbatches():
    options = {"num_microbatches": 8, "checkpointing": True}
    staged = predict_fsdp_memory(LLAMA, 8, pipe=4, **options)
    assert staged.gradients_n_bytes == 4 * LLAMA.num_params / 4 and staged.loss_n_bytes == 0
    fewer = predict_fsdp_memory(LLAMA, 8, pipe=4, num_microbatches=2, checkpointing=True)
    inputs = staged.activations_n_bytes - fewer.activations_n_bytes
    assert inputs == pytest.approx(2 * 8 * 2 * LLAMA.context * LLAMA.width)  # 2 microbatches, 8 blocks of this stage


@pytest.mark.parametrize(("first", "second"), [(False, "selective"), ("selective", True)])
def test_checkpointing_keeps_fewer_activations(first, second):
    more, less = (predict_fsdp_memory(LLAMA, 64, checkpointing=c).total_n_bytes for c in (first, second))
    assert less < more
    sizes = (1, 128, 64, 8, 4, 10)
    assert transformer_activations(*sizes, checkpointing=first) > transformer_activations(*sizes, checkpointing=second)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"shards": 0}, ValueError, "shards: expected a positive whole number"),
        ({"shards": 8, "tensor": 0}, ValueError, "tensor: expected a positive whole number"),
        ({"shards": 8, "precision": "mixed"}, ValueError, "precision: expected 'float32' or 'bfloat16'"),
        ({"shards": 8, "checkpointing": "full"}, TypeError, "checkpointing: expected True or False"),
    ],
)
def test_wrong_input_is_refused(arguments, kind, message):
    with pytest.raises(kind, match=message):
        predict_fsdp_memory(LLAMA, **arguments)
