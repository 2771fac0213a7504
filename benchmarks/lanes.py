"""What the device lanes of the index cost the training that they show: a watched training against the plain one."""

from benchmarks.report import Row, rounds
from d2lite import Panel, train
from d2lite.profiling import train_watched

__all__ = ["rows"]


def rows(n=3, num_examples=4_000, num_epochs=5):
    """Return the row of the lanes: `n` rounds of the index's run on two replicas, with recorded steps and without.

    Both run in a panel without a page: the steps are recorded, turned into what the page gets, and sent to nobody. What
    the page draws is not in it.
    """
    settings = {"num_gpus": 2, "lr": 0.2, "batch_size": 256, "num_epochs": num_epochs}

    def epoch_s(function):
        panel = Panel(function, **settings, fixed={"num_examples": num_examples})
        panel.train.click()
        run = panel.wait()
        panel.close()
        return run.seconds_per_epoch

    contestants = {"ours": lambda: epoch_s(train_watched), "peer": lambda: epoch_s(train)}
    seconds = rounds(contestants, n, warm_up=contestants)
    return [Row("device lanes, s/epoch, 2 replicas", "s", seconds["ours"], seconds["peer"], "without", ("ratio", 1.02))]
