"""The drawn data set: shapes, sameness, and how hard it is."""

import hashlib

import numpy as np
import pytest
import torch

from d2lite.data import silhouettes
from d2lite.data.silhouettes import BLOCK, LABELS, VERSION, draw


@pytest.fixture(scope="module")
def drawn():
    return draw(2 * BLOCK, seed=0)


def same(a, b):
    return torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


def test_shapes_and_dtypes(drawn):
    images, labels = drawn
    assert images.shape == (2 * BLOCK, 1, 28, 28) and images.dtype == torch.uint8
    assert labels.shape == (2 * BLOCK,) and labels.dtype == torch.int64
    assert images.is_contiguous()
    assert images.min() == 0 and images.max() == 255  # the full range is used


def test_ten_garments_in_the_usual_order():
    assert LABELS[:5] == ("t-shirt", "trouser", "pullover", "dress", "coat")
    assert LABELS[5:] == ("sandal", "shirt", "sneaker", "bag", "ankle boot")


def test_every_block_is_balanced_and_shuffled(drawn):
    for labels in drawn[1].split(BLOCK):
        assert labels.bincount(minlength=10).tolist() == [BLOCK // 10] * 10
        assert len(labels[:50].unique()) > 5
    first, second = drawn[1].split(BLOCK)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("n", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1])
def test_fewer_examples_are_a_prefix_of_more(drawn, n):
    images, labels = draw(n, seed=0)
    assert len(images) == len(labels) == n
    assert same((images, labels), (drawn[0][:n], drawn[1][:n]))


def test_a_short_draw_holds_no_more_memory_than_its_images():
    assert draw(3)[0].untyped_storage().nbytes() == 3 * 28 * 28


def test_thread_counts_and_global_seeds_change_nothing(drawn):
    threads = torch.get_num_threads()
    try:
        for n, global_seed in [(1, 5), (2, 6)]:
            torch.set_num_threads(n)
            torch.manual_seed(global_seed)
            np.random.seed(global_seed)
            assert same(drawn, draw(2 * BLOCK, seed=0))
    finally:
        torch.set_num_threads(threads)


def test_the_global_generators_are_left_alone():
    torch.manual_seed(1)
    np.random.seed(1)
    expected = torch.rand(3), np.random.rand(3)
    torch.manual_seed(1)
    np.random.seed(1)
    draw(10)
    assert torch.equal(torch.rand(3), expected[0])
    assert (np.random.rand(3) == expected[1]).all()


def test_seeds_and_blocks_share_no_image(drawn):
    images = torch.cat([drawn[0], draw(2 * BLOCK, seed=1)[0]])
    assert len(images.flatten(1).unique(dim=0)) == 4 * BLOCK


def test_the_drawing_is_the_one_of_its_version(drawn):
    """If the drawing was changed on purpose: increase VERSION (caches depend on it), then correct the digest."""
    digest = hashlib.sha256(drawn[0].numpy().tobytes() + drawn[1].numpy().tobytes()).hexdigest()
    assert (VERSION, digest[:16]) == (1, "75b3f43ad92280fa")


@pytest.mark.parametrize("name", LABELS)
def test_every_garment_lies_inside_the_picture_and_varies(name):
    depths = []
    v, u = np.mgrid[-1:1:57j, -1:1:57j].astype(np.float32)[:, None]
    for at in (0, 0.5, 1):  # of every range the lower end, the middle and the upper end

        def pick(low, high, at=at):
            return np.float32(low + (high - low) * at)

        shape, seam = silhouettes.GARMENTS[name](u, v, pick)
        assert shape.dtype == np.float32 and np.isfinite(shape).all()
        inside = (shape > 0).mean()
        assert 0.05 < inside < 0.75  # some cloth, some ground
        assert (shape[0, [0, 0, -1, -1], [0, -1, 0, -1]] < 0).all()  # the corners are free
        if seam is not None:
            assert seam.dtype == np.float32
            assert ((seam > 0) & (shape > 0)).any()  # the seam lies on the cloth
        depths.append(shape)
    assert ((depths[0] > 0) != (depths[2] > 0)).mean() > 0.02


def test_every_picture_has_ink_and_contrast(drawn):
    pixels = drawn[0].flatten(1).float()
    assert (pixels.std(dim=1) > 10).all()
    means = torch.stack([pixels[drawn[1] == c].mean(0) for c in range(10)])
    assert (means.max(dim=1).values - means.min(dim=1).values > 60).all()
    assert torch.pdist(means).min() > 28 * 5  # five grey levels per pixel between any two classes


def test_class_means_help_but_are_not_enough():
    """Nearest class mean: 0.55, well above chance, well below what LeNet learns (0.9)."""
    X, y = draw(4 * BLOCK, seed=0)
    X_test, y_test = draw(2 * BLOCK, seed=1)
    means = torch.stack([X[y == c].flatten(1).float().mean(0) for c in range(10)])
    nearest = torch.cdist(X_test.flatten(1).float(), means).argmin(1)
    accuracy = (nearest == y_test).float().mean().item()
    assert 0.4 < accuracy < 0.7, accuracy


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0,), ValueError),
        ((-1,), ValueError),
        ((2.5,), TypeError),
        ((True,), TypeError),
        (("10",), TypeError),
        ((10, -1), ValueError),
        ((10, 0.0), TypeError),
        ((10, False), TypeError),
        ((10, None), TypeError),
    ],
)
def test_bad_input_is_refused(arguments, error):
    name = ("num_examples", "seed")[len(arguments) - 1]
    with pytest.raises(error, match=rf"^{name}: expected .* whole number.*, got {arguments[-1]!r}"):
        draw(*arguments)


def test_integers_of_other_kinds_are_integers():
    assert same(draw(np.int64(5), np.int32(3)), draw(5, 3))
