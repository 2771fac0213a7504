"""What a change to a published run brought, and what the model of a step predicts for the same change."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from d2lite.costs.alpha_beta import Cluster
from d2lite.costs.hardware import find_device, find_link

from ..chapter_13.memory import MEMORY_MODELS, MemoryModel
from .mesh_step import Mesh, MeshStep, predict_mesh_step

__all__ = ["LLAMA_3_TFLOPS", "PUBLISHED_CHANGES", "PublishedChange"]

# Grattafiori et al. 2024, arXiv:2407.21783, Table 4, texts of 8,192 tokens: {GPUs: TFLOP/s of each GPU}
LLAMA_3_TFLOPS = {8_192: 430, 16_384: 400}

_PTD_P = "Narayanan et al. 2021, arXiv:2104.04473, Table 2"
_MT_NLG = "Smith et al. 2022, arXiv:2201.11990, section 4"
_KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198, Table 5"
_TITAN = "github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, Table 5"
_A100S = Cluster(find_link("NVLink 3 (A100, 12 links)"), find_link("InfiniBand HDR 200 Gb/s"), per_host=8)
_H100S = Cluster(find_link("NVLink 4 (H100, 18 links)"), find_link("InfiniBand NDR 400 Gb/s"), per_host=8)
_A100, _H100 = find_device("A100, bfloat16, GPT 1.3B"), find_device("H100, bfloat16, GPT 1.3B")


@dataclass(frozen=True)
class PublishedChange:
    """A change to a run, and by which factor it changed the time of a step: as published, and as predicted."""

    name: str
    published: float
    predicted: float
    source: str

    @property
    def difference(self) -> float:
        """By how much the prediction differs, as a part of what was published."""
        return self.predicted / self.published - 1


def _gpt(name: str, num_params: float, width: int, num_blocks: int, num_heads: int) -> MemoryModel:
    return MemoryModel(
        name,
        num_params=num_params,
        width=width,
        num_blocks=num_blocks,
        num_heads=num_heads,
        context=2048,
        num_characters=51_200,
        source="",
    )


def _more_gpus(
    source: str, model: MemoryModel, pipe: int, batch_size: int, rates: dict[int, float]
) -> Iterator[PublishedChange]:
    """Yield the changes from the first number of replicas to the others; the rate is fitted to the first run.

    `rates` is {replicas: operations per second and GPU, in 10^12}; the paper counts what is computed twice, too.
    """

    def step(data: int, flops_per_s: float) -> MeshStep:
        device = replace(_A100, flops_per_s=flops_per_s)
        return predict_mesh_step(model, Mesh(pipe, data, 8), batch_size, device, _A100S, checkpointing=True)

    first, *others = rates
    low, high = 1e13, 1e15
    for _ in range(60):
        middle = (low + high) / 2
        is_slow = step(first, middle).tflops_per_gpu * 8 / 6 < rates[first]
        low, high = (middle, high) if is_slow else (low, middle)
    for data in others:
        before, after = step(first, middle), step(data, middle)
        name = f"{model.name}: {before.mesh.num_ranks} -> {after.mesh.num_ranks} GPUs"
        # the rate of a GPU says how long a step takes, for as many operations on more GPUs
        published = rates[first] * first / (rates[data] * data)
        yield PublishedChange(name, published, after.seconds / before.seconds, source)


def _changes() -> Iterator[PublishedChange]:
    of_175b = _gpt("GPT, 175 B", 174.6e9, 12_288, 96, 96)
    of_530b = _gpt("GPT, 530 B", 529.6e9, 20_480, 105, 128)
    yield from _more_gpus(_PTD_P, of_175b, 12, 1536, {4: 153, 8: 149, 16: 141})
    yield from _more_gpus(_PTD_P, of_530b, 35, 2240, {2: 171, 4: 167, 8: 159})
    seconds = {8: 60.1, 10: 50.2, 12: 44.4}  # replicas of 35 x 8 GPUs
    flops = {d: 8 * 530e9 * 1920 * 2048 / (d * 280) / s / 1e12 for d, s in seconds.items()}
    yield from _more_gpus(_MT_NLG, replace(of_530b, name="MT-NLG, 530 B"), 35, 1920, flops)
    for name, params, width, blocks, heads, pipe, batch_size, full_s, selective_s in (
        ("22 B", 22e9, 6144, 48, 64, 1, 4, 1.42, 1.10),
        ("175 B", 175e9, 12_288, 96, 96, 8, 64, 18.13, 13.75),
        ("530 B", 530e9, 20_480, 105, 128, 35, 280, 49.05, 37.83),
        ("1 T", 1e12, 25_600, 128, 160, 64, 512, 94.42, 71.49),
    ):
        model = _gpt(name, params, width, blocks, heads)
        options: dict[str, Any] = {"device": _A100, "cluster": _A100S, "mesh": Mesh(pipe, 1, 8)}
        steps = [predict_mesh_step(model, batch_size=batch_size, checkpointing=c, **options) for c in (True, False)]
        published, predicted = selective_s / full_s, steps[1].seconds / steps[0].seconds
        yield PublishedChange(f"GPT, {name}: full checkpointing -> selective", published, predicted, _KORTHIKANTI)
    llama = next(model for model in MEMORY_MODELS if model.name == "Llama 3, 405 B")
    one, two = (
        predict_mesh_step(llama, Mesh(8, 8, 8), 256, _H100, _H100S, microbatch=4, stages_per_rank=v, checkpointing=True)
        for v in (1, 2)
    )
    yield PublishedChange("Llama 3, 405 B: 1F1B -> interleaved", 100 / 128, two.seconds / one.seconds, _TITAN)


PUBLISHED_CHANGES = tuple(_changes())
