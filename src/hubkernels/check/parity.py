"""Parity: every output and gradient of a built kernel against its float64 reference."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hubkernels.build.report import Begun, Report
from hubkernels.check.client import Counted, Task, run_in_fresh_process
from hubkernels.errors import InputError, Problem
from hubkernels.model.going import Going
from hubkernels.model.project import Package

PARITY = Task("parity", "hubkernels.check.compare:compare", counts=True)
TIMEOUT_S = 1800.0
"""For one case: how long all of them take is a matter of the machine."""


@dataclass(frozen=True)
class ParityRow:
    """One tensor of one cell.

    what: "output" (no gradient wanted), "output with grad" or "grad <argument>"; outputs are numbered if several.
    max_error: in units of the tolerance; relative_error: norm of the error over norm of the reference. Both are None
    where there was nothing to compare.
    problems: what is wrong; none when the row is good.
    """

    op: str
    shape_name: str
    shape: tuple[int, ...]
    dtype: str
    what: str
    max_error: float | None
    relative_error: float | None
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        found = "; ".join(self.problems) or f"{self.max_error:.3g} x the tolerance"
        return f"{self.op} {self.dtype} {self.shape_name} ({shape}) {self.what}: {found}"


@dataclass(frozen=True)
class ParityReport:
    """Every row of one artifact, sorted."""

    package: str
    variant: str
    op_id: str
    rows: tuple[ParityRow, ...]

    @property
    def violations(self) -> tuple[ParityRow, ...]:
        return tuple(row for row in self.rows if not row.ok)

    @property
    def passed(self) -> int:
        return len(self.rows) - len(self.violations)

    def to_json(self) -> dict[str, Any]:
        rows = [{**asdict(row), "ok": row.ok} for row in self.rows]
        return {"package": self.package, "variant": self.variant, "id": self.op_id, "rows": rows}


def check_parity(  # noqa: PLR0913 - what a process is started with
    package: Package,
    variant: Path,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    python: str = sys.executable,
    report: Report = lambda _: None,
) -> ParityReport:
    """Compare one artifact with the reference of every case of its package, in a fresh process.

    variant: ``build/<package>/<variant>``. environment: as for `run_in_fresh_process`; HUBKERNELS_ISA forces a tier.
    report: hears how many cases are done.
    A wrong result is a row of the report; raises CheckFailedError only where there is none.
    """
    request = {"folder": str(variant.resolve()), "cases": case_files(package)}

    def hear(counted: Counted) -> None:
        report(Begun(Going(f"parity: {package.name}: {counted.done} of {counted.total} cases")))

    answer = run_in_fresh_process(
        PARITY, request, timeout_s=timeout_s, environment=environment, python=python, hear=hear
    )
    rows = (read_row(row) for row in answer["rows"])
    ordered = sorted(rows, key=lambda row: (row.op, row.dtype, row.shape_name, row.what))
    return ParityReport(package.name, variant.name, answer["id"], tuple(ordered))


def read_row(row: Mapping[str, Any]) -> ParityRow:
    """One row of the child's answer."""
    return ParityRow(**{**row, "shape": tuple(row["shape"]), "problems": tuple(row["problems"])})


def case_files(package: Package) -> list[str]:
    """Where the case files of a package are."""
    if not package.parity:
        case = f'parity = ["tests/cases/{package.python_name}.py"]'
        hint = (
            f"add {case} to its table"
            if package.home
            else f"make it a package of a [workspace], with {case}: `init --workspace` starts such a project"
        )
        raise InputError(Problem(f"{package.name} names no case file", str(package.root / "build.toml"), hint))
    return [str((package.root / file).resolve()) for file in package.parity]
