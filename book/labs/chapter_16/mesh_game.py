"""A game: choose the mesh of ranks on which a step of a large transformer is predicted to be the fastest."""

import html

import ipywidgets as widgets

from d2lite.costs.alpha_beta import Cluster
from d2lite.costs.hardware import find_device, find_link
from d2lite.figures.figure import Figure
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, row, sheet
from notebook_ranks.shared.checks import one_of, positive_int
from notebook_ranks.shared.format import format_bytes, format_seconds

from ..chapter_13.memory import MEMORY_MODELS, MemoryModel
from ..chapter_13.memory_figure import memory_bars
from .fsdp_step import predict_fsdp_step
from .mesh_search import fastest_mesh, why_slower
from .mesh_step import Mesh, MeshStep, predict_mesh_step
from .mesh_step_figure import mesh_step_figure

__all__ = ["MeshGame"]

_DEVICE = find_device("H100, bfloat16, GPT 1.3B")
_CLUSTER = Cluster(find_link("NVLink 4 (H100, 18 links)"), find_link("InfiniBand NDR 400 Gb/s"), per_host=8)
_DEVICE_N_BYTES = 80e9
_NUM_RANKS = (16, 32, 64)
_MICROBATCHES = (1, 2, 4, 8)
# the state of training, 16 bytes per parameter, needs more than one GPU, and fits on the largest cluster
_MODELS = {
    model.name: model for model in MEMORY_MODELS if 1e9 < model.num_params < _DEVICE_N_BYTES * max(_NUM_RANKS) / 16
}


