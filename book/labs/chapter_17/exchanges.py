"""Collectives that only move numbers, with their gradients: an all-to-all, and a message to the next rank of a ring.

| forward | gradient | name |
|---|---|---|
| all-to-all | all-to-all, the other way | `all_to_all` |
| send to the next rank of a ring | send to the rank before | `to_next` |

All functions run on a rank, and every rank of the group must call them in the same order. Without a group they mean all
ranks.
"""

import torch
import torch.distributed as dist

from ..chapter_14.autograd_collectives import Group, PairedCollective

__all__ = ["all_to_all", "exchanged", "to_next"]


def exchanged(X: torch.Tensor, sent: list[int], received: list[int], group: Group) -> torch.Tensor:
    """Return the rows that the ranks have for this one: `sent[i]` rows of X go to rank i, `received[i]` come from it.

    The rows of X stand in the order of the ranks that get them, the result's in the order of the ranks that sent them.
    """
    rows = X.new_empty(sum(received), *X.shape[1:])
    dist.all_to_all_single(rows, X.contiguous(), received, sent, group=group)
    return rows


def all_to_all(X: torch.Tensor, sent: list[int], received: list[int], group: Group = None) -> torch.Tensor:
    """Return the rows that the ranks have for this one, as `exchanged` does. Their gradients go back the same way."""

    def there(X: torch.Tensor, group: Group) -> torch.Tensor:
        return exchanged(X, sent, received, group)

    def back(grad: torch.Tensor, group: Group) -> torch.Tensor:
        return exchanged(grad, received, sent, group)

    return PairedCollective.apply(X, there, back, group)


def passed_on(X: torch.Tensor, n: int, step: int, group: Group) -> torch.Tensor:
    """Send X to the rank `step` further in the ring, and return the n rows that come from `step` before."""
    k, rank = dist.get_world_size(group), dist.get_rank(group)
    rows = X.new_empty(n, *X.shape[1:])
    send = dist.P2POp(dist.isend, X.contiguous(), group=group, group_peer=(rank + step) % k)
    receive = dist.P2POp(dist.irecv, rows, group=group, group_peer=(rank - step) % k)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()
    return rows


def to_next(X: torch.Tensor, n: int, group: Group = None) -> torch.Tensor:
    """Send X to the next rank of the ring, and return the n rows of the rank before. Gradients go back to it."""

    def there(X: torch.Tensor, group: Group) -> torch.Tensor:
        return passed_on(X, n, 1, group)

    def back(grad: torch.Tensor, group: Group) -> torch.Tensor:
        return passed_on(grad, len(X), -1, group)

    return PairedCollective.apply(X, there, back, group)
