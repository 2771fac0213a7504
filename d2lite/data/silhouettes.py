"""Silhouettes: ten kinds of garments, drawn by this module where Fashion-MNIST is not available.

A garment is a function `(u, v, pick) -> shape, seam`. `u` runs across and `v` down, from about -1 to 1. Both results
are depths: positive inside, negative outside, so that a union is a maximum and an intersection is a minimum.
`pick(low, high)` returns one random number per image. Everything else (pose, cloth, occlusion, noise) is the same for
all garments: `_photograph`.

The generators are numpy's own, made here, on one thread, and the arithmetic is limited to the four operations and
square roots: no number of threads and no global seed changes a pixel.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from d2lite._checks import positive_int, whole_number

__all__ = ["LABELS", "VERSION", "draw"]

Array = NDArray[Any]  # float32: coordinates and depths [n, 28, 28], parameters [n, 1, 1]
Number = float | Array
Point = tuple[Number, Number]
Pick = Callable[[float, float], Array]
Garment = Callable[[Array, Array, Pick], tuple[Array, Array | None]]

VERSION = 1  # increase it when a pixel changes, so that no older drawing is loaded from a cache
SIZE = 28  # height and width in pixels
BLOCK = 500  # images drawn together, each block with its own generator: small enough for the processor's cache

# The difficulty of the pictures, tuned so that LeNet climbs from about 60% to about 90% in ten epochs.
# Lengths are in half pictures, tones from 0 (black) to 1 (white); a pair is (lowest, highest).
TURN = 0.4  # tangent of the largest angle
LEAN, SHIFT, SCALE = 0.15, 0.17, (0.75, 1.05)
MIRRORED = 0.5  # fraction of the pictures
TONE, STRIPES, SEAM, GROUND = (0.4, 0.95), 0.7, (0.25, 0.6), 0.12
STRAP, BLOT = 0.1, (0.05, 0.3)  # occlusion: half a width, a radius
NOISE = (0.02, 0.15)


# Pieces of garments: all take coordinates [n, 28, 28] and parameters [n, 1, 1] or plain numbers.


def _trapezoid(u: Array, v: Array, top: Number, bottom: Number, half_top: Number, half_bottom: Number) -> Array:
    """Return the depth inside a trapezoid around u = 0, `half_top` wide to each side at `top`."""
    half = half_top + (half_bottom - half_top) / (bottom - top) * (v - top)
    return np.minimum(np.minimum(v - top, bottom - v), half - np.abs(u))


def _limb(u: Array, v: Array, start: Point, end: Point, radius: Number) -> Array:
    """Return the depth inside a round-ended stroke from the point `start` to the point `end`."""
    (u0, v0), (u1, v1) = start, end
    du, dv = u1 - u0, v1 - v0
    u, v = u - u0, v - v0
    along = np.clip((u * du + v * dv) / (du * du + dv * dv), 0, 1)
    u, v = u - along * du, v - along * dv
    return radius - np.sqrt(u * u + v * v)


def _ellipse(u: Array, v: Array, center: Point, radius_u: Number, radius_v: Number) -> Array:
    """Return the depth inside an ellipse (exact on its edge, a little off elsewhere)."""
    u, v = (u - center[0]) / radius_u, (v - center[1]) / radius_v
    return (1 - np.sqrt(u * u + v * v)) * np.minimum(radius_u, radius_v)


def _stroke(depth: Array, width: Number) -> Array:
    """Return the depth inside a line of a given width along the edge of a shape."""
    return width - np.abs(depth)


def _wave(x: Array) -> Array:
    """Return a triangle wave between 0 and 0.5 with period 1."""
    return np.abs(x - np.floor(x) - 0.5)


def _upper(
    u: Array, v: Array, pick: Pick, hem: Number, flare: Number, sleeve: Number, cuff: Number, tail: Number = 0.0
) -> Array:
    """Return the depth inside a torso with two sleeves (0: none, 1: to the hem); `tail` lowers the hem's middle."""
    u = np.abs(u)  # left and right alike
    shoulder = pick(0.36, 0.46)
    torso = _trapezoid(u, v - 0.25 * u, -0.78, 1.5, shoulder, shoulder + 2 * flare)
    torso = np.minimum(torso, hem - v - tail * u)
    hand = shoulder + 0.1 + pick(0.2, 0.42) * sleeve, -0.52 + 1.2 * sleeve
    arm = _limb(u, v, (shoulder - 0.1, -0.52), hand, cuff)
    return np.maximum(torso, arm)


# Garments, in the order of Fashion-MNIST.


