"""The one driver of elimination: variables go one after the other, and come back in reverse.

What a variable leaves behind when it goes, and what is found when it is back, is an algebra's: that
of spins (`fast`) or that of tables (`general`, the paper's network).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from icgi.clock import Deadline
from icgi.neural.pace import check
from icgi.neural.shrink import positions

SMALL = 1e-12


class Numbered(Protocol):
    """Arrays of variables."""

    @property
    def ids(self) -> Tensor:
        """Their original numbers (b n)."""
        ...


Live = TypeVar("Live", bound=Numbered)
Gone = TypeVar("Gone")
Back = TypeVar("Back", bound=Numbered)


@dataclass(slots=True, eq=False)
class Sweep(Generic[Live, Gone]):
    """An elimination under way."""

    live: Live  # what is left
    tape: list[Gone]  # what has gone, in this order
    lost: Tensor  # b 1    inexactness of all steps so far; 0 while every step was exact
    started: Tensor  # b    1 once padding is gone

    @staticmethod
    def of(live: Live) -> "Sweep[Live, Gone]":
        """Nothing has gone yet."""
        like = live.tokens  # type: ignore[attr-defined]
        return Sweep(live, [], like.new_zeros(len(like), 1), like.new_zeros(len(like)))


def eliminated(
    sweep: Sweep[Live, Gone],
    steps: int,
    eliminate: Callable[[Live, int], tuple[Gone, Live, Tensor, Tensor]],
    encode: Callable[[Live, Tensor], Live],
    every: int,
    deadline: Deadline | None = None,
    look: Callable[[Sweep[Live, Gone], int], bool] | None = None,
) -> None:
    """Take out so many variables, in place.

    Parameters
    ----------
    eliminate
        One step: who went, what is left, what that loses (b), 1 (b) where it was no padding.
    encode, every
        Encodes what is left, where its number is a multiple of `every`, given who has started.
    look
        Sees what is left before each step, may take models out, and says whether any remain.
    """
    for t in range(steps):
        check(deadline)
        if look is not None and not look(sweep, t):
            return
        if t and sweep.live.ids.shape[1] % every == 0:
            sweep.live = encode(sweep.live, sweep.started)
        gone, sweep.live, loss, was_real = eliminate(sweep.live, t)
        sweep.lost = sweep.lost + loss[:, None]
        sweep.started = torch.maximum(sweep.started, was_real)
        sweep.tape.append(gone)


def brought_back(
    back: Back,
    alpha: Tensor,
    tape: Sequence[Gone],
    put_back: Callable[[Gone, Back], tuple[Back, Tensor]],
    deadline: Deadline | None = None,
) -> Tensor:
    """Concentrations (b n k) of all variables in their original order.

    Parameters
    ----------
    back, alpha
        Variables that never went, and their concentrations.
    put_back
        One variable in front of those that are back, and its concentrations (b 1 k).
    """
    parts = [alpha]
    for gone in reversed(tape):
        check(deadline)
        back, alpha = put_back(gone, back)
        parts.append(alpha)
    alpha = torch.cat(parts[::-1], 1)
    total = alpha.shape[1]
    everyone = torch.arange(total, device=alpha.device).expand_as(back.ids)
    return alpha.gather(1, positions(back.ids, everyone, total)[:, :, None].expand_as(alpha))


def within(loss: Tensor, most: float) -> Tensor:
    """Part of the corrections that counts beyond the inexactness `most`: its inverse; 1 below."""
    return (most / loss.clamp(min=SMALL)).clamp(max=1.0)
