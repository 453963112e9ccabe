"""A release from its first step to its last, or to the one that stops it."""

from __future__ import annotations

from collections.abc import Iterator

from hubkernels.check.verdict import Subject, Verdict
from hubkernels.release.gates import Gate
from hubkernels.release.passed import artifacts_in
from hubkernels.release.publishing import publish
from hubkernels.release.release import Release
from hubkernels.release.steps import BUILD, PUBLISH, Event, Step, Stop, StoppedError, Taken, stopping_at


def carry_out(release: Release) -> Iterator[Event]:
    """Take each step as its event is asked for; what stops it is told last."""
    try:
        with stopping_at(PUBLISH, release.names, release.repeat_all()):
            release.insist_on_repositories()
        yield from _build(release)
        _look_ahead(release)
        for gate in release.gates:
            yield from _pass(release, gate)
        yield from publish(release)
    except StoppedError as error:
        yield error.stop


def _build(release: Release) -> Iterator[Taken]:
    with stopping_at(BUILD, release.names, release.repeat_build()):
        for made in release.builder.build_all(release.packages, (), release.report, leave_out=not release.named):
            state = f"{made.variant}: {'built' if made.fresh else 'up to date'}"
            yield Taken((Step(BUILD, made.package, "ok", state),))


def _look_ahead(release: Release) -> None:
    """What publishing would refuse at the end, an hour of gates later."""
    once = () if release.course.dry_run else ("--dry-run",)
    with stopping_at(PUBLISH, (), release.repeat_all(*once)):
        release.orders(release.subjects())


def _pass(release: Release, gate: Gate) -> Iterator[Taken]:
    """One gate, for every package: all that is wrong there is told before it ends."""
    wrong: list[Verdict] = []
    with stopping_at(gate.name, (), gate.repeat.format("").strip()):
        for subject in release.subjects():
            verdict = _judge(release, gate, subject)
            yield _told(gate, subject, verdict)
            if verdict is not None and verdict.code:
                wrong.append(verdict)
    if wrong:
        names = tuple(verdict.package for verdict in wrong)
        problems = tuple(dict.fromkeys(problem for verdict in wrong for problem in verdict.outcome.problems))
        code = max(verdict.code for verdict in wrong)
        raise StoppedError(Stop(gate.name, names, gate.repeat.format(names[0]), problems, code))


def _judge(release: Release, gate: Gate, subject: Subject) -> Verdict | None:
    """None where just these artifacts have passed before.

    What changes while it runs has not passed, nor what it found nothing to look at in.
    """
    name = subject.package.name
    key = release.key(gate, subject, artifacts_in(subject.folder))
    if release.why(gate, name, key) is None:
        return None
    verdict = gate.run(subject)
    if key is not None and not verdict.code and release.key(gate, subject, artifacts_in(subject.folder)) == key:
        note = release.passed.note if verdict.state == "ok" else release.passed.note_now
        note(gate.name, name, key)
    return verdict


def _told(gate: Gate, subject: Subject, verdict: Verdict | None) -> Taken:
    if verdict is None:
        name = subject.package.name
        return Taken((Step(gate.name, name, "done", "for just these artifacts, by an earlier run"),))
    steps = tuple(Step(check, package, state, why) for state, check, package, why in verdict.rows())
    return Taken(steps, verdict.outcome.warnings)
