"""Rules: from what was observed on all ranks to findings. Pure functions.

A finding is sure. What may be intended, such as tensors that differ because ranks hold different parts of a network,
is a note.
"""

from collections.abc import Callable

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import Observed
from ddp_rehearsal.rules.arithmetic import (
    clipped_before_the_reduction,
    clipped_while_scaled,
    gathered_without_gradient,
    gradients_kept,
    learning_rates,
    left_in_evaluation_mode,
    lost_attributes,
    lost_gradients,
    missing_gradients,
    not_held,
    reductions_in_another_order,
    same_random_numbers,
    scaled_updates,
    several_backward_passes,
    statistics_per_rank,
    too_many_steps_of_a_scheduler,
)
from ddp_rehearsal.rules.copies import copies, left_out_updates, unlike_at_the_end, unlike_buffers
from ddp_rehearsal.rules.devices import one_gpu, train_on_cpu
from ddp_rehearsal.rules.examples import (
    copies_of_workers,
    data_sets,
    equal_minibatches,
    forgotten_set_epoch,
    num_steps,
    padded_evaluation,
    same_order_again,
    sampler_seeds,
    shared_examples,
    uneven_loaders,
)
from ddp_rehearsal.rules.files import loaded_to_gpu_0, module_in_names, one_file

__all__ = ["RULES"]

RULES: tuple[Callable[[Observed], list[Finding]], ...] = (
    one_gpu,
    left_out_updates,
    copies,
    unlike_at_the_end,
    equal_minibatches,
    sampler_seeds,
    shared_examples,
    data_sets,
    forgotten_set_epoch,
    same_order_again,
    copies_of_workers,
    uneven_loaders,
    num_steps,
    padded_evaluation,
    learning_rates,
    gradients_kept,
    lost_gradients,
    scaled_updates,
    clipped_while_scaled,
    clipped_before_the_reduction,
    left_in_evaluation_mode,
    not_held,
    reductions_in_another_order,
    one_file,
    loaded_to_gpu_0,
    train_on_cpu,
    several_backward_passes,
    missing_gradients,
    statistics_per_rank,
    unlike_buffers,
    gathered_without_gradient,
    too_many_steps_of_a_scheduler,
    same_random_numbers,
    module_in_names,
    lost_attributes,
)
