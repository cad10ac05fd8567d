"""A first configuration of non-zero probability, by local search on the violated factors."""

import numpy as np
from numpy.typing import NDArray

from icgi.kernels import kernel
from icgi.sampling.streams import Stream, below, uniform
from icgi.sampling.tables import Tables, assign, count_broken, scratch, state

NOISE = 0.2  # share of moves that set a violated factor to a random allowed entry


def repair(
    model: Tables,
    x: NDArray[np.int32],
    moves: int,
    stream: Stream,
    stop: NDArray[np.uint8] | None = None,
) -> tuple[NDArray[np.int32], int]:
    """Configuration that violates as few factors as were found, and how many it violates.

    Each move takes a random violated factor and sets one of its variables to a state that violates
    the fewest factors, or, now and then, all of its variables to a random entry that it allows.
    The search ends when `stop` is raised.
    """
    if not len(model.zero):
        return x, 0
    held = state(model, x[None, :].copy())
    best = x.copy()
    stop = np.zeros(1, np.uint8) if stop is None else stop
    left = _search(model, held, moves, stream, scratch(model).broken, best, stop)
    return best, int(left)


@kernel
def _search(model, held, moves, stream, broken, best, stop):  # type: ignore[no-untyped-def]
    f = len(model.begin) - 1
    listed = np.empty(f, np.int64)  # violated factors
    place = np.full(f, -1)  # of each factor in the list
    count = 0
    for g in range(f):
        if model.zero[held.at[0, g]]:
            listed[count], place[g] = g, count
            count += 1
    fewest = count
    best[:] = held.x[0]
    for _ in range(moves):
        if count == 0 or stop[0]:
            break
        g = listed[below(stream.one, count)]
        low, high = np.int64(model.scope_start[g]), np.int64(model.scope_start[g + 1])
        if uniform(stream.one) < NOISE:
            begin, size = np.int64(model.begin[g]), np.int64(model.begin[g + 1] - model.begin[g])
            rest = below(stream.one, size)
            while model.zero[begin + rest]:
                rest = (rest + 1) % size
            for a in range(high - 1, low - 1, -1):
                i = np.int64(model.scope[a])
                card = np.int64(model.first[i + 1] - model.first[i])
                assign(model, held, 0, i, rest % card)
                rest //= card
                count = _relist(model, held, i, listed, place, count)
        else:
            i = np.int64(model.scope[low + below(stream.one, high - low)])
            card = np.int64(model.first[i + 1] - model.first[i])
            least = count_broken(model, held, 0, i, np.uint64(card), broken)
            ties = 0
            chosen = held.x[0, i]
            for y in range(card):
                if broken[y] == least and y != held.x[0, i]:
                    ties += 1
                    if below(stream.one, ties) == 0:
                        chosen = y
            assign(model, held, 0, i, chosen)
            count = _relist(model, held, i, listed, place, count)
        if count < fewest:
            fewest = count
            best[:] = held.x[0]
    return fewest


@kernel
def _relist(model, held, i, listed, place, count):  # type: ignore[no-untyped-def]
    """Bring the list of violated factors up to date around one variable."""
    for q in range(model.start[i], model.start[i + 1]):
        g = np.int64(model.factor[q])
        if model.zero[held.at[0, g]]:
            if place[g] < 0:
                listed[count], place[g] = g, count
                count += 1
        elif place[g] >= 0:
            count -= 1
            last = listed[count]
            listed[place[g]], place[last] = last, place[g]
            place[g] = -1
    return count
