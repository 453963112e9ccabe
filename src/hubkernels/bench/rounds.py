"""How candidates are timed: in blocks, round after round, over rotating inputs. Knows nothing of torch."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence

from hubkernels.bench.record import Timing

Call = Callable[[int], object]
"""One candidate; the number of the call tells it which of its input sets is next."""
Clock = Callable[[], float]

ROUNDS = 5
_MOST_CALLS = 10_000  # a block; more samples of a microsecond change no median


def time_candidates(candidates: Sequence[Call], seconds: float, clock: Clock) -> tuple[Timing, ...]:
    """Time each candidate for about ``seconds``, in ROUNDS blocks that take turns with those of the others.

    Blocks, since calls that alternate one by one would find in the cache what another candidate has just read. Turns,
    since the speed of a shared machine drifts over seconds: a block apiece would give each its own weather. A block
    starts with a call that is not timed: it pays for the dirty cache lines of the candidate before. The order
    moves on by one each round, so that nobody always follows the same neighbour.
    """
    sizes = [_block_size(call, seconds / ROUNDS, clock) for call in candidates]
    samples: list[list[float]] = [[] for _ in candidates]
    order = list(range(len(candidates)))
    for _ in range(ROUNDS):
        for index in order:
            samples[index] += _block(candidates[index], sizes[index], len(samples[index]), clock)
        order.append(order.pop(0))
    return tuple(_summary(found) for found in samples)


def _block_size(call: Call, seconds: float, clock: Clock) -> int:
    call(-2)
    started = clock()
    call(-1)
    return max(1, min(_MOST_CALLS, int(seconds / max(clock() - started, 1e-7))))


def _block(call: Call, size: int, first: int, clock: Clock) -> list[float]:
    """Seconds of each call; numbers go on where the last block ended, so that every input is cold again."""
    found = []
    gc.disable()
    try:
        call(first - 1)
        for number in range(first, first + size):
            started = clock()
            call(number)
            found.append(clock() - started)
    finally:
        gc.enable()
    return found


def _summary(seconds: Sequence[float]) -> Timing:
    first, median, third = statistics.quantiles([s * 1e6 for s in seconds], n=4, method="inclusive")
    return Timing(median, min(seconds) * 1e6, (first, third), len(seconds))
