"""The game of meshes: what it says to each choice, when it is solved, and that it does not give the answer away."""

import html
import math
import re
from itertools import product

import pytest

from d2lite.costs import Cluster, find_device, find_link
from d2lite.labs.chapter_13 import MEMORY_MODELS
from d2lite.labs.chapter_16 import Mesh, MeshGame, fastest_mesh, predict_mesh_step, why_slower

H100 = find_device("H100, bfloat16, GPT 1.3B")
CLUSTER = Cluster(find_link("NVLink 4 (H100, 18 links)"), find_link("InfiniBand NDR 400 Gb/s"), 8)
MODELS = {model.name: model for model in MEMORY_MODELS}
POWERS = [1, 2, 4, 8, 16, 32, 64]


def chosen(pipe, data, tensor, microbatch=1, **arguments):
    game = MeshGame(**arguments)
    game.pipe.value, game.data.value, game.tensor.value, game.microbatch.value = pipe, data, tensor, microbatch
    return game


def predicted(game):
    mesh = Mesh(game.pipe.value, game.data.value, game.tensor.value)
    model = MODELS[game.model.value]
    return predict_mesh_step(model, mesh, game.batch_size, H100, CLUSTER, microbatch=game.microbatch.value)


def best_of(name, num_ranks, batch_size=64):
    """The fastest step that fits, of all triples of powers of two and all microbatches of the game."""
    found = []
    for *shape, microbatch in product(POWERS, POWERS, POWERS, (1, 2, 4, 8)):
        if math.prod(shape) == num_ranks:
            try:
                step = predict_mesh_step(MODELS[name], Mesh(*shape), batch_size, H100, CLUSTER, microbatch=microbatch)
            except ValueError:
                continue
            found += [step] if step.memory.total_n_bytes <= 80e9 else []
    return min(found, key=lambda step: step.seconds, default=None)


def words(game):
    return html.unescape(re.sub("<[^<>]*>", "", game.summary.value))


def lengths(plot):
    """The parts of the bars, {name: lengths}."""
    return {bar.name: list(bar.x) for bar in plot.figure.data if len(bar.x)}


def test_it_starts_with_a_mesh_that_does_not_fit():
    game = MeshGame()
    assert (game.model.value, game.num_ranks.value) == ("GPT-3, 175 B", 64)
    assert (game.pipe.value, game.data.value, game.tensor.value, game.microbatch.value) == (1, 8, 8, 1)
    assert game.step == predicted(game) and game.seconds == game.step.seconds and not game.is_solved
    assert game.best_seconds == best_of("GPT-3, 175 B", 64).seconds
    assert words(game) == (
        "Not yet: It does not fit: a rank would hold 130 GB and has 80.0 GB, predicted. Parameters and gradients are "
        "the largest part, 87.3 GB: each of the 8 replicas (data) has its own, and only pipe and tensor divide them. "
        "7.22 s per step, 297 · 10¹² operations per second and GPU, predicted. The fastest mesh that fits takes 6.73 s."
    )
    rules = game.view.children[1].value
    assert "a port of 400 Gb/s InfiniBand for each GPU" in rules and rules.endswith(
        "All times and bytes are predicted."
    )
    assert repr(game).startswith("MeshGame\na step, predicted.")


def test_the_bars_are_the_prediction():
    game = chosen(4, 2, 8)
    step = predicted(game)
    assert game.step == step and game.seconds == step.seconds
    shown = lengths(game.plot)
    assert shown["the whole step"] == [game.best_seconds]
    assert [shown[name] for name in list(shown)[:-1]] == [
        [step.compute_s], [step.tensor_s], [step.bubble_s], [step.data_s]
    ]  # fmt: skip
    held = lengths(game.memory)
    assert held["for a moment"] == [step.memory.loss_n_bytes]
    assert held["activations"] == [step.memory.activations_n_bytes] and held["state"] == [step.memory.optimizer_n_bytes]
    assert game.figure is game.plot.figure and "6.75 s" in repr(game)


