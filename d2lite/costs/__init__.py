"""The cost model: what links, devices, steps and scaling are predicted to cost, in closed form."""

from typing import TYPE_CHECKING

from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from d2lite.costs.alpha_beta import COST_FORMULAS, Cluster, Device, Link, all_reduce_seconds
    from d2lite.costs.hardware import DEVICES, LINKS, find_device, find_link

__all__, __getattr__, __dir__ = lazy_names(__name__)
