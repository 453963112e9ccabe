"""`kernel-builder doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.cli.console import columns, say, say_json
from hubkernels.cli.options import HERE, Json, ProjectFolder
from hubkernels.errors import ENVIRONMENT_LACKS

if TYPE_CHECKING:
    from hubkernels.check.finding import Finding


def doctor(project: ProjectFolder = HERE, json: Json = False) -> int:
    """Tell what this machine has and lacks for a CPU build. Exit code 3 when it cannot make one."""
    import dataclasses  # noqa: PLC0415 - `--help` does without
    import tempfile  # noqa: PLC0415

    from hubkernels.check.doctor import Surroundings, can_build, examine  # noqa: PLC0415 - `--help` does without

    findings = examine(Surroundings(os.environ, Path(tempfile.gettempdir()), project / "build"))
    if json:
        say_json([dataclasses.asdict(finding) for finding in findings])
    else:
        _print(findings)
    return 0 if can_build(findings) else ENVIRONMENT_LACKS


def _print(findings: tuple[Finding, ...]) -> None:
    import shlex  # noqa: PLC0415 - `--help` does without

    columns([(finding.state, finding.subject, _text(finding)) for finding in findings])
    for tool, lines in (
        ("apt-get install", [finding.apt for finding in findings]),
        ("pip install", [finding.pip for finding in findings]),
    ):
        if packages := [package for line in lines for package in line]:
            say(f"next: {tool} {shlex.join(packages)}")


def _text(finding: Finding) -> str:
    return f"{finding.text}; {finding.hint}" if finding.hint else finding.text
