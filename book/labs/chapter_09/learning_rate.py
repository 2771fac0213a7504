"""The learning rate of a larger minibatch: scaling rules, and a warm-up that reaches it step by step."""

from notebook_ranks.shared.checks import non_negative_number, one_of, positive_int, positive_number, whole_number

__all__ = ["LR_RULES", "scaled_lr", "warm_up"]

LR_RULES = ("same", "linear", "square root")


def scaled_lr(lr: float, batch_size: int, new_batch_size: int, rule: str = "linear") -> float:
    """Return the learning rate for minibatches of `new_batch_size`, where `lr` suits minibatches of `batch_size`.

    "linear" multiplies by the same factor as the minibatch: k small steps of SGD along nearly equal gradients move the
    weights as far as one step with k times the rate (Goyal et al. 2017, arXiv:1706.02677, section 2.1). "square root"
    multiplies by the root of that factor: it keeps the variance of the update, and is what analyses of Adam find
    (Malladi et al. 2022, arXiv:2205.10287). "same" changes nothing.

    Raises:
        TypeError: if a rate or a size is not a number, or the rule is not a text.
        ValueError: if a rate or a size is not above 0, or there is no such rule.

    Example:
        >>> scaled_lr(0.1, 256, 1024), scaled_lr(0.1, 256, 1024, "square root")
        (0.4, 0.2)
    """
    lr = positive_number("lr", lr)
    factor = positive_int("new_batch_size", new_batch_size) / positive_int("batch_size", batch_size)
    one_of("rule", rule, LR_RULES)
    return lr * {"same": 1.0, "linear": factor, "square root": factor**0.5}[rule]


def warm_up(lr: float, step: int, num_steps: float, start: float = 0.0) -> float:
    """Return the learning rate of a step (from 0): it grows from `start` to `lr` in `num_steps` equal parts.

    The first step has start + (lr - start) / num_steps, step `num_steps` - 1 and all later ones have `lr`. With
    `num_steps` 0 every step has `lr`. This is the gradual warm-up of Goyal et al. 2017 (arXiv:1706.02677, section 2.2),
    where `start` is the rate of the small minibatch.

    Raises:
        TypeError: if an argument is not a number, or `step` is not a whole number.
        ValueError: if `lr` is not above 0, or one of the other arguments is below 0.

    Example:
        >>> [round(warm_up(0.8, step, 4), 3) for step in range(6)]
        [0.2, 0.4, 0.6, 0.8, 0.8, 0.8]
    """
    lr, start = positive_number("lr", lr), non_negative_number("start", start)
    done = whole_number("step", step) + 1
    num_steps = non_negative_number("num_steps", num_steps)
    return lr if done >= num_steps else start + (lr - start) * done / num_steps