class MeshGame(Explorer):
    """Pipe, data, tensor and microbatch to choose, and the predicted step: beside it the time of the fastest mesh.

    The GPUs are H100 with 80 GB, 8 in a host: NVLink inside of a host, and a port of 400 Gb/s InfiniBand for each GPU
    from host to host. The fastest mesh is found by trying all that fit, with each microbatch. Its time is shown, and in
    words why yours is slower or does not fit; the mesh itself only after `show_fastest`, which the button calls. Then
    the words also say what FSDP alone would take on as many GPUs.

    `model`, `num_ranks`, `pipe`, `data`, `tensor` and `microbatch` are the controls: set their `value` by hand or in
    code. `step` is the predicted step, None where there is none; `seconds` and `best_seconds` are its time and that of
    the fastest mesh (nan without). `is_solved` says that yours fits and is at most 2% slower.

    Args:
        model: the name of the transformer, one of MEMORY_MODELS with 10^9 parameters or more that 64 GPUs can hold.
        num_ranks: how many GPUs there are: 16, 32 or 64.
        batch_size: pieces of text in the minibatch of all ranks.

    Raises:
        ValueError: if there is no such model or number of GPUs, or the minibatch is not above 0.
        TypeError: if an argument has another type.
    """

    def __init__(self, model: str = "GPT-3, 175 B", num_ranks: int = 64, batch_size: int = 64) -> None:
        one_of("model", model, _MODELS, "; ")
        if positive_int("num_ranks", num_ranks) not in _NUM_RANKS:
            raise ValueError(f"num_ranks: expected one of {', '.join(map(str, _NUM_RANKS))}, got {num_ranks}.")
        self.batch_size = positive_int("batch_size", batch_size)
        style = [360, 110]
        self.model = widgets.Dropdown(options=list(_MODELS), value=model, **control_style("network", *style))
        self.num_ranks = widgets.Dropdown(options=_NUM_RANKS, value=num_ranks, **control_style("GPUs", *style))
        powers = [2**i for i in range(max(_NUM_RANKS).bit_length())]
        start = {"pipe": 1, "data": num_ranks // 8, "tensor": 8}
        self.pipe, self.data, self.tensor = (
            widgets.SelectionSlider(options=powers, value=value, **control_style(name, *style))
            for name, value in start.items()
        )
        self.microbatch = widgets.SelectionSlider(options=_MICROBATCHES, **control_style("microbatch", *style))
        self.button = widgets.Button(description="Show the fastest", icon="eye", layout=widgets.Layout(width="180px"))
        self.button.on_click(lambda _: self.show_fastest())
        self._shown: tuple[str, int] | None = None  # the network and the GPUs for which the answer was asked
        self.step: MeshStep | None = None
        self.is_solved, self.seconds, self.best_seconds = False, float("nan"), float("nan")
        rules = (
            f"A minibatch of {batch_size} pieces of text. pipe · data · tensor is the number of GPUs. GPUs are H100 "
            f"with {_DEVICE_N_BYTES / 1e9:g} GB, 8 in a host, with NVLink inside and a port of 400 Gb/s InfiniBand for "
            "each GPU from host to host; Adam in mixed precision, ZeRO stage 1, 1F1B. All times and bytes are "
            "predicted."
        )
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="128px", max_width="820px"))
        drawn, held = self._draw()
        self.plot, self.memory = PlotlyWidget(drawn), PlotlyWidget(held)
        controls = [self.model, self.num_ranks, self.pipe, self.data, self.tensor, self.microbatch]
        columns = [widgets.VBox(controls[:2]), widgets.VBox(controls[2:])]
        said = widgets.HTML(rules, layout=widgets.Layout(max_width="820px"))
        self.view = widgets.VBox([sheet(), said, row(columns), self.plot, self.memory, self.button, self.summary])
        self.view.add_class(CLASS)
        self._follow(controls)

    @property
    def plots(self) -> list[PlotlyWidget]:
        """The widgets of both figures: the step, and the memory of a rank."""
        return [self.plot, self.memory]

    def show_fastest(self) -> None:
        """Show the fastest mesh for the network and the GPUs that are chosen."""
        self._shown = self.model.value, self.num_ranks.value
        self._update()

    def _best(self, model: MemoryModel) -> MeshStep | None:
        found = [
            fastest_mesh(
                *(model, self.num_ranks.value, self.batch_size, _DEVICE, _CLUSTER, _DEVICE_N_BYTES),
                microbatch=microbatch,
            )
            for microbatch in _MICROBATCHES
        ]
        return min((one[1] for one in found if one), key=lambda step: step.seconds, default=None)

    def _draw(self) -> tuple[Figure, Figure]:
        model = _MODELS[self.model.value]
        best = self._best(model)
        self.best_seconds = best.seconds if best else float("nan")
        self.step, self.is_solved, self.seconds = None, False, float("nan")
        try:
            self.step = self._predict(model)
            self._words = self._judged(self.step, best)
        except ValueError as error:
            self._words = f"<b>Not yet</b>: {html.escape(str(error))}"
        is_shown = self._shown == (self.model.value, self.num_ranks.value)
        if is_shown and best:
            self._words += (
                f"<br><b>The fastest</b>: pipe {best.mesh.pipe}, data {best.mesh.data}, tensor {best.mesh.tensor}, "
                f"microbatch {best.microbatch}: {format_seconds(best.seconds)}, predicted. {self._fsdp_alone(model)}"
            )
        steps = {"your mesh": self.step, "the fastest mesh that fits": best if is_shown else best and best.seconds}
        held = {"a rank": self.step.memory} if self.step else {}
        memory = memory_bars(held, _DEVICE_N_BYTES, "What a rank holds, predicted").update_layout(height=200)
        return mesh_step_figure(steps), memory

    def _fsdp_alone(self, model: MemoryModel) -> str:
        """Return in words what FSDP without other parallelism takes, with the least checkpointing that fits."""
        num_ranks = self.num_ranks.value
        if self.batch_size % num_ranks:
            return f"FSDP alone needs a multiple of {num_ranks} pieces of text."
        ways: dict[bool | str, str] = {False: "without", "selective": "with selective", True: "with full"}
        steps = {way: predict_fsdp_step(model, num_ranks, self.batch_size, _DEVICE, _CLUSTER, checkpointing=way)
                 for way in ways}  # fmt: skip
        way = next((way for way, step in steps.items() if step.fits(_DEVICE_N_BYTES)), None)
        if way is None:
            return f"FSDP alone does not fit: a rank would hold {format_bytes(steps[True].memory.total_n_bytes)}."
        step = steps[way]
        return (
            f"<b>FSDP alone</b> {ways[way]} checkpointing: {format_seconds(step.seconds)}, and a rank holds "
            f"{format_bytes(step.memory.total_n_bytes)}, predicted."
        )

    def _predict(self, model: MemoryModel) -> MeshStep:
        mesh, num_ranks = Mesh(self.pipe.value, self.data.value, self.tensor.value), self.num_ranks.value
        if mesh.num_ranks != num_ranks:
            raise ValueError(
                f"pipe · data · tensor = {mesh.pipe} · {mesh.data} · {mesh.tensor} = {mesh.num_ranks}, and there are "
                f"{num_ranks} GPUs. Choose numbers whose product is {num_ranks}."
            )
        return predict_mesh_step(model, mesh, self.batch_size, _DEVICE, _CLUSTER, microbatch=self.microbatch.value)

    def _judged(self, step: MeshStep, best: MeshStep | None) -> str:
        """Return the words for a step that can be predicted."""
        self.seconds = step.seconds
        if best is None:
            return (
                f"<b>No mesh fits</b>: {self.model.value} does not fit on {self.num_ranks.value} GPUs of "
                f"{_DEVICE_N_BYTES / 1e9:g} GB, whatever the mesh. Choose more GPUs or another network."
            )
        fits = step.fits(_DEVICE_N_BYTES)
        self.is_solved = fits and step.seconds <= 1.02 * best.seconds
        words = (
            f"<b>{format_seconds(step.seconds)} per step</b>, {step.tflops_per_gpu:.0f} · 10¹² operations per second "
        )
        words += f"and GPU, predicted. The fastest mesh that fits takes {format_seconds(best.seconds)}."
        if self.is_solved and step.seconds <= best.seconds:
            return f"{words} <b>Solved</b>: no mesh that fits is faster."
        why = html.escape(why_slower(step, best, _CLUSTER, _DEVICE_N_BYTES))
        if self.is_solved:
            return f"{words} <b>Solved</b>: yours is at most 2% slower. {why}"
        return f"{words} {why}" if fits else f"<b>Not yet</b>: {why} {words}"

    def _redraw(self) -> None:
        drawn, held = self._draw()
        self.plot.show(drawn)
        self.memory.show(held)
        self.summary.value = self._words
