"""The laboratory of chapter 15, one stage after the other: pipeline schedules, their steps and their prices."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from .measured_on_ranks import mean_pass, one_device, record_on_rank, seconds_of_step
    from .pipeline import (
        Stage,
        backward_pass,
        begin_send,
        check_passes,
        forward_pass,
        my_stage,
        pipeline_step,
        receive,
        run_passes,
        share_of_loss,
    )
    from .pipeline_explorer import PipelineExplorer
    from .pipeline_schedule import (
        PASS_KINDS,
        Pass,
        check_schedule,
        compare_with_1f1b,
        gpipe,
        needs,
        one_f_one_b,
        parse_passes,
        pass_order,
    )
    from .pipeline_search import shortest_step
    from .pipeline_step import bubble_formula, bubble_of, microbatches_held, predict_pipeline
    from .rows_of_ranks import split_row
    from .schedule_puzzle import SchedulePuzzle
    from .torch_schedules import TORCH_SCHEDULES, torch_schedule

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
