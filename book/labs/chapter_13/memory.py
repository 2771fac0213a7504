"""The bytes that a rank holds: parameters, gradients, the optimizer's state and activations, for each stage of ZeRO."""

from dataclasses import KW_ONLY, dataclass

from notebook_ranks.shared.checks import non_negative_number, one_of, positive_int, true_or_false, whole_number

__all__ = [
    "LOSS_N_BYTES",
    "MEMORY_MODELS",
    "OPTIMIZER_NUMBERS",
    "PRECISIONS",
    "MemoryModel",
    "MemoryPrediction",
    "predict_memory",
    "transformer_activations",
]

# numbers that an optimizer keeps per parameter
OPTIMIZER_NUMBERS = {"SGD": 0, "SGD with momentum": 1, "Adam": 2}
# bytes of a parameter, of its gradient, of a number of the optimizer, and of the copy of the parameter that it keeps;
# with Adam the two mixed ones come to 16 and 20 bytes, as the Ultra-Scale Playbook (Hugging Face 2025) counts: the
# backward pass makes gradients of 16 bits, which may be added up in 32
PRECISIONS = {
    "float64": (8, 8, 8, 0),
    "float32": (4, 4, 4, 0),
    "bfloat16": (2, 2, 2, 0),
    "mixed": (2, 2, 4, 4),
    "mixed, gradients in 32 bits": (2, 6, 4, 4),
}
# bytes per logit at the peak of the loss: the logit in 16 bits, and three numbers of 32 bits, which are its
# log-probability and two gradients; a test counts them
LOSS_N_BYTES = 14
# numbers that a block keeps per place, in widths; "selective" keeps the block's input, the output of attention and
# every second product (q, v, the first layer of the MLP), as torchtitan does
_KEPT_WIDTHS = {False: 16, "selective": 8, True: 1}


@dataclass(frozen=True)
class MemoryModel:
    """A transformer by its sizes: parameters, width, blocks, heads, context, different tokens; `source` has them."""

    name: str
    _: KW_ONLY
    num_params: float
    width: int
    num_blocks: int
    num_heads: int
    context: int
    num_characters: int
    source: str


MEMORY_MODELS = (
    MemoryModel("Transformer of chapter 13", num_params=826_208, width=128, num_blocks=4, num_heads=4, context=64,
                num_characters=96, source="d2lite.Transformer()"),
    MemoryModel("GPT-2, 1.5 B", num_params=1.558e9, width=1600, num_blocks=48, num_heads=25, context=1024,
                num_characters=50_257, source="Radford et al. 2019, Table 2; github.com/openai/gpt-2"),
    MemoryModel("Llama 2, 7 B", num_params=6.74e9, width=4096, num_blocks=32, num_heads=32, context=4096,
                num_characters=32_000, source="Touvron et al. 2023, arXiv:2307.09288; its config.json"),
    MemoryModel("GPT-3, 175 B", num_params=1.746e11, width=12_288, num_blocks=96, num_heads=96, context=2048,
                num_characters=50_257, source="Brown et al. 2020, arXiv:2005.14165, Table 2.1"),
    # its parameters are those of the sizes in the table: 8 key-value heads, MLP of width 53,248, embedding apart from
    # the head
    MemoryModel("Llama 3, 405 B", num_params=405_853_388_800, width=16_384, num_blocks=126, num_heads=128, context=8192,
                num_characters=128_256, source="Grattafiori et al. 2024, arXiv:2407.21783, Table 3"),
    MemoryModel("GPT, 1 T", num_params=1.008e12, width=25_600, num_blocks=128, num_heads=160, context=2048,
                num_characters=51_200, source="Narayanan et al. 2021, arXiv:2104.04473, Table 1"),
)  # fmt: skip


@dataclass(frozen=True)
class MemoryPrediction:
    """The bytes that a rank holds: what it keeps, and what lives for a moment only, as far as that was asked for.

    `gathered_n_bytes` are layers that are complete while they compute, `loss_n_bytes` what the loss needs of its own.
    """

    parameters_n_bytes: float
    gradients_n_bytes: float
    optimizer_n_bytes: float
    activations_n_bytes: float
    gathered_n_bytes: float = 0.0
    loss_n_bytes: float = 0.0

    @property
    def total_n_bytes(self) -> float:
        """All together, in bytes."""
        kept = self.parameters_n_bytes + self.gradients_n_bytes + self.optimizer_n_bytes + self.activations_n_bytes
        return kept + self.gathered_n_bytes + self.loss_n_bytes


