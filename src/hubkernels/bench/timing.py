"""In the fresh process: the task `bench`, one cell beside its peers and a copy."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hubkernels.bench.record import Timing
from hubkernels.bench.rounds import Call, time_candidates
from hubkernels.check.cells import Cell, as_tuple, differentiable, load_case, load_value
from hubkernels.check.compare import Expected, Verdict, draw_cotangents, expect, judge_inference, judge_training
from hubkernels.check.loaded import load_kernel
from hubkernels.check.opcase import Peer
from hubkernels.errors import InputError, Problem
from hubkernels.host.cpu import last_level_cache_bytes

_CACHES = 4  # the input sets of a cell are this many times the last-level caches together
_MOST_SETS = 64
_ASSUMED_CACHE = 64 << 20


@dataclass(frozen=True)
class InputSet:
    """Arguments of one call; ``leaves`` are those that get gradients."""

    arguments: dict[str, Any]
    leaves: tuple[Tensor, ...]
    cotangents: tuple[Tensor, ...]


@dataclass(frozen=True)
class Direction:
    """What one call does, and how its results are judged."""

    judge: Callable[[Cell, Callable[..., Any], Expected], Iterator[tuple[str, Verdict]]]
    call: Callable[[Callable[..., Any], Sequence[InputSet]], Call]
    backward: bool

    def bytes_moved(self, cell: Cell) -> int:
        ways = (False, True) if self.backward else (False,)
        return sum(cell.case.bytes_moved(cell.shape, cell.dtype, way) for way in ways)


@dataclass(frozen=True)
class Candidate:
    """A peer that gives a result, and how far that is from float64."""

    peer: Peer
    error: float


@dataclass(frozen=True)
class Bench:
    """One cell, ready to be timed."""

    cell: Cell
    expected: Expected
    sets: tuple[InputSet, ...]
    cache_bytes: int
    cache: str
    seconds: float


def time_cell(  # noqa: PLR0913 - a request is all keywords
    *,
    folder: str,
    case: str,
    shape_name: str,
    dtype: str,
    directions: Sequence[str],
    threads: int,
    seconds: float,
    peers: bool,
    peer_file: str | None,
) -> dict[str, Any]:
    """Time one cell in each direction. A direction whose results are wrong is not timed: its problems come back."""
    torch.set_num_threads(threads)
    kernel = load_kernel(Path(folder))
    op_case = load_case(Path(case))
    bench = _prepare(Cell(op_case, shape_name, dtype), seconds)
    ours = getattr(kernel, op_case.op)  # not op_case.call: its frame would be timed on our side alone
    rivals = (*(op_case.peers if peers else ()), *_load_peers(peer_file))
    results, problems = [], []
    for name in directions:
        direction = _DIRECTIONS[name]
        verdicts = list(direction.judge(bench.cell, ours, bench.expected))
        wrong = [f"{what}: {problem}" for what, verdict in verdicts for problem in verdict.problems]
        if wrong:
            problems += [f"{name} {line}" for line in wrong]
        else:
            _renew_dynamo()
            timed = _time_direction(bench, direction, ours, rivals)
            results.append({"direction": name, "error": _error(verdicts), **timed})
    return {"versions": _versions(), "threads": torch.get_num_threads(), "results": results, "problems": problems}


def _prepare(cell: Cell, seconds: float) -> Bench:
    expected = expect(cell)
    size = sum(value.nbytes for value in expected.arguments.values() if isinstance(value, Tensor))
    cache = last_level_cache_bytes() or _ASSUMED_CACHE
    count = count_sets(size, cache)
    fits = ", which the last-level cache can hold" if count * size < cache else ""
    note = f"rotating {count} sets of inputs, {count * size / 1e6:.0f} MB{fits}"
    sets = tuple(_draw(cell, expected, seed) for seed in range(count))
    return Bench(cell, expected, sets, cache, note, seconds)


def count_sets(set_bytes: int, cache_bytes: int) -> int:
    """As many input sets as make sure that a call finds none of its inputs in the last-level cache."""
    return min(_MOST_SETS, math.ceil(_CACHES * cache_bytes / max(set_bytes, 1)))


def _draw(cell: Cell, expected: Expected, seed: int) -> InputSet:
    arguments = cell.arguments(seed)
    leaves = {name: arguments[name].detach().requires_grad_() for name in cell.case.gradients}
    cotangents = draw_cotangents(expected.outputs, cell.dtype, seed)
    return InputSet({**arguments, **leaves}, tuple(leaves.values()), cotangents)


def _forward(function: Callable[..., Any], sets: Sequence[InputSet]) -> Call:
    def call(number: int) -> None:
        function(**sets[number % len(sets)].arguments)

    return call


def _forward_and_backward(function: Callable[..., Any], sets: Sequence[InputSet]) -> Call:
    def call(number: int) -> None:
        inputs = sets[number % len(sets)]
        outputs = differentiable(as_tuple(function(**inputs.arguments)))
        torch.autograd.grad(outputs, inputs.leaves, inputs.cotangents)

    return call


_DIRECTIONS: Mapping[str, Direction] = {
    "fwd": Direction(judge_inference, _forward, backward=False),
    "f+b": Direction(judge_training, _forward_and_backward, backward=True),
}


def _time_direction(
    bench: Bench, direction: Direction, ours: Callable[..., Any], rivals: Sequence[Peer]
) -> dict[str, Any]:
    usable = [peer for peer in rivals if peer.differentiable or not direction.backward]
    judged = [(peer, list(direction.judge(bench.cell, peer.call, bench.expected))) for peer in usable]
    found = [Candidate(peer, error) for peer, verdicts in judged if (error := _error(verdicts)) is not None]
    calls = [direction.call(function, bench.sets) for function in (ours, *(c.peer.call for c in found))]
    least = direction.bytes_moved(bench.cell)
    copy = _copy(least, bench.cache_bytes)
    before = _preemptions()
    with torch.set_grad_enabled(direction.backward):
        own, copying, *theirs = time_candidates([calls[0], copy, *calls[1:]], bench.seconds, time.perf_counter)
    return {
        **asdict(own),
        "bytes": least,
        "share_of_copy": copying.median_us / own.median_us,
        "copy_gb_s": least / copying.median_us / 1e3,
        "peers": [_peer_result(own, c, timing) for c, timing in zip(found, theirs, strict=True)],
        "failed_peers": [{"name": p.name, "reason": _reason(v)} for p, v in judged if _error(v) is None],
        "cache": bench.cache,
        "preemptions": _preemptions() - before,
    }


def _copy(least_bytes: int, cache_bytes: int) -> Call:
    """The ceiling: a copy that moves the least bytes of the call.

    It reads cold memory, as the call does. It writes where malloc puts the outputs of a call, to memory just freed:
    one target, already touched, which the cache holds when it is small.
    """
    half = max(1, least_bytes // 2)
    sources = torch.ones((count_sets(half, cache_bytes), half), dtype=torch.uint8)
    target = torch.ones(half, dtype=torch.uint8)
    return lambda number: target.copy_(sources[number % len(sources)])


def _preemptions() -> int:
    """How often the system took a core from this process: on a busy machine the times are of the queue."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _peer_result(own: Timing, candidate: Candidate, timing: Timing) -> dict[str, Any]:
    ratio = own.median_us / timing.median_us
    return {"name": candidate.peer.name, **asdict(timing), "error": candidate.error, "ratio": ratio}


