"""DeviceLanes: what it sends to the page is the step that was recorded."""

import base64
import json

import torch

from d2lite import Panel
from d2lite.profiling import ImageGuesses, RecordedStep, train_watched
from d2lite.trace import Event
from d2lite.widgets.device_lanes import CLOTHES, DeviceLanes

EVENTS = [
    Event(rank=0, kind="wait", name="wait for a core", start_s=1.0, end_s=1.001),
    Event(rank=0, kind="forward", name="forward", start_s=1.001, end_s=1.011),
    Event(rank=0, kind="backward", name="backward", start_s=1.011, end_s=1.041),
    Event(rank=1, kind="forward", name="forward", start_s=1.001, end_s=1.021),
    Event(rank=1, kind="backward", name="backward", start_s=1.021, end_s=1.031),
    Event(rank=0, kind="all_reduce", name="all gradients", start_s=1.041, end_s=1.042, n_bytes=8000),
]


def test_lanes_hold_the_images_and_the_measured_times():
    images = [torch.randint(0, 256, (n, 28, 28), dtype=torch.uint8) for n in (6, 2)]
    lanes = DeviceLanes()
    assert lanes._step == "" and lanes.alternative_text == ""
    lanes.show_step(RecordedStep(7, EVENTS, images, [20, 2], 516_272))
    state = json.loads(lanes._step)
    assert (state["step"], state["time"], state["batch"]) == (7, "42 ms", 22)
    one, two = state["lanes"]
    assert base64.b64decode(one["images"]) == images[0].numpy().tobytes() and (one["more"], two["more"]) == (14, 0)
    assert [(b[0], round(b[2], 3), round(b[3], 3), b[4]) for b in one["blocks"]] == [
        ("forward", 0.0, 0.25, "10 ms"),
        ("backward", 0.25, 1.0, "30 ms"),
    ]
    assert two["blocks"][1][3] == 0.75  # ready before the other device
    assert "device 1: forward 20 ms, backward 10 ms" in lanes.alternative_text
    lanes.close()


def test_test_images_say_what_the_network_takes_them_for():
    lanes = DeviceLanes()
    images = torch.zeros(2, 28, 28, dtype=torch.uint8)
    lanes.show_tests(ImageGuesses(images, torch.tensor([9, 2]), torch.tensor([9, 6])))
    assert [(e["taken"], e["isRight"]) for e in json.loads(lanes._tests)] == [("boot", True), ("shirt", False)]
    assert lanes.alternative_text == "1 of 2 test images are right." and len(CLOTHES) == 10
    lanes.close()


def test_a_panel_shows_the_steps_of_a_watched_training_and_no_lanes_for_another():
    panel = Panel(train_watched, num_gpus=2, lr=0.1, batch_size=50, num_epochs=1, fixed={"num_examples": 100})
    panel.train.click()
    panel.wait()
    assert json.loads(panel.layout.lanes._step)["batch"] == 50 and len(json.loads(panel.layout.lanes._tests)) == 8
    panel.close()
    other = Panel(lambda lr=0.1, animator=None: animator.add(1, lr))
    other.train.click()
    other.wait()
    assert other.layout.lanes._step == "" == other.layout.lanes._tests
    other.close()