def _t_shirt(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    shape = _upper(u, v, pick, pick(0.6, 0.85), pick(-0.05, 0.1), pick(0.15, 0.4), pick(0.14, 0.22))
    neck = _ellipse(u, v, (0, -0.8), pick(0.14, 0.24), pick(0.1, 0.24))
    return np.minimum(shape, -neck), _stroke(neck + 0.08, 0.02)


def _trouser(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    hips, ankle, hem = pick(0.3, 0.42), pick(0.26, 0.5), pick(0.75, 0.95)
    shape = _trapezoid(u, v, -0.9, hem, hips, ankle)
    gap = _trapezoid(u, v, pick(-0.5, -0.2), 1.5, 0.01, pick(0.08, 0.28))
    return np.minimum(shape, -gap), _stroke(v + 0.75, 0.03)


def _pullover(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    hem = pick(0.6, 0.85)
    shape = _upper(u, v, pick, hem, pick(-0.08, 0.08), pick(0.75, 1.05), pick(0.13, 0.2))
    neck = _ellipse(u, v, (0, -0.82), pick(0.12, 0.22), pick(0.08, 0.18))
    return np.minimum(shape, -neck), _stroke(v - hem + 0.16, 0.04)


def _dress(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    hem, waist, width = pick(0.75, 0.98), pick(-0.35, 0.0), pick(0.16, 0.26)
    bodice = _trapezoid(u, v, -0.85, waist + 0.05, pick(0.22, 0.36), width)
    skirt = _trapezoid(u, v, waist, hem, width, width + pick(0.1, 0.42))
    sleeve = _limb(np.abs(u), v, (0.2, -0.72), (pick(0.22, 0.5), pick(-0.65, -0.4)), 0.1)
    neck = _ellipse(u, v, (0, -0.88), pick(0.1, 0.2), pick(0.1, 0.35))
    shape = np.maximum(np.maximum(bodice, skirt), sleeve)
    return np.minimum(shape, -neck), _stroke(v - waist, 0.03)


def _coat(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    shape = _upper(u, v, pick, pick(0.82, 1.0), pick(0.0, 0.12), pick(0.8, 1.1), pick(0.13, 0.2))
    lapel = _trapezoid(u, v, -1.0, pick(-0.3, 0.2), pick(0.22, 0.34), 0.0)
    front = np.minimum(pick(0.04, 0.08) - np.abs(u), v + 0.2)
    return np.minimum(shape, 0.12 - lapel), np.maximum(front, _stroke(lapel, 0.03))


def _sandal(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    heel, toe = pick(0.0, 0.45), pick(0.42, 0.55)
    sole = _limb(u, v, (-0.75, toe - heel), (0.0, toe), pick(0.06, 0.11))
    sole = np.maximum(sole, _limb(u, v, (0.0, toe), (0.8, toe), pick(0.06, 0.11)))
    stilt = _limb(u, v, (-0.75, toe - heel), (-0.72, toe), pick(0.05, 0.12))
    ankle = pick(-0.5, -0.1)
    strap = _stroke(_ellipse(u, v, (pick(0.2, 0.5), toe), 0.3, pick(0.25, 0.5)), pick(0.05, 0.11))
    back = _limb(u, v, (-0.72, toe - heel), (-0.6, ankle - heel), pick(0.05, 0.1))
    across = _limb(u, v, (-0.6, ankle - heel + 0.1), (pick(-0.2, 0.4), toe - 0.1), pick(0.05, 0.1))
    straps = np.minimum(np.maximum(np.maximum(strap, back), across), toe - v)
    return np.maximum(np.maximum(sole, stilt), straps), None


def _shirt(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    hem, sleeve, tail = pick(0.7, 0.95), pick(0.45, 1.05), pick(0.2, 0.6)
    shape = _upper(u, v, pick, hem, pick(-0.05, 0.1), sleeve, pick(0.12, 0.2), tail)
    collar = _trapezoid(u, v, -1.0, pick(-0.6, -0.4), pick(0.2, 0.3), 0.0)
    buttons = np.minimum(0.07 - np.abs(u), _wave(v * pick(2.5, 4)) - 0.22)
    return np.minimum(shape, -collar), np.maximum(buttons, _stroke(collar + 0.1, 0.04))


def _sneaker(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    floor, ankle = pick(0.4, 0.5), pick(-0.35, -0.1)
    foot = _limb(u, v, (-0.6, floor - 0.2), (0.62, floor - pick(0.1, 0.18)), pick(0.2, 0.28))
    upper = _trapezoid(u + 0.4 - 0.3 * v, v, ankle, floor, pick(0.25, 0.35), pick(0.4, 0.7))
    shape = np.minimum(np.maximum(foot, upper), floor - v)
    instep = _ellipse(u, v, (0.1, 0.1), pick(0.25, 0.35), pick(0.15, 0.25))
    laces = np.minimum(_wave((u - v) * pick(3, 5)) - 0.3, instep)
    return shape, np.maximum(_stroke(v - floor + pick(0.12, 0.2), 0.03), laces)


def _bag(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    top, bottom, half = pick(-0.35, 0.0), pick(0.5, 0.8), pick(0.45, 0.8)
    body = _trapezoid(u, v, top, bottom, half, half + pick(-0.15, 0.15))
    handle = _ellipse(u, v, (0, top), half * pick(0.4, 0.9), pick(0.3, 0.7))
    flap = _stroke(v - top - pick(0.1, 0.4), 0.03)
    return np.maximum(body, _stroke(handle, pick(0.04, 0.09))), flap


def _ankle_boot(u: Array, v: Array, pick: Pick) -> tuple[Array, Array | None]:
    floor, top, heel = pick(0.55, 0.75), pick(-0.8, -0.35), pick(0.0, 0.25)
    foot = _limb(u, v, (-0.45, floor - 0.25), (0.55, floor - pick(0.1, 0.2)), pick(0.2, 0.28))
    shaft = _trapezoid(u + pick(0.3, 0.45), v, top, floor - 0.1, pick(0.26, 0.4), pick(0.28, 0.4))
    arch = np.minimum(_limb(u, v, (-0.1, floor), (0.2, floor), heel), floor - v)
    shape = np.minimum(np.maximum(foot, shaft), floor - v)
    return np.minimum(shape, -arch), _stroke(v - floor + pick(0.1, 0.18), 0.025)


GARMENTS: dict[str, Garment] = {
    "t-shirt": _t_shirt,
    "trouser": _trouser,
    "pullover": _pullover,
    "dress": _dress,
    "coat": _coat,
    "sandal": _sandal,
    "shirt": _shirt,
    "sneaker": _sneaker,
    "bag": _bag,
    "ankle boot": _ankle_boot,
}
LABELS = tuple(GARMENTS)


def _ink(depth: Array) -> Array:
    """Return the covered fraction of each pixel: 0 to 1 over the width of one pixel at the edge."""
    return np.clip(depth * (SIZE / 2) + 0.5, 0, 1)


def _photograph(garment: Garment, n: int, rng: np.random.Generator) -> Array:
    """Return n pictures of one garment, float32 [n, 28, 28], with values from about 0 to about 1."""

    def pick(low: float, high: float) -> Array:
        return low + (high - low) * rng.random((n, 1, 1), dtype=np.float32)

    y, x = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)[:, None] / (SIZE / 2) - (1 - 1 / SIZE)

    # Pose: the point of the garment that each pixel shows (turn, size, lean, place, mirror image).
    tangent, lean = pick(-TURN, TURN), pick(-LEAN, LEAN)
    cosine = 1 / np.sqrt(1 + tangent * tangent)
    x0, y0 = x - pick(-SHIFT, SHIFT), y - pick(-SHIFT, SHIFT)
    mirror = np.where(pick(0, 1) < MIRRORED, -1, 1).astype(np.float32)
    u = mirror * cosine / pick(*SCALE) * (x0 + tangent * y0)
    v = cosine / pick(*SCALE) * (y0 - tangent * x0)
    shape, seam = garment(u + lean * v, v, pick)

    # Cloth: a tone, stripes of any direction, width and strength, a darker seam.
    tone, strength = pick(*TONE), pick(-STRIPES, STRIPES)
    stripes = _wave(pick(-3, 3) * u + pick(-3, 3) * v + pick(0, 1))
    cloth = tone + strength * (stripes - 0.25)
    if seam is not None:
        cloth = cloth - pick(*SEAM) * _ink(seam)
    ground = pick(0, GROUND) + pick(-GROUND, GROUND) * x
    picture = ground + _ink(shape) * (cloth - ground)

    # Occlusion: a strap across, at any angle, and a blot.
    a, b = pick(-1, 1), pick(-1, 1)
    strap = pick(-STRAP, STRAP) - np.abs(a * x + b * y - pick(-0.7, 0.7)) / np.sqrt(a * a + b * b)
    picture = picture + _ink(strap) * (pick(0, 1) - picture)
    blot = _ellipse(x, y, (pick(-1, 1), pick(-1, 1)), pick(*BLOT), pick(*BLOT))
    picture = picture + _ink(blot) * (pick(0, 1) - picture)

    # Noise: the difference of two uniform numbers, stronger in some pictures.
    noise = rng.random((2, n, SIZE, SIZE), dtype=np.float32)
    return picture + pick(*NOISE) * (noise[0] - noise[1])


def draw(num_examples: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return drawn garments: images, uint8 [num_examples, 1, 28, 28], and labels, int64 [num_examples].

    A label is an index into `LABELS`; each block of 500 has 50 of each, shuffled. The same call returns the same bits,
    and fewer examples are a prefix of more. Raises TypeError for anything but whole numbers and ValueError for
    num_examples below 1 or seed below 0.
    """
    num_examples = positive_int("num_examples", num_examples)
    seed = whole_number("seed", seed, hint="Pass 0, 1, 2, ...")
    images = np.empty((num_examples, 1, SIZE, SIZE), dtype=np.uint8)
    labels = np.empty(num_examples, dtype=np.int64)
    each = BLOCK // len(LABELS)
    for start in range(0, num_examples, BLOCK):
        rng = np.random.default_rng([seed, start // BLOCK])
        pictures = np.concatenate([_photograph(g, each, rng) for g in GARMENTS.values()])
        order = rng.permutation(BLOCK)[: num_examples - start]  # the last block may be cut short
        pixels = np.clip(pictures[order], 0, 1) * 255 + 0.5  # the cast below rounds down
        images[start : start + BLOCK, 0] = pixels.astype(np.uint8)
        labels[start : start + BLOCK] = order // each
    return torch.from_numpy(images), torch.from_numpy(labels)
