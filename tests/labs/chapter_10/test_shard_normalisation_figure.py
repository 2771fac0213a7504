"""Each replica has a line of its own through its normalised values; one device has one line for all."""

import pytest
import torch
from torch import nn

from d2lite.labs.chapter_10 import shard_normalisation_figure

VALUES = torch.tensor([3.0, 9.0, 4.0, 1.0, 7.0, 30.0])


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_the_points_are_what_batchnorm_makes_of_each_shard(replicas):
    layer = nn.BatchNorm1d(1, affine=False)
    figure = shard_normalisation_figure(VALUES, replicas)
    one, others, first = figure.data
    assert list(one.x) == sorted(VALUES.tolist()) and len(first.x) == 6 // replicas
    found = dict(zip([*first.x, *others.x], [*first.y, *others.y], strict=True))
    for shard in VALUES.tensor_split(replicas):
        for value, expected in zip(shard.tolist(), layer(shard[:, None])[:, 0].tolist(), strict=True):
            assert found[value] == pytest.approx(expected, abs=1e-5)
    assert f"number of replicas: {replicas}." in figure.layout.title.text


def test_more_replicas_than_values_have_one_value_each():
    assert set(shard_normalisation_figure(VALUES, 8).data[2].y) == {0.0}


@pytest.mark.parametrize("given", [(torch.tensor([]), 1), (VALUES, 0), (VALUES[:, None], 2)])
def test_no_values_and_no_replicas_are_refused(given):
    with pytest.raises(ValueError, match="expected"):
        shard_normalisation_figure(*given)
