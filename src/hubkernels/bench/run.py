"""What a benchmark run times, and one record for each cell: the parent's side, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from hubkernels import __version__
from hubkernels.bench.record import SCHEMA, Machine, Record
from hubkernels.check.client import Task, run_in_fresh_process
from hubkernels.check.parity import case_files
from hubkernels.errors import CheckFailedError, InputError, Problem, did_you_mean
from hubkernels.host.cpu import cpu_model, usable_cores
from hubkernels.host.files import read_json_object
from hubkernels.host.git import git_state
from hubkernels.model.artifact import note_of
from hubkernels.model.digest import METADATA, digest_folder, hash_digest
from hubkernels.model.project import Package

CASES = Task("cases", "hubkernels.check.cells:describe")
BENCH = Task("bench", "hubkernels.bench.timing:time_cell")
TIMEOUT_S = 1800.0
_MALLOC = ("MALLOC_", "GLIBC_TUNABLES")
_ALLOCATOR = (*_MALLOC, "LD_PRELOAD")


@dataclass(frozen=True)
class PageFaults:
    """How the outputs of a timed call come from malloc. note: the words of the record."""

    note: str
    malloc: Mapping[str, str]


PAGE_FAULTS: Mapping[str, PageFaults] = {
    "default": PageFaults("default malloc", {}),
    # An output above 32 MB is a fresh mapping, and its page faults take longer than the kernel. A heap that neither
    # maps nor trims hands out memory that the warm-up has touched, for every candidate alike.
    "pretouched": PageFaults("pre-touched", {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30)}),
}


@dataclass(frozen=True)
class Wanted:
    """What the user asked for; None stands for all that the cases offer for benchmarks."""

    op: str | None = None
    dtype: str | None = None
    shape: str | None = None
    directions: tuple[str, ...] = ("fwd", "f+b")


@dataclass(frozen=True)
class BenchCell:
    """One process: an artifact at one op, shape and dtype. usual: timed where the user names no shape."""

    package: Package
    folder: Path
    case: str
    op: str
    shape_name: str
    shape: tuple[int, ...]
    dtype: str
    directions: tuple[str, ...]
    usual: bool

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.shape_name}"


@dataclass(frozen=True)
class Settings:
    """How cells are timed. seconds: for each candidate of a cell. page_faults: a key of PAGE_FAULTS."""

    threads: int
    seconds: float
    page_faults: str
    peers: bool = True
    peer_file: Path | None = None


@dataclass(frozen=True)
class CellResult:
    """The records of one cell, one a direction, and what is wrong with those that there are none of."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]


def list_cells(package: Package, folder: Path, environment: Mapping[str, str]) -> tuple[BenchCell, ...]:
    """Every cell that the cases of one artifact offer, those not meant for benchmarks too."""
    request = {"cases": case_files(package)}
    described = run_in_fresh_process(CASES, request, timeout_s=TIMEOUT_S, environment=environment)
    return tuple(
        BenchCell(
            package=package,
            folder=folder.resolve(),
            case=case["file"],
            op=case["op"],
            shape_name=name,
            shape=tuple(shape),
            dtype=dtype,
            directions=("fwd", "f+b") if case["differentiable"] else ("fwd",),
            usual=name in case["bench_shapes"],
        )
        for case in described
        for name, shape in case["shapes"].items()
        for dtype in case["dtypes"]
    )


def choose_cells(cells: Sequence[BenchCell], wanted: Wanted) -> tuple[BenchCell, ...]:
    """The cells that were asked for. Raises InputError for an op, dtype or shape that no case has."""
    for word, asked, known in (
        ("op", wanted.op, {cell.op for cell in cells}),
        ("dtype", wanted.dtype, {cell.dtype for cell in cells}),
        ("shape", wanted.shape, {cell.shape_name for cell in cells if wanted.op in {None, cell.op}}),
    ):
        if asked is not None and asked not in known:
            raise InputError(Problem(f"no case has the {word} {asked!r}", hint=did_you_mean(asked, known)))
    chosen = tuple(
        replace(cell, directions=tuple(way for way in cell.directions if way in wanted.directions))
        for cell in cells
        if wanted.op in {None, cell.op}
        and wanted.dtype in {None, cell.dtype}
        and (cell.shape_name == wanted.shape or (wanted.shape is None and cell.usual))
    )
    left = tuple(cell for cell in chosen if cell.directions)
    if not left:
        raise InputError(Problem("nothing to time", hint="no case has this op, dtype, shape and direction together"))
    return left


def run_cell(cell: BenchCell, settings: Settings, environment: Mapping[str, str], now: datetime) -> CellResult:
    """Time one cell in a fresh process. A wrong result or a crash is a problem of this cell; the others go on."""
    own = child_environment(environment, PAGE_FAULTS[settings.page_faults])
    try:
        answer = run_in_fresh_process(BENCH, _request(cell, settings), timeout_s=TIMEOUT_S, environment=own)
    except CheckFailedError as error:
        return CellResult((), tuple(replace(problem, what=f"{cell}: {problem.what}") for problem in error.problems))
    facts = {**_facts(cell, own), "page_faults": PAGE_FAULTS[settings.page_faults].note, "date": now.isoformat()}
    versions = {**answer["versions"], "hubkernels": __version__, "compiler": _compiler(cell.folder)}
    common = {"schema": SCHEMA, **facts, "versions": versions, "threads": answer["threads"]}
    records = tuple(Record.from_json({**common, **result}) for result in answer["results"])
    return CellResult(records, tuple(Problem(f"{cell} {line}", where=str(cell.folder)) for line in answer["problems"]))


def child_environment(environment: Mapping[str, str], faults: PageFaults) -> dict[str, str]:
    """The environment of a timed process: glibc's malloc as asked for, whatever the user has set.

    Compiled peers are compiled in that process itself: a pool of compiling processes would run beside what is timed.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_MALLOC)}
    return {**kept, **faults.malloc, "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def _request(cell: BenchCell, settings: Settings) -> dict[str, Any]:
    return {
        "folder": str(cell.folder),
        "case": cell.case,
        "shape_name": cell.shape_name,
        "dtype": cell.dtype,
        "directions": cell.directions,
        "threads": settings.threads,
        "seconds": settings.seconds,
        "peers": settings.peers,
        "peer_file": str(settings.peer_file.resolve()) if settings.peer_file else None,
    }


def _facts(cell: BenchCell, environment: Mapping[str, str]) -> dict[str, Any]:
    machine = Machine(cpu_model(), usable_cores(), environment.get("HUBKERNELS_ISA"), allocator(environment))
    return {
        "op": cell.op,
        "package": cell.package.name,
        "variant": cell.folder.name,
        "artifact": read_json_object(cell.folder / METADATA).get("id"),
        "digest": hash_digest(digest_folder(cell.folder)),
        "dtype": cell.dtype,
        "shape_name": cell.shape_name,
        "shape": cell.shape,
        "machine": vars(machine),
        "git": git_state(cell.package.root, environment),
    }


def allocator(environment: Mapping[str, str]) -> str:
    """What is set about malloc; a preloaded library by its name alone, since records hold no path of a machine."""
    found = {name: value for name, value in sorted(environment.items()) if name.startswith(_ALLOCATOR)}
    words = (f"{name}={PurePath(value).name if name == 'LD_PRELOAD' else value}" for name, value in found.items())
    return " ".join(words) or "default"


def _compiler(folder: Path) -> str | None:
    note = read_json_object(note_of(folder))
    compiler = note.get("toolchain", {}).get("compiler")
    return str(compiler) if compiler else None