def predict_memory(
    num_params: float,
    optimizer: str = "Adam",
    precision: str = "mixed",
    stage: int = 0,
    k: int = 1,
    activations_n_bytes: float = 0.0,
) -> MemoryPrediction:
    """Return the MemoryPrediction of one of k ranks that train with ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054).

    Args:
        num_params: The parameters of the network.
        optimizer: One of OPTIMIZER_NUMBERS: "SGD", "SGD with momentum", "Adam".
        precision: One of PRECISIONS: "float64", "float32" and "bfloat16" for all numbers; "mixed" has parameters and
            gradients of 16 bits, and an optimizer that keeps its state and a copy of the parameters in 32 bits; with
            "mixed, gradients in 32 bits" the gradients are added up in 32 bits besides.
        stage: 0 shards nothing (plain data parallelism), 1 the optimizer's state, 2 the gradients as well, 3 the
            parameters as well.
        k: The number of ranks.
        activations_n_bytes: What the backward pass needs of the forward pass on this rank; no stage shards it.

    Raises:
        ValueError: If a name is unknown or a number out of range.
        TypeError: If an argument has another type.

    Example:
        >>> [predict_memory(7.5e9, stage=stage, k=64).total_n_bytes / 1e9 for stage in (0, 1, 2, 3)]
        [120.0, 31.40625, 16.640625, 1.875]
    """
    num_params = non_negative_number("num_params", num_params)
    numbers = OPTIMIZER_NUMBERS[one_of("optimizer", optimizer, OPTIMIZER_NUMBERS)]
    param, gradient, number, copy = PRECISIONS[one_of("precision", precision, PRECISIONS)]
    stage = whole_number("stage", stage, 0, 3, "Stage 0 is plain data parallelism.")
    k = positive_int("k", k)
    state = numbers * number + copy
    return MemoryPrediction(
        num_params * param / (k if stage >= 3 else 1),
        num_params * gradient / (k if stage >= 2 else 1),
        num_params * state / (k if stage >= 1 else 1),
        non_negative_number("activations_n_bytes", activations_n_bytes),
    )


def transformer_activations(
    microbatch: int,
    context: int,
    width: int,
    num_blocks: int,
    num_heads: int,
    num_characters: int,
    bytes_per_number: int = 4,
    checkpointing: bool | str = False,
    keep_scores: bool = True,
) -> float:
    """Return the bytes that autograd keeps of a forward pass of `Transformer` on `microbatch` pieces of a text.

    For each place a block keeps 16 times its width (the inputs of the two normalisations, of the linear layers and of
    GELU, and q, k, v), and for each head a weight per pair of places. With checkpointing a block keeps its input alone;
    what else it needs is computed again in the backward pass, for one block at a time, and this block is counted. With
    checkpointing="selective" a block keeps 8 widths: its input, the output of attention, and every second product, as
    in torchtitan.
    Korthikanti et al. 2022 (arXiv:2205.05198) count in the same way; their layer has dropout as well. Statistics of the
    normalisations and the mask, less than a hundredth, are left out. Without `keep_scores` the weights per pair of
    places are not kept: attention that is computed in blocks (Dao et al. 2022, arXiv:2205.14135) computes them again.

    Raises ValueError or TypeError for what is no positive whole number, or no True, False or "selective" where that is
    expected.
    """
    sizes = {"microbatch": microbatch, "context": context, "width": width, "num_blocks": num_blocks}
    sizes |= {"num_heads": num_heads, "num_characters": num_characters, "bytes_per_number": bytes_per_number}
    for name, size in sizes.items():
        positive_int(name, size)
    places = microbatch * context
    block = 16 * places * width
    if true_or_false("keep_scores", keep_scores):
        block += num_heads * places * context
    if checkpointing != "selective":
        true_or_false("checkpointing", checkpointing)
    kept = _KEPT_WIDTHS[checkpointing] * places * width
    blocks = num_blocks * kept + block if checkpointing else num_blocks * block
    head = 2 * places * width + places * num_characters
    return float(bytes_per_number * (blocks + head))
