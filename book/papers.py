"""Predicted against published: what the cost model predicts for three well-known papers, with nothing fitted to them.

Chapter 8 shows the table. Each input is from the publication or from a source that is named, or it is assumed, and then
the table says so. Where a prediction is more than TOLERANCE points off, the table says which assumption of the model we
think is wrong (an inference), and the value of each assumption that alone would give the published figure.

Chapter 16 has a prediction of its own; what was published is `LLAMA_3_TFLOPS` of its laboratory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from d2lite.costs import Cluster, Device, Link, find_link
from d2lite.labs.chapter_08 import DDP_BUCKETS, named_workload, normal_wait, predict_step

__all__ = [
    "CASES",
    "TOLERANCE",
    "Case",
    "compare",
    "comparison_table",
    "needed",
    "predicted_efficiency",
]

TOLERANCE = 8.0  # percentage points


@dataclass(frozen=True)
class Case:
    """A published efficiency of `k` GPUs, in percent of the rate of each of `baseline_k` GPUs, and the inputs to
    predict it.

    `images_per_s` is the rate of one GPU with `batch_size` images; `caps` are the sizes of the buckets in bytes;
    `sources` gives the origin of each input, and `assumed` what neither the publication nor a data sheet says. `fails`
    is the assumption of the model that does not hold, as we infer it, if the prediction is off.
    """

    name: str
    network: str
    images_per_s: float
    batch_size: int
    k: int
    baseline_k: int
    cluster: Cluster
    algorithm: str
    caps: tuple[int, ...]
    published: float
    sources: dict[str, str]
    assumed: dict[str, str] = field(default_factory=dict)
    fails: str = ""


_P100_S = {"ResNet-50": 1 / 219, "ResNet-152": 1 / 91.8}  # seconds per image, source as below
_MACS = {"ResNet-50": 4.089e9, "ResNet-101": 7.801e9, "ResNet-152": 11.514e9}  # torchvision, weights' meta["_ops"]
_FRACTION = (_MACS["ResNet-101"] - _MACS["ResNet-50"]) / (_MACS["ResNet-152"] - _MACS["ResNet-50"])
_TF = "one P100, 64 images, synthetic data: TensorFlow performance benchmarks, May 2017"
_BETWEEN = (
    "ResNet-101's lies between ResNet-50's (219 images/s) and ResNet-152's (91.8), in proportion to multiplications"
)
_HOROVOD_SOURCES = {
    "hosts": "4 Pascal GPUs each, 25 Gb/s RoCE: Horovod documentation, benchmarks; Sergeev and Del Balso 2018, "
    "arXiv:1802.05799",
    "batch": "64 per GPU: the command for ResNet-101 in the same page",
    "buckets": "64 MiB: default of the fusion buffer before Horovod 0.21 (its changelog), which these runs precede",
    "links": "d2lite.costs.LINKS (NCCL's figures)",
    "parameters": "torchvision (Inception V3 without its second classifier)",
}
_HOROVOD_ASSUMED = {
    "GPU": "the Pascal GPUs are P100 on PCIe 3, as fast as the P100 of TensorFlow's benchmarks",
    "batch": "64 per GPU for Inception V3 and VGG-16, too",
}
_SPEEDS = {
    "ResNet-101": (1 / (_P100_S["ResNet-50"] + _FRACTION * (_P100_S["ResNet-152"] - _P100_S["ResNet-50"])), _BETWEEN),
    "Inception V3": (142.0, ""),
    "VGG-16": (154.0, ""),
}


def _horovod(network: str, k: int, published: float, page: str, fails: str = "") -> Case:
    images_per_s, interpolated = _SPEEDS[network]
    assumed = {"speed": interpolated} if interpolated else {}
    return Case(
        f"Horovod, {network}, {k} GPUs",
        network,
        images_per_s,
        64,
        k,
        1,
        Cluster(find_link("PCIe 3 x16"), find_link("Ethernet 25 Gb/s, RDMA"), 4),
        "ring",
        (64 * 2**20,),
        published,
        {"published": page, "speed": _TF} | _HOROVOD_SOURCES,
        _HOROVOD_ASSUMED | assumed,
        fails,
    )


_PAGE_512 = "Horovod documentation, benchmarks: 128 servers"
_PAGE_128 = "Horovod's README of 2018: 32 servers"
CASES = (
    _horovod("ResNet-101", 128, 90.0, _PAGE_128),
    _horovod("Inception V3", 128, 90.0, _PAGE_128),
    _horovod("VGG-16", 128, 79.0, _PAGE_128),
    _horovod("ResNet-101", 512, 90.0, _PAGE_512),
    _horovod("Inception V3", 512, 90.0, _PAGE_512),
    _horovod(
        "VGG-16",
        512,
        68.0,
        _PAGE_512,
        "that a step of the ring costs the same among 512 GPUs as among 128. "
        "Something grows with the number of GPUs, so it is not the bandwidth: each GPU sends nearly the same bytes in "
        "both, and with the same inputs the prediction for 128 GPUs is right.",
    ),
    Case(
        "Goyal et al., ResNet-50, 8 to 256 GPUs",
        "ResNet-50",
        32 / 0.180,
        32,
        256,
        8,
        Cluster(find_link("NVLink 1 (P100, 4 links)"), find_link("Ethernet 50 Gb/s, RDMA"), 8),
        "halving-doubling",
        (1,),  # a bucket per gradient
        90.0,
        {
            "published": "about 90% of 8 GPUs: Goyal et al. 2017, arXiv:1706.02677, section 5.5 and figure 8",
            "speed": "backward 120 ms on one P100 (section 4.3)",
            "hosts": "8 P100 with NVLink each, 50 Gbit Ethernet (section 4.3)",
            "batch": "32 per GPU (section 5.1)",
            "algorithm": "inside the host, then halving/doubling across hosts, gradient by gradient (section 4)",
            "links": "d2lite.costs.LINKS (NCCL's figures)",
            "parameters": "torchvision",
        },
        {"speed": "the forward pass takes half as long as the backward pass"},
        "that sending costs nothing while it is hidden behind the backward pass. In the paper the loss appears "
        "with the second host and hardly grows from there to the 44th (figures 7 and 8), so it is the price of leaving "
        "the host at all. The paper does not name it; the model, which counts messages between GPUs, has no such term.",
    ),
    Case(
        "DDP (NCCL), ResNet-50, 256 GPUs",
        "ResNet-50",
        367.0,
        32,
        256,
        1,
        Cluster(find_link("NVLink 2 (V100, 6 links)"), find_link("Ethernet 100 Gb/s, RDMA"), 8),
        "ring",
        DDP_BUCKETS,
        50.0,
        {
            "published": "a step on 256 GPUs takes twice as long as on one, 'real scaling factor' 128: Li et al. 2020, "
            "arXiv:2006.15704, section 5.3 (its abstract: near-linear)",
            "speed": "one V100, float32: NVIDIA DeepLearningExamples, ResNet50 v1.5",
            "hosts": "8 V100 each, 100 Gb/s (section 5, of the 32 GPUs that were not shared)",
            "buckets": "25 MiB, the first 1 MiB: DistributedDataParallel's defaults",
            "links": "d2lite.costs.LINKS (NCCL's figures)",
            "parameters": "torchvision",
        },
        {
            "batch": "32 per GPU, which the paper does not say: the default of PyTorch's benchmarks/distributed/ddp",
            "hosts": "the GPUs of the shared cluster are as fast, and connected in the same way, as the 32 others",
        },
        "that no other job uses the network. More than 32 GPUs came from a cluster shared with others, where hardware "
        "and congestion differed from job to job. The authors suspect slow or congested links in some runs, among them "
        "one on 16 GPUs.",
    ),
)


def predicted_efficiency(
    case: Case, overlap: bool = True, bandwidth: float = 1.0, latency: float = 1.0, spread: float = 0.0
) -> float:
    """Return the predicted efficiency in percent: the step of `baseline_k` GPUs over the step of `k` GPUs.

    The minibatch per GPU is the same. `bandwidth` and `latency` are factors for all links, `spread` is the
    standard deviation of the GPUs' computing times over their mean: 1, 1 and 0 leave the inputs as they are.
    """
    net = named_workload(case.network)
    device = Device(net.flops * case.images_per_s)

    def changed(link: Link) -> Link:
        faster = link.bandwidth_bytes_per_s * bandwidth
        return replace(link, bandwidth_bytes_per_s=faster, latency_s=link.latency_s * latency)

    cluster = Cluster(changed(case.cluster.inside), changed(case.cluster.between), case.cluster.per_host)

    def seconds(k: int) -> float:
        wait_s = normal_wait(k, spread * case.batch_size / case.images_per_s)
        settings = dict(algorithm=case.algorithm, overlap=overlap, caps=case.caps, wait_s=wait_s)
        step = predict_step(net, case.batch_size, k, device, cluster, **settings)
        return step.seconds

    return 100 * seconds(case.baseline_k) / seconds(case.k)


def needed(case: Case) -> dict[str, float | None]:
    """Return {assumption: the value with which it alone gives the published figure, or None}, found by bisection.

    The assumptions are "bandwidth", "latency" and "spread", as `predicted_efficiency` takes them.
    """
    ranges = {"bandwidth": (1.0, 0.001), "latency": (1.0, 1000.0), "spread": (0.0, 1.0)}
    return {what: _bisect(case, what, *bounds) for what, bounds in ranges.items()}


def _bisect(case: Case, what: str, good: float, bad: float) -> float | None:
    """Return the value of `what` between good and bad that gives the published efficiency, None if there is none."""

    def efficiency(value: float) -> float:
        settings: dict[str, Any] = {what: value}
        return predicted_efficiency(case, **settings)

    if not efficiency(bad) < case.published < efficiency(good):
        return None
    for _ in range(40):
        middle = (good + bad) / 2
        if efficiency(middle) > case.published:
            good = middle
        else:
            bad = middle
    return middle


def compare(cases: Iterable[Case] = CASES) -> list[dict[str, Any]]:
    """Return one row (dict) per case: prediction, published figure, their difference in points, inputs and sources.

    A row that is more than TOLERANCE points off also has `fails` and `needed`.
    """
    rows = []
    for case in cases:
        row: dict[str, Any] = {"case": case.name, "predicted": predicted_efficiency(case), "published": case.published}
        row["without overlap"] = predicted_efficiency(case, overlap=False)
        row["difference"] = row["predicted"] - row["published"]
        row["inputs"] = (
            f"{case.images_per_s:.0f} images/s per GPU, {case.batch_size} images per GPU, "
            f"{named_workload(case.network).total_n_bytes / 1e6:.0f} MB of gradients, {case.cluster.inside.name} in "
            f"hosts of {case.cluster.per_host}, {case.cluster.between.name} across, {case.algorithm}"
        )
        row |= {"sources": case.sources, "assumed": case.assumed}
        if abs(row["difference"]) > TOLERANCE:
            row |= {"fails": case.fails, "needed": needed(case)}
        rows.append(row)
    return rows


def comparison_table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the rows of `compare` as Markdown: a line per case, then, to be opened with a click, what fails where a
    prediction is off, the inputs, the sources, and what is assumed.
    """
    rows = list(rows)
    lines = ["| case | predicted | published | points off | without overlap |", "|---" * 5 + "|"]
    for row in rows:
        lines.append(
            f"| {row['case']} | {row['predicted']:.1f}% | {row['published']:.0f}% | {row['difference']:+.1f} | "
            f"{row['without overlap']:.1f}% |"
        )
    lines += ["", "<details><summary>What fails where a prediction is off, the inputs and their sources</summary>"]
    for row in rows:
        if "fails" in row:
            lines += [
                "",
                f"{row['case']}: more than {TOLERANCE:g} points off. What fails, by our inference: {row['fails']}",
            ]
            lines.append("Each of these alone would give the published figure: " + _needed_text(row["needed"]))
    lines += ["", "Inputs:", "", *(f"- {row['case']}: {row['inputs']}" for row in rows)]
    for title, kind in (("From the publications and other sources:", "sources"), ("Assumed:", "assumed")):
        found = dict.fromkeys(
            f"- {row['case'].partition(',')[0]}, {what}: {text}" for row in rows for what, text in row[kind].items()
        )
        lines += ["", title, "", *found]
    lines += ["", "</details>"]
    return "\n".join(lines)


def _needed_text(values: dict[str, float | None]) -> str:
    texts = {
        "bandwidth": "links with {:.2g} of their bandwidth",
        "latency": "{:.3g} times the latency",
        "spread": "computing times that differ by {:.2g} of their mean (one standard deviation)",
    }
    return "; ".join(texts[what].format(value) for what, value in values.items() if value is not None) + "."
