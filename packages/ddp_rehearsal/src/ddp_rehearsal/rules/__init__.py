"""Rules: from what was observed on all ranks to findings. Pure functions.

A finding is meant to be sure. What may be intended, such as tensors that differ because ranks hold different parts of a
network, is a note; `--allow` makes notes of findings that somebody intends.
"""

from collections.abc import Callable

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import Observed
from ddp_rehearsal.rules.collectives import (
    gathered_without_gradient,
    loss_reduced_before_backward,
    not_waited_for,
    reductions_in_another_order,
)
from ddp_rehearsal.rules.copies import (
    copies,
    left_out_updates,
    unlike_at_the_end,
    unlike_buffers,
    unlike_when_evaluated,
)
from ddp_rehearsal.rules.devices import group_of_one, one_gpu, rank_as_gpu, train_on_cpu
from ddp_rehearsal.rules.examples import (
    copies_of_workers,
    data_sets,
    equal_minibatches,
    forgotten_set_epoch,
    left_out_alone,
    num_steps,
    padded_evaluation,
    same_order_again,
    sampler_seeds,
    shared_examples,
    uneven_loaders,
)
from ddp_rehearsal.rules.files import (
    loaded_to_gpu_0,
    nothing_loaded,
    one_file,
    one_log_folder,
    read_too_early,
    wrapper_in_names,
)
from ddp_rehearsal.rules.gradients import (
    clipped_before_the_reduction,
    clipped_in_parts,
    clipped_while_scaled,
    gradients_kept,
    left_over_minibatches,
    lost_gradients,
    missing_gradients,
    scaled_updates,
    several_backward_passes,
)
from ddp_rehearsal.rules.networks import (
    left_in_evaluation_mode,
    lost_attributes,
    same_random_numbers,
    statistics_per_rank,
)
from ddp_rehearsal.rules.optimizers import (
    learning_rates,
    not_held,
    scheduled_for_all_ranks,
    too_many_steps_of_a_scheduler,
)

__all__ = ["RULES"]

RULES: tuple[Callable[[Observed], list[Finding]], ...] = (
    group_of_one,
    one_gpu,
    left_out_updates,
    copies,
    unlike_at_the_end,
    unlike_when_evaluated,
    equal_minibatches,
    sampler_seeds,
    shared_examples,
    data_sets,
    forgotten_set_epoch,
    same_order_again,
    copies_of_workers,
    uneven_loaders,
    num_steps,
    left_out_alone,
    padded_evaluation,
    learning_rates,
    gradients_kept,
    lost_gradients,
    scaled_updates,
    clipped_while_scaled,
    clipped_before_the_reduction,
    clipped_in_parts,
    not_waited_for,
    loss_reduced_before_backward,
    left_in_evaluation_mode,
    not_held,
    reductions_in_another_order,
    one_file,
    loaded_to_gpu_0,
    nothing_loaded,
    train_on_cpu,
    several_backward_passes,
    missing_gradients,
    statistics_per_rank,
    unlike_buffers,
    gathered_without_gradient,
    too_many_steps_of_a_scheduler,
    scheduled_for_all_ranks,
    same_random_numbers,
    wrapper_in_names,
    read_too_early,
    one_log_folder,
    left_over_minibatches,
    rank_as_gpu,
    lost_attributes,
)
