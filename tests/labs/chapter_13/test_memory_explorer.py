"""The memory explorer: its bars are the predictions, and its words name what to change first."""

import pytest
from torch import nn

from d2lite.labs.chapter_13 import MEMORY_MODELS, MemoryExplorer, predict_memory, transformer_activations


def parts(figure):
    return {bar.name: list(bar.x) for bar in figure.data}


def test_its_bars_are_the_predictions_of_the_controls():
    shown = MemoryExplorer()
    shown.model.value, shown.ranks.value, shown.microbatch.value = "GPT-3, 175 B", 1024, 2
    model = next(model for model in MEMORY_MODELS if model.name == "GPT-3, 175 B")
    kept = transformer_activations(
        2, model.context, model.width, model.num_blocks, model.num_heads, model.num_characters, 2
    )
    expected = [predict_memory(model.num_params, "Adam", "mixed", stage, 1024, kept) for stage in range(4)]
    assert list(shown.predictions.values()) == expected
    assert parts(shown.figure)["activations"] == [kept] * 4
    assert parts(shown.figure)["state"] == [found.optimizer_n_bytes for found in expected]


def test_its_words_name_the_first_stage_that_fits():
    shown = MemoryExplorer(nn.Linear(100_000, 10_000, bias=False, device="meta"))  # 1e9 parameters: 16 GB
    assert shown.model.value == "your network" and parts(shown.figure)["activations"] == [0.0] * 4
    assert "fits from stage 0 on" in shown.summary.value
    shown.device_gb.value = 8  # stage 1 on 8 ranks has 5.5 GB
    assert "fits from stage 1 on" in shown.summary.value
    shown.ranks.value = 1
    assert "8.00 GB are missing in stage 3. Change first: more ranks" in shown.summary.value


def test_activations_are_changed_first_where_they_are_the_largest_part():
    shown = MemoryExplorer()
    shown.ranks.value, shown.microbatch.value, shown.device_gb.value = 1024, 64, 8
    assert "Change first: checkpointing" in shown.summary.value
    shown.checkpointing.value = True
    assert "Change first: a smaller microbatch" in shown.summary.value
    assert "MemoryExplorer" in repr(shown) and "microbatch" in repr(shown)


def test_its_words_name_the_sources():
    assert "arXiv:1910.02054" in MemoryExplorer().summary.value and "arXiv:2307.09288" in MemoryExplorer().summary.value
    assert "Sizes of the network" not in MemoryExplorer(nn.Linear(1, 1)).summary.value


def test_the_sizes_of_the_models_give_their_parameters():
    for model in MEMORY_MODELS[1:]:
        blocks = 12 * model.num_blocks * model.width**2  # Llama's MLP has three matrices of 2.7 times the width
        assert model.num_params == pytest.approx(blocks + model.width * model.num_characters, rel=0.05), model.name


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match="net: expected Module, got"):
        MemoryExplorer([1])
