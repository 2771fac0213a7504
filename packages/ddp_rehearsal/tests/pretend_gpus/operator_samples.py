"""PyTorch's own samples of its operators, with and without the hooks that count what autograd keeps.

Each operator gets its first samples with all tensors on a pretend GPU, and once more with the tensors that it may have
on the CPU there. With the hooks, results, their devices, and the devices of all arguments must be the same as without.
"""

import copy
import itertools
import sys

import torch
from torch.testing._internal.common_methods_invocations import op_db

from ddp_rehearsal.pretend_gpus import pretend_gpus
from notebook_ranks.shared.activations_held import activations_held

SAMPLES = 3  # of each operator
NOT_REPEATED = (
    "empty",
    "dropout",
    "bernoulli",
    "rand",
    "normal",
    "multinomial",
    "rrelu",
    "exponential",
    "geometric",
    "cauchy",
)


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    return [t for item in value.values() for t in tensors_in(item)] if isinstance(value, dict) else []


def moved(value, first):
    """Return arguments with numbers and indices on the CPU, where GPUs take them; the first tensor stays."""
    if isinstance(value, torch.Tensor):
        on_cpu = value is not first and (not value.dim() or value.dtype in (torch.int64, torch.bool))
        return value.cpu() if on_cpu else value
    if isinstance(value, (list, tuple)):
        return type(value)([moved(item, first) for item in value]) if type(value) in (list, tuple) else value
    return {name: moved(item, first) for name, item in value.items()} if isinstance(value, dict) else value


def outcome(op, sample, hooked):
    """Return what a call gives: its results, their devices, those of the arguments, or the error."""
    given = [sample.input, sample.args, sample.kwargs]
    torch.manual_seed(0)
    try:
        if hooked:
            with activations_held([]):
                result = op(sample.input, *sample.args, **sample.kwargs)
        else:
            result = op(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200], [t.device for t in tensors_in(given)]
    results = tensors_in(result)
    values = [t.detach().cpu() for t in results if t.layout is torch.strided and not t.is_quantized]
    return (values, [t.device for t in results]), [t.device for t in tensors_in(given)]


def bytes_of(t):
    t = t.resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
    return t.view(torch.uint8).numpy().tobytes() if t.numel() else b""


def same(one, other):
    if isinstance(one[0], str) or isinstance(other[0], str):
        return one == other
    pairs = zip(one[0][0], other[0][0], strict=True)
    equal = all(a.shape == b.shape and bytes_of(a) == bytes_of(b) for a, b in pairs)
    return equal and one[0][1] == other[0][1] and one[1] == other[1]


def main():
    pretend_gpus(2)
    compared, apart = 0, []
    for op in op_db:
        if torch.float32 not in op.dtypes or any(name in op.name for name in NOT_REPEATED):
            continue
        try:
            samples = [*itertools.islice(op.sample_inputs("cuda:0", torch.float32, requires_grad=True), SAMPLES)]
        except Exception as error:
            print(f"no samples of {op.name}: {type(error).__name__}", file=sys.stderr)
            continue
        for sample in samples:
            first = next(iter(tensors_in(sample.input)), None)
            mixed = copy.copy(sample)
            mixed.args, mixed.kwargs = moved(sample.args, first), moved(sample.kwargs, first)
            for kind, one in (("one device", sample), ("mixed", mixed)):
                compared += 1
                if not same(outcome(op, one, hooked=False), outcome(op, one, hooked=True)):
                    apart.append(f"{op.name} ({kind})")
    print(f"{compared} samples of {len(op_db)} operators: {len(apart)} differ {sorted(set(apart))}")
    return int(bool(apart))


if __name__ == "__main__":
    sys.exit(main())