def test_a_slower_mesh_hears_why():
    game = chosen(1, 2, 32)
    assert not game.is_solved
    assert words(game) == (
        "15.8 s per step, 135 · 10¹² operations per second and GPU, predicted. The fastest mesh that fits takes 6.73 "
        "s. " + why_slower(game.step, best_of("GPT-3, 175 B", 64), CLUSTER, 80e9)
    )
    assert words(game).endswith(
        "32 ranks are more than a host has (8), so they go over the network. A sum over 32 ranks takes 62 messages one "
        "after the other, each with the latency of the network. All times are predicted."
    )
    assert "32 ranks share each layer, and a rank sends 1.20 TB in a step." in words(chosen(1, 2, 32, microbatch=8))


def test_few_of_the_choices_solve_it_and_memory_excludes_most():
    seconds, fitting = {}, {}
    for pipe, data, tensor, microbatch in product(POWERS, POWERS, POWERS, (1, 2, 4, 8)):
        if pipe * data * tensor == 64 and 96 % tensor == 0 and 64 % (data * microbatch) == 0:  # GPT-3 has 96 heads
            mesh, options = Mesh(pipe, data, tensor), {"microbatch": microbatch}
            step = predict_mesh_step(MODELS["GPT-3, 175 B"], mesh, 64, H100, CLUSTER, **options)
            seconds[(*mesh.shape, microbatch)] = step.seconds
            if step.memory.total_n_bytes <= 80e9:
                fitting[(*mesh.shape, microbatch)] = step.seconds
    assert (len(seconds), len(fitting)) == (98, 20)
    within = {share: [c for c in fitting if fitting[c] <= (1 + share) * min(fitting.values())] for share in (0.02, 0.1)}
    assert sorted(within[0.02], key=fitting.get) == [(8, 1, 8, 1), (4, 2, 8, 1), (8, 2, 4, 1), (16, 1, 4, 1)]
    assert len(within[0.1]) == 6
    excluded = min(seconds, key=seconds.get)
    assert excluded == (1, 64, 1, 1) and seconds[excluded] < 0.92 * min(fitting.values())
    for choice in [*within[0.1], excluded]:
        assert chosen(*choice).is_solved == (choice in within[0.02]), choice


def test_it_is_solved_by_the_fastest_and_by_one_within_two_per_cent():
    fastest = chosen(8, 1, 8)
    assert fastest.is_solved and fastest.seconds == fastest.best_seconds
    assert words(fastest).endswith("The fastest mesh that fits takes 6.73 s. Solved: no mesh that fits is faster.")
    near = chosen(4, 2, 8)
    assert near.is_solved and near.best_seconds < near.seconds < 1.02 * near.best_seconds
    assert words(near) == (
        "6.75 s per step, 318 · 10¹² operations per second and GPU, predicted. The fastest mesh that fits takes 6.73 "
        "s. Solved: yours is at most 2% slower. It waits 119 ms for the messages of data parallelism, the fastest mesh "
        "0 ms: its groups of 2 lie among 16 ranks in a row, more than a host has (8), so they go over the network, "
        "each group through one port per host. All times are predicted."
    )
    faster = chosen(1, 16, 4, microbatch=4)  # but it does not fit
    assert faster.seconds < faster.best_seconds and not faster.is_solved and "Not yet" in words(faster)


@pytest.mark.parametrize(
    ("name", "num_ranks"), [*product(("GPT-2, 1.5 B", "Llama 2, 7 B", "GPT-3, 175 B"), (16, 32, 64))]
)
def test_it_can_be_solved_where_something_fits(name, num_ranks):
    best, game = best_of(name, num_ranks), MeshGame(name, num_ranks)
    if best is None:
        assert math.isnan(game.best_seconds) and name == "GPT-3, 175 B" and num_ranks < 64
        return
    assert game.best_seconds == best.seconds and not game.is_solved
    game.microbatch.value = best.microbatch
    for dimension in ("pipe", "data", "tensor"):
        getattr(game, dimension).value = getattr(best.mesh, dimension)
    assert game.is_solved and game.seconds == best.seconds


def test_where_nothing_fits_it_says_so():
    game = MeshGame(num_ranks=32)
    assert words(game) == (
        "No mesh fits: GPT-3, 175 B does not fit on 32 GPUs of 80 GB, whatever the mesh. Choose more GPUs or another "
        "network."
    )
    assert game.step == predicted(game) and not game.is_solved and "the whole step" not in lengths(game.plot)
    game.show_fastest()
    assert "The fastest" not in words(game)


