"""Several packages, one after another: which are asked for, and going on when one fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hubkernels.build.report import Report
from hubkernels.build.select import choose
from hubkernels.errors import HubkernelsError, InputError, Problem, combined, nearest
from hubkernels.model.project import Package, Project, Unreadable
from hubkernels.model.variant import AnyVariant, Decisions


class Failures:
    """What went wrong with each package, told as one error when all have been tried.

    report: hears at once that one failed. fail_fast: let the first end it all.
    """

    def __init__(self, report: Report, *, fail_fast: bool = False) -> None:
        self.report = report
        self.fail_fast = fail_fast
        self.found: list[HubkernelsError] = []

    @contextmanager
    def of(self, package: str, *, last: bool = False) -> Iterator[None]:
        """Around the work on one package: its errors are kept, anything else passes. last: the end comes at once."""
        try:
            yield
        except HubkernelsError as error:
            if self.fail_fast:
                raise
            placed = (replace(problem, where=problem.where or package) for problem in error.problems)
            self.found.append(type(error)(*placed))
            if not last:
                self.report(f"{package} failed, which is told at the end")

    def add(self, unreadable: Iterable[Unreadable]) -> None:
        """Count members that cannot be read as failed."""
        for member in unreadable:
            with self.of(member.name):
                raise InputError(*member.problems)

    def raise_if_any(self) -> None:
        if self.found:
            raise combined(self.found)


class UnknownPackageError(InputError):
    """Names that no package has, and nothing else that is wrong. names: in the order of the problems."""

    def __init__(self, names: Sequence[str], problems: Iterable[Problem]) -> None:
        super().__init__(*problems)
        self.names = tuple(names)


Decided = Sequence[tuple[Package, Decisions]]
Chosen = list[tuple[Package, tuple[AnyVariant, ...]]]


def choose_all(decided: Decided, tags: Sequence[str], report: Report, *, leave_out: bool) -> Chosen:
    """The variants to build of each package.

    leave_out: tell of packages without a variant here and pass over them, unless that is all of them.
    Raises InputError and EnvironmentLacksError as `choose` does.
    """
    several = leave_out and len(decided) > 1
    chosen: Chosen = []
    for package, decisions in decided:
        wanted = [variant.tag for variant in decisions.accepted if not tags or variant.tag in tags]
        if several and not wanted:
            what = " or ".join(tags) or "variant"
            report(f"{package.name}: no {what} can be built here; `kernel-builder list-variants` tells why")
        else:
            chosen.append((package, choose(decisions, package, wanted if several else tags)))
    return chosen or [(package, choose(decisions, package, tags)) for package, decisions in decided]


def find_packages(project: Project, names: Iterable[str]) -> tuple[Package, ...]:
    """The packages of that name, in either spelling; all that can be read when none is named.

    Raises InputError for names that none has, and with the problems of those that were named and cannot be read.
    """
    wanted = tuple(dict.fromkeys(name.replace("-", "_") for name in names))
    known = {package.python_name: package for package in project.packages}
    unreadable = _by_name(project.unreadable)
    problems = [problem for name in wanted if name not in known for problem in unreadable.get(name, ())]
    strangers = tuple(name for name in names if name.replace("-", "_") not in {*known, *unreadable})
    unknown = [_unknown(project, name) for name in strangers]
    if problems:
        raise InputError(*problems, *unknown)
    if unknown:
        raise UnknownPackageError(strangers, unknown)
    if not project.packages and not project.unreadable:
        raise InputError(Problem("the workspace has no package", where=str(project.root / "build.toml")))
    return tuple(known[name] for name in wanted) if wanted else project.packages


def refuse_unreadable(unreadable: Iterable[Unreadable]) -> None:
    """Raises InputError with the problems of members that cannot be read."""
    problems = [problem for member in unreadable for problem in member.problems]
    if problems:
        raise InputError(*problems)


def _by_name(unreadable: Iterable[Unreadable]) -> dict[str, tuple[Problem, ...]]:
    """Problems by the name of the package, and by that of its folder."""
    return {
        name.replace("-", "_"): member.problems for member in unreadable for name in (member.name, member.root.name)
    }


def _unknown(project: Project, name: str) -> Problem:
    spelled = [package.name for package in project.packages]
    known = f"it has {', '.join(spelled)}" if spelled else None
    return Problem(f"no package {name} in {project.root / 'build.toml'}", hint=nearest(name, spelled) or known)
