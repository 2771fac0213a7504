"""`torch.autocast("cuda")`: round what a GPU would round, by the CPU's autocast.

PyTorch keeps the state of `autocast("cuda", dtype)` itself. Here each function on a pretend GPU is called under the
CPU's autocast with that dtype; functions on CPU tensors are not, as on a machine with GPUs. `GradScaler` needs nothing
of its own: it scales by operations on tensors, which are pretended like all others.
"""

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["autocast_is_on", "call_in_autocast"]

# what CUDA computes in float32 (PyTorch's page "Automatic Mixed Precision", "CUDA Ops that can autocast to float32");
# the CPU's list is shorter, so that a softmax, for example, would stay in bfloat16
FLOAT32 = frozenset(
    "__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss "
    "cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div "
    "l1_loss layer_norm log log10 log_softmax log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss "
    "multi_margin_loss nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss "
    "soft_margin_loss softmax softmin softplus sum renorm tan triplet_margin_loss".split()
)
# one function on the CPU computes all steps of such a layer: its numbers are rounded before and after, not in between
ROUNDED = frozenset("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split())
SIXTEEN_BITS = (torch.float16, torch.bfloat16)


def autocast_is_on() -> bool:
    """Return whether this thread is in an autocast for GPUs or for the CPU."""
    return torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")


def call_in_autocast(func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    """Call a function of tensors on a pretend GPU, and round as `autocast("cuda")` says, which may be off.

    Raises RuntimeError for binary_cross_entropy, as PyTorch does: its gradient is not safe in float16.
    """
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    if enabled and name == "binary_cross_entropy":
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. "
            "Use binary_cross_entropy_with_logits or BCEWithLogitsLoss."
        )
    is_rounded = enabled and name in ROUNDED
    if is_rounded:
        args = _cast(args, dtype, (torch.float32,))
    if is_rounded or (enabled and name in FLOAT32):
        enabled, args, kwargs = False, _cast(args), _cast(kwargs)
    before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype if enabled else before[1])
    try:
        result = func(*args, **kwargs)
        return _cast(result, dtype, (torch.float32,)) if is_rounded else result
    finally:
        torch.set_autocast_enabled("cpu", before[0])
        torch.set_autocast_dtype("cpu", before[1])


def _cast(value: Any, to: torch.dtype = torch.float32, of: tuple[torch.dtype, ...] = SIXTEEN_BITS) -> Any:
    """Return tensors whose dtype is among `of` in the dtype `to`; they may be in tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return value.to(to) if value.dtype in of else value
    if isinstance(value, dict):
        return {name: _cast(item, to, of) for name, item in value.items()}
    return type(value)(_cast(item, to, of) for item in value) if type(value) in (tuple, list) else value