def test_numbers_with_another_product_are_no_mesh():
    game = chosen(2, 8, 8)
    assert words(game) == (
        "Not yet: pipe · data · tensor = 2 · 8 · 8 = 128, and there are 64 GPUs. Choose numbers whose product is 64."
    )
    assert game.step is None and math.isnan(game.seconds) and not game.is_solved
    assert lengths(game.plot) == {"the whole step": [game.best_seconds]} and lengths(game.memory) == {}
    game.data.value = 4
    assert game.step == predicted(game)


def test_a_mesh_that_cannot_be_is_explained():
    assert words(chosen(1, 64, 1, microbatch=2)) == (
        "Not yet: batch_size: expected a multiple of 128 (data 64 times microbatch 2), got 64. Each replica gets whole "
        "microbatches."
    )
    assert "expected a tensor that divides the 25 heads of GPT-2, 1.5 B, got 8." in words(MeshGame("GPT-2, 1.5 B"))
    assert "expected at most 34 stages for Llama 2, 7 B (32 blocks, an embedding, a head), got 64." in words(
        chosen(64, 1, 1, model="Llama 2, 7 B")
    )


def shown_of(game):
    """All that a page, a saved notebook and a terminal show."""
    bundle = [plot._json for plot in game.plots] + [plot.alternative_text for plot in game.plots]
    return " ".join([*bundle, game.summary.value, game._draw_static(), repr(game)])


def test_the_answer_is_shown_when_it_is_asked_for_and_not_before():
    game = chosen(4, 1, 16)  # 8 x 1 x 8 is the fastest
    best = best_of("GPT-3, 175 B", 64)
    answer = (
        "The fastest: pipe 8, data 1, tensor 8, microbatch 1: 6.73 s, predicted. FSDP alone with full checkpointing: "
        "6.95 s, and a rank holds 66.3 GB, predicted."
    )
    own = [f"{best.tensor_s}", f"{best.bubble_s}", "The fastest:", "pipe 8", "8 x 1 x 8"]
    assert not any(part in html.unescape(re.sub("</?b>", "", shown_of(game))) for part in own)
    before = game.seconds, game.is_solved
    game.button.click()
    assert words(game).endswith(answer) and (game.seconds, game.is_solved) == before
    assert lengths(game.plot)["tensor: all-reduces"] == [game.step.tensor_s, best.tensor_s]
    game.tensor.value = 8
    assert words(game).endswith(answer)  # it stays where it was asked for
    game.model.value = "Llama 2, 7 B"
    assert "The fastest:" not in words(game) and len(lengths(game.plot).get("computing", [])) <= 1


def test_fsdp_alone_is_said_with_the_least_checkpointing_that_fits():
    small = MeshGame("Llama 2, 7 B")
    small.show_fastest()
    assert "FSDP alone without checkpointing: 406 ms" in words(small)
    odd = MeshGame("Llama 2, 7 B", batch_size=32)
    odd.show_fastest()
    assert words(odd).endswith("FSDP alone needs a multiple of 64 pieces of text.")


def test_the_height_of_the_figures_stays():
    game = chosen(8, 1, 8)
    heights = [[plot.figure.layout.height for plot in game.plots]]
    for change in (
        lambda: setattr(game.pipe, "value", 1),
        game.show_fastest,
        lambda: setattr(game.tensor, "value", 64),
    ):
        change()
        heights.append([plot.figure.layout.height for plot in game.plots])
    assert heights == [heights[0]] * 4


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"model": "GPT-4"},
            ValueError,
            "model: expected one of GPT-2, 1.5 B; Llama 2, 7 B; GPT-3, 175 B, got 'GPT-4'.",
        ),
        ({"num_ranks": 8}, ValueError, "num_ranks: expected one of 16, 32, 64, got 8."),
        ({"num_ranks": 64.0}, TypeError, "num_ranks: expected a positive whole number, got 64.0 (float)."),
        ({"batch_size": 0}, ValueError, "batch_size: expected a positive whole number, got 0."),
    ],
)
def test_other_sizes_are_refused(arguments, error, message):
    with pytest.raises(error) as caught:
        MeshGame(**arguments)
    assert str(caught.value) == message


def test_its_fastest_is_that_of_the_search():
    found = [fastest_mesh(MODELS["Llama 2, 7 B"], 16, 32, H100, CLUSTER, 80e9, microbatch=b) for b in (1, 2, 4, 8)]
    assert MeshGame("Llama 2, 7 B", 16, 32).best_seconds == min(step.seconds for _, step in found)
