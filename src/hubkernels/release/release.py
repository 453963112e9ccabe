"""What is to be released, and how; and what can be asked of it before a step is taken."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hubkernels.build.artifacts import BUILD_FIRST, built
from hubkernels.build.pipeline import Builder
from hubkernels.build.report import Report
from hubkernels.check.verdict import Subject
from hubkernels.errors import InputError, Problem, gathered
from hubkernels.hub.lock import RemoteOf
from hubkernels.hub.order import Course, Order, make_orders
from hubkernels.hub.prepare import Wishes, refuse_shared_repository, repository_of
from hubkernels.model.project import Package
from hubkernels.release.gates import Gate
from hubkernels.release.passed import Artifacts, Passed, key_of


@dataclass(frozen=True)
class Release:
    """named: whether the packages were; else those that this machine can build are enough.

    trust: for the lock, beside what is released. report: who hears while a step goes on. options: of this run, as
    words, those that `publish` takes, too: who repeats it with fewer may publish what is private to all, unsigned.
    """

    builder: Builder
    packages: tuple[Package, ...]
    wishes: Wishes
    gates: tuple[Gate, ...]
    remote_of: RemoteOf
    report: Report
    named: bool = False
    trust: tuple[str, ...] = ()
    course: Course = field(default_factory=Course)
    options: tuple[str, ...] = ()

    @cached_property
    def passed(self) -> Passed:
        """What earlier runs remember; this one adds to it."""
        return Passed(self.builder.places.release)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(package.name for package in self.packages)

    def insist_on_repositories(self) -> None:
        """Raises InputError, before an hour of gates, where a package has no place of its own to go to."""
        refuse_shared_repository(self.packages, self.wishes)
        gathered(lambda package: repository_of(package, self.wishes), self.packages)

    @property
    def built(self) -> tuple[Package, ...]:
        """The packages of which something is built, here or elsewhere."""
        return tuple(each for each in self.packages if built(self.builder.places.package(each.name)))

    def repeat_build(self) -> str:
        """The verb without names where this run has none: what cannot be built here is no failure then."""
        return shlex.join(("build", *(self.names if self.named else ())))

    def repeat_publish(self, *words: str) -> str:
        """The verb, and its words, that does just the publishing."""
        return shlex.join(("publish", *words, *self.options))

    def repeat_all(self, *options: str) -> str:
        """As `repeat_publish`, of all that is built."""
        return self.repeat_publish(*(each.name for each in self.built), *options)

    def repeat_lock(self, pins: Sequence[str], file: Path) -> str:
        trusted = (word for each in self.trust for word in ("--trust", each))
        return shlex.join(("lock", *pins, *trusted, "--output", str(file)))

    def subject(self, package: Package) -> Subject:
        return Subject(self.builder, package, self.report)

    def orders(self, subjects: Sequence[Subject]) -> tuple[Order, ...]:
        """What is to be published of these. Raises whatever there is against it."""
        return make_orders(self.builder, [each.package for each in subjects], self.wishes, self.course)

    def subjects(self) -> tuple[Subject, ...]:
        """Those of which something is built. Raises InputError where nothing is."""
        if not self.built:
            raise InputError(Problem("nothing is built", str(self.builder.places.build), BUILD_FIRST))
        return tuple(map(self.subject, self.built))

    def key(self, gate: Gate, subject: Subject, artifacts: Artifacts) -> str | None:
        """What a gate would look at now; None of one that always looks."""
        return None if gate.facts is None else key_of(artifacts, gate.facts(subject))

    def why(self, gate: Gate, package: str, key: str | None) -> str | None:
        """Why a gate is to be passed; None where it need not be."""
        return "always looked at" if key is None else self.passed.why_again(gate.name, package, key)
