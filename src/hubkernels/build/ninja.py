"""A plan's steps as build.ninja, and what ninja says while it runs them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

from ninja.ninja_syntax import Writer, escape

from hubkernels.build.peaks import SUFFIX
from hubkernels.build.report import Progress
from hubkernels.model.plan import Step

STATUS = "\x1f%f/%t "
"""NINJA_STATUS: a control character no compiler prints, then finished and total."""


@dataclass(frozen=True)
class FailedStep:
    output: str
    diagnostics: str


def render(steps: Iterable[Step], variant: str, work: str, measured: Sequence[str]) -> str:
    """build.ninja for these steps. Each renames when it has succeeded, so what has its name is whole.

    Sources are no nodes of it: a step's output is named for the content of its inputs, and is not there yet.
    work: folder of ninja's own log. measured: words that run a command and write what it took to the file named next.
    """
    text = StringIO()
    writer = Writer(text, width=10**6)  # type: ignore[arg-type]  # it writes to any text file
    writer.variable("ninja_required_version", "1.10")
    writer.variable("builddir", escape(work))
    writer.rule("run", "$command", description="$label")
    for step in steps:
        label = _label(step, variant)
        variables = {"command": escape(_shell(step, measured)), "label": escape(label)}
        writer.build([step.output], "run", order_only=list(step.after), variables=variables)
    return text.getvalue()


def _label(step: Step, variant: str) -> str:
    return f"{step.verb} {step.subject} ({variant})"


def is_about(progress: Progress, step: Step, variant: str) -> bool:
    """Whether a step is the one that ended: ninja tells its label, or its command where all are told."""
    return progress.label == _label(step, variant) or f"{step.output}.part" in progress.label


def _shell(step: Step, measured: Sequence[str]) -> str:
    output = shlex.quote(step.output)
    part = f"{output}.part"  # of a folder that no other build shares; nvcc writes this name down in the object
    words = [shlex.quote(word) for word in step.command]
    words[step.target] = part
    measured_words = f"{shlex.join(measured)} {output}{SUFFIX}"
    return f"{measured_words} {' '.join(words)} && mv -f {part} {output} || {{ rm -f {part}; exit 1; }}"


def read_output(lines: Iterable[str]) -> Iterator[Progress | FailedStep | str]:
    """Tell ninja's lines apart: progress, failed steps with all they printed, and anything else as it is."""
    failed: str | None = None
    diagnostics: list[str] = []
    for line in lines:
        if failed is not None and (line.startswith(("\x1f", "FAILED: ", "ninja: "))):
            yield FailedStep(failed, "\n".join(diagnostics[1:]))  # the first line is the command
            failed, diagnostics = None, []
        if line.startswith("\x1f"):
            yield _progress(line)
        elif line.startswith("FAILED: "):
            failed = line.removeprefix("FAILED: ").split("] ", 1)[-1].strip()
        elif failed is not None:
            diagnostics.append(line)
        else:
            yield line
    if failed is not None:
        yield FailedStep(failed, "\n".join(diagnostics[1:]))


def _progress(line: str) -> Progress:
    count, _, label = line[1:].partition(" ")
    finished, _, total = count.partition("/")
    return Progress(int(finished), int(total), label)
