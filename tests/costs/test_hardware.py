import itertools
import math

import pytest

from d2lite.costs.hardware import DEVICES, LINKS, RESNET50_FLOPS, find_device, find_link
from d2lite.labs.chapter_08.workloads import named_workload


@pytest.mark.parametrize("preset", LINKS + DEVICES, ids=lambda preset: preset.name)
def test_each_has_a_name_of_its_own_and_a_source(preset):
    assert [p.name for p in LINKS + DEVICES].count(preset.name) == 1
    assert any(mark in preset.source for mark in ("github.com", "arXiv", "tensorflow.org"))


def test_the_operations_of_an_image_are_those_of_torchvision():
    pytest.importorskip("torchvision")
    assert RESNET50_FLOPS == named_workload("ResNet-50").flops


def test_rates_are_as_published():
    assert math.isclose(find_device("P100, float32").flops_per_s / RESNET50_FLOPS, 219)
    assert math.isclose(find_device("A100, mixed precision").flops_per_s / RESNET50_FLOPS, 2470)
    assert math.isclose(find_link("Ethernet 25 Gb/s, RDMA").bandwidth_bytes_per_s, 3.0e9)
    assert math.isclose(find_link("NVLink 4 (H100, 18 links)").bandwidth_bytes_per_s, 370.8e9)
    assert math.isclose(find_link("PCIe 3 x16").bandwidth_bytes_per_s, 12e9)


def test_rates_that_were_published_as_a_time_are_images_per_second():
    assert math.isclose(find_device("GTX 1080, float32").flops_per_s / RESNET50_FLOPS, 16 / 153.90e-3)
    days, images = 14, 90 * 1_281_167
    assert math.isclose(find_device("M40, float32").flops_per_s / RESNET50_FLOPS, images / (days * 24 * 3600))


def test_a_message_takes_microseconds_to_begin_and_longest_on_a_network():
    families = [[link.latency_s for link in LINKS if link.name.startswith(f)] for f in ("NVLink", "PCIe")]
    families.append([link.latency_s for link in LINKS if "Gb/s" in link.name])
    assert sum(map(len, families)) == len(LINKS)
    for faster, slower in itertools.pairwise(families):
        assert 1e-6 < max(faster) < min(slower) < 1e-5


def test_newer_links_are_faster():
    for family in ("NVLink", "PCIe", "Ethernet", "InfiniBand"):
        speeds = [link.bandwidth_bytes_per_s for link in LINKS if link.name.startswith(family)]
        assert len(speeds) > 1 and speeds == sorted(speeds)


def test_unknown_names_are_explained():
    with pytest.raises(ValueError, match="link: expected one of NVLink 1"):
        find_link("string")
    with pytest.raises(ValueError, match="device: expected one of K80"):
        find_device("abacus")
