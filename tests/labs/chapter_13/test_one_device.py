"""What splits are compared with: a network whose parts differ in size, minibatches, and four steps on one device."""

import torch

from d2lite.labs.chapter_13 import batches, distance, odd_net, train_alone


def test_on_two_ranks_most_tensors_are_padded():
    sizes = [param.numel() for param in odd_net().parameters()]
    assert sum(size % 2 for size in sizes) > len(sizes) / 2


def test_two_ranks_do_not_get_as_many_heads():
    assert all(block.attention.num_heads == 3 for block in odd_net().blocks)


def test_it_trains_in_place_and_returns_a_loss_for_each_step():
    net, again, before = odd_net(), odd_net(), odd_net()
    losses = train_alone(net)
    assert losses == train_alone(again) and len(losses) == len(batches()) == 4
    assert distance(net.parameters(), again.parameters()) == 0
    assert distance(net.parameters(), before.parameters()) > 1e-3


def test_minibatches_do_not_divide_by_two():
    (X, y), *_ = batches()
    assert X.shape == y.shape == (7, 24) and X.max() < 96
    assert torch.equal(torch.stack([*batches()]), torch.stack([*batches()]))


def test_the_distance_is_that_of_the_number_that_differs_most():
    assert distance([torch.zeros(3), torch.ones(2)], [torch.zeros(3), torch.tensor([1.0, -2.0])]) == 3.0
