"""Every step as it would be taken now, and why. What will be built anew has passed no gate."""

from __future__ import annotations

from collections.abc import Iterator

from hubkernels.build.many import choose_all
from hubkernels.build.state import why_not_current
from hubkernels.model.project import Package
from hubkernels.release.gates import Gate
from hubkernels.release.passed import artifacts_in
from hubkernels.release.release import Release
from hubkernels.release.steps import BUILD, CARD, LOCK, PUBLISH, READ_BACK, Step, Taken

_LAST = {
    PUBLISH: "one commit, none where nothing differs",
    READ_BACK: "at the commit, unless an earlier run has done so",
    CARD: "one commit, none where nothing differs",
    LOCK: "the commits and hashes of what was released",
}


def plan(release: Release) -> Taken:
    """As one event: no step is taken. Raises InputError for what could not be taken at all."""
    release.insist_on_repositories()
    return Taken(tuple(_steps(release)))


def _steps(release: Release) -> Iterator[Step]:
    packages = _packages(release)
    pending = {package.name: _pending(release, package) for package in packages}
    for name, whys in pending.items():
        yield Step(BUILD, name, "run" if whys else "done", "; ".join(whys) or "up to date")
    for gate in release.gates:
        for package in packages:
            why = "of artifacts that are yet to be built" if pending[package.name] else _why(release, gate, package)
            state = "run" if why else "done"
            yield Step(gate.name, package.name, state, why or "for just these artifacts, by an earlier run")
    for step, why in _LAST.items():
        yield from (Step(step, name, "run", why) for name in pending)


def _packages(release: Release) -> tuple[Package, ...]:
    """Those that a release would build, and those that were built elsewhere. Raises what the build would, too."""
    decided = [(package, release.builder.decide(package)) for package in release.packages]
    chosen = choose_all(decided, (), release.report, leave_out=not release.named)
    wanted = (*(package for package, _ in chosen), *release.built)
    return tuple(package for package in release.packages if package in wanted)


def _why(release: Release, gate: Gate, package: Package) -> str | None:
    subject = release.subject(package)
    return release.why(gate, package.name, release.key(gate, subject, artifacts_in(subject.folder)))


def _pending(release: Release, package: Package) -> tuple[str, ...]:
    accepted = release.builder.decide(package).accepted
    whys = ((variant.tag, why_not_current(release.builder, package, variant)) for variant in accepted)
    return tuple(f"{tag}: {why}" for tag, why in whys if why)
