"""The table of docs/projects.md: of every project in two checkouts, what is built here and why the rest is not.

Write it with `python -m tests.client.projects_table`, which reads HUBKERNELS_UPSTREAM and HUBKERNELS_COMMUNITY.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hubkernels.build.select import select
from hubkernels.build.supply import Supply
from hubkernels.config import load_project
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import HubkernelsError
from hubkernels.host.machine import this_machine
from hubkernels.model.project import Package
from hubkernels.model.variant import Decisions

PAGE = Path(__file__).parents[2] / "docs/projects.md"
BEGIN, END = "<!-- made by tests/client/projects_table.py -->\n", "<!-- end -->\n"
HEAD = "| project | backends | built here | why the rest is not |\n|---|---|---|---|\n"


def checkouts(environment: Mapping[str, str]) -> Mapping[str, Path]:
    """The folders of projects, by the names that the page has for them. Raises KeyError where one is not named."""
    return {
        "kernels-community": Path(environment["HUBKERNELS_COMMUNITY"]),
        "huggingface/kernels": Path(environment["HUBKERNELS_UPSTREAM"]) / "examples/kernels",
    }


def render(folders: Mapping[str, Path]) -> str:
    """The tables, one a folder."""
    parts = []
    for name, folder in folders.items():
        rows = [row for project in sorted(folder.glob("*/build.toml")) for row in _rows(project.parent)]
        parts.append(f"\n### Every project of {name}\n\n{HEAD}{''.join(rows)}")
    return "".join(parts) + "\n"


def _rows(root: Path) -> Iterator[str]:
    try:
        project = load_project(root)
    except HubkernelsError as error:
        what = "; ".join(problem.what for problem in error.problems)
        yield f"| {root.name} | | | {what} |\n"
        return
    for package in project.packages:
        decisions = select(package, load_variant_table(), Supply(this_machine()))
        names = ", ".join(backend.name for backend in package.backends)
        tags = ", ".join(f"`{variant.tag}`" for variant in decisions.accepted)
        yield f"| {root.name} | {names} | {tags} | {'; '.join(_reasons(package, decisions))} |\n"


def _reasons(package: Package, decisions: Decisions) -> Iterator[str]:
    """For each backend without a variant here, the first reason that keeps all of its variants from being built."""
    built = {variant.backend for variant in decisions.accepted}
    why: dict[str, list[str]] = {}
    for backend in package.backends:
        if backend not in built:
            against = [rejection.reasons for rejection in decisions.rejected if rejection.variant.backend == backend]
            why.setdefault(_first_common(against), []).append(backend.name)
    for reason, names in why.items():
        yield f"{', '.join(names)}: {reason}"


def _first_common(against: Sequence[Sequence[str]]) -> str:
    common = (reason for reason in against[0] if all(reason in reasons for reasons in against)) if against else iter(())
    return next(common, "the client knows no compiled variant of it")


def page_with(table: str) -> str:
    """The page with this table in place of the one it has."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with(render(checkouts(os.environ))), encoding="utf-8")
