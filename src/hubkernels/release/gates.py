"""The gates of a release, in their order. A new one is a row of `GATES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from hubkernels.build.planner import toolchain_facts
from hubkernels.check.checks import CHECKS
from hubkernels.check.runnable import find_runnable
from hubkernels.check.verdict import Subject, Verdict, judge
from hubkernels.hub.records import installed
from hubkernels.model.variant import Variant
from hubkernels.release.measured import BENCH, bench, parity
from hubkernels.release.passed import cases_hash

Facts = Mapping[str, object]


class Gate(NamedTuple):
    """run: looks at one package.

    facts: what it looks at beside the artifacts; where none of it has changed it need not run again. None: it always
    runs, since it takes no time and looks at more than can be told.
    repeat: the verb that does this alone, with the package's name in place of {}.
    """

    name: str
    run: Callable[[Subject], Verdict]
    facts: Callable[[Subject], Facts] | None
    repeat: str


def _nothing(subject: Subject) -> Facts:  # noqa: ARG001 - as the others
    return {}


def _torch(subject: Subject) -> Facts:
    """The torch whose symbols are looked up: of a variant for another one they are not."""
    torch = subject.builder.machine.torch
    return {"torch": torch and torch.release}


def _rebuilt(subject: Subject) -> Facts:
    """What is built again: the variants that can be here, each with its toolchain."""
    builder = subject.builder
    accepted = builder.decide(subject.package).accepted
    return {v.tag: toolchain_facts(builder.tools(v)) if isinstance(v, Variant) else {} for v in accepted}


def _client(subject: Subject) -> Facts:
    isa = subject.builder.surroundings.get("HUBKERNELS_ISA")
    found = find_runnable(subject.builder, subject.package, ()).found  # on another machine, others
    versions = {"torch": installed("torch"), "kernels": installed("kernels")}
    return {**versions, "isa": isa, "variants": [folder.name for folder in found]}


def cases(subject: Subject) -> Facts:
    return {**_client(subject), "cases": cases_hash(subject.package)}


def _check(name: str, facts: Callable[[Subject], Facts] | None) -> Gate:
    return Gate(name, lambda subject: judge(CHECKS[name], subject), facts, f"check {name} {{}}")


GATES = (
    _check("config", None),
    _check("abi", _torch),
    _check("builds", _nothing),
    _check("load", _client),
    _check("reproducible", _rebuilt),
    Gate("parity", parity, cases, "check parity {}"),
)

WITH_BENCH = (*GATES, Gate(BENCH.name, bench, cases, "bench run --package {}"))
