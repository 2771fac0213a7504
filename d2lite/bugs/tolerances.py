"""How large a relative difference rounding explains: where it is larger, the code computes something different."""

import torch

__all__ = ["FLOAT32_STEP_RTOL", "FLOAT64_STEP_RTOL", "REDUCTION_ORDER_RTOL", "SAME_BUG_RTOL", "reduction_order_rtol"]

REDUCTION_ORDER_RTOL = {torch.float64: 1e-9, torch.float32: 1e-3}
_COARSE_RTOL = 1e-1

FLOAT64_STEP_RTOL, FLOAT32_STEP_RTOL, SAME_BUG_RTOL = 1e-9, 1e-4, 1e-6


def reduction_order_rtol(dtype: torch.dtype) -> float:
    """Return the bound of REDUCTION_ORDER_RTOL for a type; all types but float64 and float32 count as 16-bit."""
    return REDUCTION_ORDER_RTOL.get(dtype, _COARSE_RTOL)
