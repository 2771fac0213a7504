"""Links and devices, each with the source of its figures. No figure is measured here, and none is guessed.

Links: the figures with which NVIDIA's NCCL library chooses an algorithm; they are lower than those of data sheets.
Devices: the rate that a published training run reached. It depends on network, batch size and library versions.
"""

from typing import TypeVar

from d2lite.costs.alpha_beta import Device, Link
from notebook_ranks.shared.checks import one_of

__all__ = ["DEVICES", "LINKS", "find_device", "find_link"]

_Preset = TypeVar("_Preset", Link, Device)

_NCCL = "NCCL, github.com/NVIDIA/nccl, src/graph/"
_TUNING = "latency of a ring step: tuning.cc (2020)"
_SPEC = "number of links: nvidia.com/en-us/data-center/nvlink, specifications"
_P100 = "number of links: NVIDIA Tesla P100 white paper, WP-08019"
_GB200 = "number of links: docs.nvidia.com/health-validation, NVLink checks (GB200)"


def _nvlink(generation: int, gpu: str, links: int, gb_per_s: float, source: str) -> Link:
    name = f"NVLink {generation} ({gpu}, {links} links)"
    return Link(3.4e-6, links * gb_per_s * 1e9, name, f"{_NCCL}topo.h: {gb_per_s} GB/s per link; {source}; {_TUNING}")


def _pcie(generation: int, gb_per_s: float) -> Link:
    source = f"{_NCCL}topo.cc: 16 lanes of {gb_per_s / 16} GB/s; {_TUNING}"
    return Link(5.7e-6, gb_per_s * 1e9, f"PCIe {generation} x16", source)


def _network(name: str, gbit_per_s: float) -> Link:
    # NCCL assumes 12 GB/s for 100 Gbit/s: 0.96 of the line rate, the rest is headers
    source = f"line rate in the name, of which 0.96: {_NCCL}topo.h, NET_BW (12 GB/s for 100 Gbit/s); {_TUNING}"
    return Link(9.6e-6, 0.96 * gbit_per_s / 8 * 1e9, name, source)


# bytes per second in one direction; networks with remote direct memory access: plain TCP has a higher latency
LINKS = (
    _nvlink(1, "P100", 4, 18.0, _P100),
    _nvlink(2, "V100", 6, 20.0, _SPEC),
    _nvlink(3, "A100", 12, 20.0, _SPEC),
    _nvlink(4, "H100", 18, 20.6, _SPEC),
    _nvlink(5, "B200", 18, 40.1, _GB200),
    _pcie(3, 12.0),
    _pcie(4, 24.0),
    _pcie(5, 48.0),
    _network("Ethernet 10 Gb/s, RDMA", 10),
    _network("Ethernet 25 Gb/s, RDMA", 25),
    _network("Ethernet 50 Gb/s, RDMA", 50),
    _network("Ethernet 100 Gb/s, RDMA", 100),
    _network("InfiniBand EDR 100 Gb/s", 100),
    _network("InfiniBand HDR 200 Gb/s", 200),
    _network("InfiniBand NDR 400 Gb/s", 400),
)

RESNET50_FLOPS = 6 * 4_089_184_256  # of forward and backward, one image 224x224: torchvision's resnet50, 4.089 GMAC

_TF = "TensorFlow performance benchmarks (tensorflow.org/performance/benchmarks, May 2017), synthetic data"
_NVIDIA = "github.com/NVIDIA/DeepLearningExamples, PyTorch ResNet50 v1.5 README (2021)"
_TIMM = "github.com/huggingface/pytorch-image-models, results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"
_JOHNSON = "github.com/jcjohnson/cnn-benchmarks, cuDNN 5005, batch of 16 in 153.90 ms"
_YOU = "You et al. 2017, arXiv:1709.05011: 90 epochs of 1,281,167 images in 14 days"
_MOSAIC = "github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md: 1b, 2048 tokens, 8 GPUs, model FLOP/s"


def _resnet50(name: str, images_per_s: float, source: str) -> Device:
    text = f"{images_per_s:.4g} images/s of ResNet-50 on one GPU: {source}"
    return Device(images_per_s * RESNET50_FLOPS, name=name, source=text)


# achieved floating point operations per second
DEVICES = (
    _resnet50("K80 (half a board), float32", 51.9, _TF),
    _resnet50("M40, float32", 90 * 1_281_167 / (14 * 86_400), _YOU),
    _resnet50("GTX 1080, float32", 16 / 0.15390, _JOHNSON),
    _resnet50("P100, float32", 219, _TF),
    _resnet50("V100, float32", 367, _NVIDIA),
    _resnet50("V100, mixed precision", 1200, _NVIDIA),
    _resnet50("RTX 3090, mixed precision", 1218.01, _TIMM),
    _resnet50("A100, TF32", 938, _NVIDIA),
    _resnet50("A100, mixed precision", 2470, _NVIDIA),
    Device(1.867501e14, name="A100, bfloat16, GPT 1.3B", source=_MOSAIC),
    Device(4.138134e14, name="H100, bfloat16, GPT 1.3B", source=_MOSAIC),
)


def find_link(name: str) -> Link:
    """Return the Link of LINKS with that name; the ValueError of an unknown one lists all names."""
    return _find("link", LINKS, name)


def find_device(name: str) -> Device:
    """Return the Device of DEVICES with that name; the ValueError of an unknown one lists all names."""
    return _find("device", DEVICES, name)


def _find(kind: str, presets: tuple[_Preset, ...], name: str) -> _Preset:
    named = {preset.name: preset for preset in presets}
    return named[one_of(kind, name, named, "; ")]