def _error(verdicts: Sequence[tuple[str, Verdict]]) -> float | None:
    """The largest relative error; None when one result could not be compared at all."""
    errors = [verdict.relative_error for _, verdict in verdicts]
    known = [error for error in errors if error is not None]
    return max(known) if len(known) == len(errors) else None


def _reason(verdicts: Sequence[tuple[str, Verdict]]) -> str:
    return "; ".join(f"{what}: {problem}" for what, verdict in verdicts for problem in verdict.problems)


def _load_peers(path: str | None) -> tuple[Peer, ...]:
    peers = load_value(Path(path), "PEERS") if path else ()
    if not isinstance(peers, tuple) or not all(isinstance(peer, Peer) for peer in peers):
        raise InputError(Problem("PEERS must be a tuple of hubkernels.check.opcase.Peer", where=path))
    return peers


def _renew_dynamo() -> None:
    """Forget what was compiled, and never fall back to eager: a compiled peer that does is a straw man."""
    import torch._dynamo  # noqa: PLC0415 - slow, and loads only with torch.compile or here

    torch._dynamo.config.recompile_limit = 1024  # noqa: SLF001 - the documented way to this setting
    torch._dynamo.config.accumulated_recompile_limit = 1024  # noqa: SLF001
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # noqa: SLF001
    torch._dynamo.reset()  # noqa: SLF001


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernels": importlib.metadata.version("kernels"),
    }
