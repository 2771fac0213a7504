"""The bytes that a rank holds under FSDP at the peak of a step, predicted, and published figures beside them."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from notebook_ranks.shared.checks import instance_of, positive_int

from .memory import LOSS_N_BYTES, MEMORY_MODELS, MemoryModel, MemoryPrediction, transformer_activations

__all__ = ["GATHERED", "PUBLISHED_MEMORY", "REDUCED", "PublishedMemory", "predict_fsdp_memory"]

GATHERED, REDUCED = 2, 4  # bytes of a number that is gathered, and of a gradient that is reduced


def predict_fsdp_memory(
    model: MemoryModel,
    shards: int,
    *,
    tensor: int = 1,
    pipe: int = 1,
    num_microbatches: int = 1,
    microbatch: int = 1,
    checkpointing: bool | str = False,
    precision: str = "float32",
) -> MemoryPrediction:
    """Return the MemoryPrediction of one of the ranks that hold most, with Adam, at the peak of a step.

    A rank keeps 1/`shards` of the parameters of its stage and of its part of the layers. With "float32" the parts have
    32 bits and what is gathered 16; with "bfloat16" everything has 16. Without a pipeline two layers are gathered at a
    time, and the gradient of one; with one the whole stage stays gathered, and its gradients are complete and have 32
    bits until the end of the step, as in torchtitan. The first stage of a 1F1B schedule keeps `pipe` microbatches. The
    loss, whose logits are divided among the ranks of `tensor`, and the block that is computed again are not there at
    the same time; the larger one counts.

    Raises ValueError or TypeError as `transformer_activations` does, and ValueError for another precision.
    """
    instance_of("model", model, MemoryModel)
    sizes = {"shards": shards, "tensor": tensor, "pipe": pipe, "num_microbatches": num_microbatches}
    for name, number in sizes.items():
        positive_int(name, number)
    if precision not in ("float32", "bfloat16"):
        raise ValueError(f"precision: expected 'float32' or 'bfloat16', got {precision!r}.")
    part = 4 if precision == "float32" else 2
    params = model.num_params / (pipe * tensor)
    ends = 2 * model.num_characters * model.width  # embedding and head
    layer = (model.num_params - ends) / model.num_blocks / tensor
    gradients = part * params / shards
    gathered = 0.0
    if pipe > 1:
        gradients, gathered = 4 * params, GATHERED * params + REDUCED * layer
    elif shards > 1:
        gathered = (2 * GATHERED + REDUCED) * layer + GATHERED * ends / tensor

    def kept(num_blocks: int, checkpointing: bool | str) -> float:
        one_text = (microbatch, model.context, model.width, num_blocks, model.num_heads, 1)
        return transformer_activations(*one_text, bytes_per_number=2, checkpointing=checkpointing, keep_scores=False)

    per_block = kept(2, checkpointing) - kept(1, checkpointing)
    again = (kept(2, False) - kept(1, False) - per_block) / tensor if checkpointing else 0.0
    held = min(num_microbatches, pipe)
    places = microbatch * model.context
    loss = (LOSS_N_BYTES * places * model.num_characters) / tensor if pipe == 1 else 0.0
    inputs = 2 * 2 * places * model.width  # of a layer, gathered over `tensor`, and its gradient
    is_in_loss = loss > again + gradients
    activations = held * model.num_blocks / pipe * per_block / tensor + inputs + (0.0 if is_in_loss else again)
    return MemoryPrediction(
        parameters_n_bytes=part * params / shards,
        gradients_n_bytes=0.0 if is_in_loss else gradients,
        optimizer_n_bytes=2 * part * params / shards,
        activations_n_bytes=activations,
        gathered_n_bytes=gathered,
        loss_n_bytes=loss if is_in_loss else 0.0,
    )


def _llama(name: str, num_params: float, width: int, num_blocks: int, num_heads: int, source: str) -> MemoryModel:
    return MemoryModel(
        name,
        num_params=num_params,
        width=width,
        num_blocks=num_blocks,
        num_heads=num_heads,
        context=8192,
        num_characters=128_256,
        source=source,
    )


@dataclass(frozen=True)
class PublishedMemory:
    """A published peak of a GPU's memory in GiB, and the run: its network, and what `predict_fsdp_memory` takes.

    `why` says what the formula leaves out where it misses by more than 15%.
    """

    name: str
    gib: float
    model: MemoryModel
    _: KW_ONLY
    source: str
    why: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def predicted_gib(self) -> float:
        """The formula's figure for this run."""
        return predict_fsdp_memory(self.model, **self.options).total_n_bytes / 2**30

    @property
    def difference(self) -> float:
        """By how much the formula differs, as a part of what was published."""
        return self.predicted_gib / self.gib - 1


def _published() -> Iterator[PublishedMemory]:
    titan = "github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, Table {}"
    tune = "github.com/meta-pytorch/torchtune, README.md, Optimization flags (A100, bfloat16, batch 2 of 4,096 tokens)"
    sizes = "Grattafiori et al. 2024, arXiv:2407.21783, Table 3"
    small = _llama("Llama 3.1, 8 B", 8.03e9, 4096, 32, 32, sizes)
    large = _llama("Llama 3.1, 70 B", 70.6e9, 8192, 80, 64, sizes)
    huge = next(model for model in MEMORY_MODELS if model.name == "Llama 3, 405 B")
    of_3b = replace(_llama("Llama 3.2, 3 B", 3.21e9, 3072, 28, 24, "its config.json"), context=4096)
    # logits in 8 pieces: 2 bytes each, and 12 for one piece at a time, 3.5 in place of 14
    in_pieces = replace(of_3b, num_characters=of_3b.num_characters // 4)
    long_texts = 32_768  # tokens
    selective: dict[str, Any] = {"microbatch": 2, "checkpointing": "selective"}
    on_512: dict[str, Any] = {"shards": 8, "tensor": 8, "pipe": 8, "num_microbatches": 8, "checkpointing": True}
    on_one: dict[str, Any] = {"shards": 1, "microbatch": 2, "precision": "bfloat16"}
    of = PublishedMemory
    yield of("8 B on 8 GPUs", 82.4, small, source=titan.format(1), options={"shards": 8, **selective})
    yield of("8 B on 128 GPUs", 67.0, small, source=titan.format(3), options={"shards": 128, **selective})
    yield of("8 B on 8, texts of 32,768", 83.9, replace(small, context=long_texts), source=titan.format(2),
             options={"shards": 8, "checkpointing": True})  # fmt: skip
    yield of("70 B on 32 x 8", 71.9, large, source=titan.format(4),
             options={"shards": 32, "tensor": 8, "microbatch": 16, "checkpointing": True},
             why="inputs that tensor parallelism gathers; with async TP the report has 67.6")  # fmt: skip
    yield of("405 B on 8 x 8 x 8, 1F1B", 82.5, huge, source=titan.format(5), options={**on_512, "microbatch": 4},
             why="buffers of messages, and blocks that 8 stages do not share evenly")  # fmt: skip
    yield of("the same, interleaved", 72.7, huge, source=titan.format(5), options={**on_512, "microbatch": 4})
    yield of(
        "the same, texts of 32,768", 75.3, replace(huge, context=long_texts), source=titan.format(6), options=on_512
    )
    yield of("3 B on one GPU", 60.0, of_3b, source=tune, options=on_one)
    yield of("the same, loss in 8 pieces", 42.9, in_pieces, source=tune, options=on_one)
    yield of("and with checkpointing", 24.9, in_pieces, source=tune, options={**on_one, "checkpointing": True})


PUBLISHED_MEMORY = tuple(_published())
