"""`kernel-builder release`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hubkernels.cli.console import columns, fail, report, say, say_json, say_warnings
from hubkernels.cli.options import (
    HERE,
    Jobs,
    Json,
    Memory,
    Packages,
    ProjectFolder,
    open_target,
    settings,
)
from hubkernels.cli.pins import Trust, remote_of
from hubkernels.cli.publish import (
    AllowDirty,
    NoCard,
    Order,
    OutputJson,
    Private,
    Sign,
    SignKey,
    chosen_signer,
    load_back,
    make_order,
    send,
    show_card,
    write_results,
)
from hubkernels.errors import CheckFailedError, HubkernelsError, InputError, Problem

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.check.verdict import Subject, Verdict
    from hubkernels.cli.gates import Gate
    from hubkernels.cli.target import Target
    from hubkernels.hub.gates_passed import Passed
    from hubkernels.hub.prepare import Wishes
    from hubkernels.model.project import Package

Bench = Annotated[bool, typer.Option("--bench", help="Time every case, too, and publish the records.")]
Plan = Annotated[bool, typer.Option("--plan", help="Tell the steps, and why each has to be done; do nothing.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Pass all gates, then tell what would be published.")]

PUBLISH, READ_BACK, LOCK = "publish", "read back", "lock"


class Step(NamedTuple):
    """One step of one package. state: of what was done, or `run` and `done` in a plan. why: for it, in words."""

    step: str
    package: str
    state: str
    why: str


class Stop(NamedTuple):
    """Where it ended. repeat: the command that does just this step."""

    step: str
    packages: tuple[str, ...]
    repeat: str
    problems: tuple[Problem, ...]
    code: int


class Release:
    """One run: what is to be released, and what was done so far."""

    def __init__(  # noqa: PLR0913 - what a release is told
        self, builder: Builder, target: Target, wishes: Wishes, *, bench: bool, trust: tuple[str, ...], tell: bool
    ) -> None:
        from hubkernels.cli.gates import GATES  # noqa: PLC0415 - `--help` does without
        from hubkernels.hub.gates_passed import Passed  # noqa: PLC0415

        self.builder, self.target, self.wishes, self.trust, self.tell = builder, target, wishes, trust, tell
        self.gates = tuple(gate for gate in GATES.values() if bench or gate.name != "bench")
        self.passed: Passed = Passed(builder.places.release)
        self.steps: list[Step] = []
        self.verdicts: list[Verdict] = []
        self.results: list[dict[str, Any]] = []
        self.at: tuple[str, tuple[str, ...]] = "build", ()
        """The step that is being taken, and of which packages."""

    def command(self, words: str) -> str:
        """A command line that finds the project again."""
        root = self.builder.project.root
        elsewhere = "" if root.resolve() == Path.cwd() else f" --project {root}"
        return f"kernel-builder {words}{elsewhere}"

    def subjects(self) -> list[Subject]:
        """The packages of which something is built, here or elsewhere."""
        from hubkernels.build.artifacts import BUILD_FIRST, built  # noqa: PLC0415 - `--help` does without
        from hubkernels.check.verdict import Subject  # noqa: PLC0415

        found = [p for p in self.target.packages if built(self.builder.places.package(p.name))]
        if not found:
            raise InputError(Problem("nothing is built", str(self.builder.places.build), BUILD_FIRST))
        return [Subject(self.builder, package, report) for package in found]

    def key(self, gate: Gate, subject: Subject) -> str | None:
        from hubkernels.hub.gates_passed import key_of  # noqa: PLC0415 - `--help` does without

        return None if gate.facts is None else key_of(subject.folder, gate.facts(subject))

    def why(self, gate: Gate, package: str, key: str | None) -> str | None:
        """Why a gate is to be passed; None where it need not be."""
        return "always looked at" if key is None else self.passed.why_again(gate.name, package, key)

    def note(self, *steps: Step) -> None:
        self.steps += steps
        if self.tell:
            columns([(each.state, each.step, each.package, each.why) for each in steps])


def release(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    bench: Bench = False,
    plan: Plan = False,
    dry_run: DryRun = False,
    allow_dirty: AllowDirty = False,
    private: Private = False,
    sign: Sign = False,
    sign_key: SignKey = None,
    trust: Trust = None,
    no_card: NoCard = False,
    output_json: OutputJson = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    memory: Memory = None,
    json: Json = False,
) -> int:
    """Build, check, publish and load back: every gate in turn, from the one that failed when it is called again."""
    from hubkernels.hub.prepare import Wishes, repository_of  # noqa: PLC0415 - `--help` does without

    builder, target = open_target(project, packages, settings(jobs, memory))
    signer = chosen_signer(sign_key, keyless=sign)
    wishes = Wishes(private=private, allow_dirty=allow_dirty, signer=signer)
    for package in target.packages:  # not after an hour of gates
        repository_of(package, wishes)
    run = Release(builder, target, wishes, bench=bench, trust=tuple(trust or ()), tell=not json)
    if plan:
        run.note(*_planned(run))
        stop = None
    else:
        stop = _run(run, dry_run=dry_run, with_card=not no_card)
    status = "planned" if plan else "failed" if stop else "would_release" if dry_run else "released"
    summary = _summary(run, status, stop)
    if output_json:
        write_results(output_json, summary)
    if json:
        say_json(summary)
    _tell_end(run, status, stop, json=json)
    return stop.code if stop else 0


def _run(run: Release, *, dry_run: bool, with_card: bool) -> Stop | None:
    if stop := _build(run) or _refuse(run, with_card=with_card):
        return stop
    for gate in run.gates:
        if stop := _pass(run, gate):
            return stop
    return _publish(run, dry_run=dry_run, with_card=with_card)


def _build(run: Release) -> Stop | None:
    names = tuple(package.name for package in run.target.packages)
    try:
        leave_out = not run.target.named
        for made in run.builder.build_all(run.target.packages, (), report, leave_out=leave_out):
            run.note(Step("build", made.package, "ok", f"{made.variant}: {'built' if made.fresh else 'up to date'}"))
    except HubkernelsError as error:
        return _stopped(run, "build", names, f"build {' '.join(names)}", error)
    return None


def _pass(run: Release, gate: Gate) -> Stop | None:
    """One gate, for every package: all that is wrong there is told before it ends."""
    try:
        verdicts = [found for subject in run.subjects() if (found := _judge(run, gate, subject))]
    except HubkernelsError as error:
        return _stopped(run, gate.name, (), gate.repeat.format("").strip(), error)
    wrong = [verdict for verdict in verdicts if verdict.code]
    if not wrong:
        return None
    names = tuple(verdict.package for verdict in wrong)
    problems = tuple(dict.fromkeys(problem for verdict in wrong for problem in verdict.outcome.problems))
    code = max(verdict.code for verdict in wrong)
    return Stop(gate.name, names, run.command(gate.repeat.format(names[0])), problems, code)


def _judge(run: Release, gate: Gate, subject: Subject) -> Verdict | None:
    """None where just these artifacts have passed before."""
    name = subject.package.name
    key = run.key(gate, subject)  # before it runs: what changes meanwhile has not passed
    if run.why(gate, name, key) is None:
        run.note(Step(gate.name, name, "done", "for just these artifacts, by an earlier run"))
        return None
    verdict = gate.run(subject)
    run.verdicts.append(verdict)
    run.note(*(Step(row[1], row[2], row[0], row[3]) for row in verdict.rows()))
    if key is not None and not verdict.code:
        run.passed.note(gate.name, name, key)
    return verdict


def _refuse(run: Release, *, with_card: bool) -> Stop | None:
    """What publishing would refuse at the end, an hour of gates later."""
    try:
        _orders(run, run.subjects(), with_card=with_card)
    except HubkernelsError as error:
        return _stopped(run, PUBLISH, (), "publish --dry-run", error)
    return None


def _orders(run: Release, subjects: Sequence[Subject], *, with_card: bool) -> list[Order]:
    return [make_order(run.builder, each.package, run.wishes, with_card=with_card) for each in subjects]


def _publish(run: Release, *, dry_run: bool, with_card: bool) -> Stop | None:
    """What there is against any package is found out before the first one is sent."""
    run.at = PUBLISH, tuple(package.name for package in run.target.packages)
    try:
        subjects = run.subjects()
        _refuse_unpassed(run, subjects)
        for order in _orders(run, subjects, with_card=with_card):
            _send(run, order, dry_run=dry_run)
        if not dry_run:
            _lock(run)
    except HubkernelsError as error:
        step, names = run.at
        return _stopped(run, step, names, f"publish {' '.join(names)}", error)
    return None


def _refuse_unpassed(run: Release, subjects: Sequence[Subject]) -> None:
    """Another build may have been at work meanwhile: what is published has passed every gate, these very bytes."""
    changed = [
        Problem(f"{subject.package.name} was changed while it was released: {gate.name} has not seen it as it is now")
        for subject in subjects
        for gate in run.gates
        if (key := run.key(gate, subject)) and run.passed.why_again(gate.name, subject.package.name, key)
    ]
    if changed:
        raise CheckFailedError(*changed)


def _send(run: Release, order: Order, *, dry_run: bool) -> None:
    name = order.package.name
    run.at = PUBLISH, (name,)
    result = send(order, dry_run=dry_run, tell=run.tell)
    run.results.append(result)
    run.steps.append(Step(PUBLISH, name, "ok", result["status"]))
    if dry_run:
        return
    key = _key_of_reading(run, order, result)
    again = run.passed.why_again(READ_BACK, name, key)
    run.at = READ_BACK, (name,)
    if again:
        loaded = load_back(run.builder, order, result, tell=run.tell)
        count = f"{len(loaded)} of {len(order.publication.variants)} variants"
        run.steps.append(Step(READ_BACK, name, "ok", count))
    else:
        loaded = ()
        run.note(Step(READ_BACK, name, "done", "at just this commit, by an earlier run"))
    if order.card is not None:
        run.at = "card", (name,)
        show_card(order, result, loaded, tell=run.tell)
        run.steps.append(Step("card", name, "ok", result["card"]))
    run.passed.note(READ_BACK, name, key)  # with the card, which has its figures


def _lock(run: Release) -> None:
    """What was released, and all that it depends on, pinned for who loads it."""
    from hubkernels.hub.lock import lock  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.lock_files import write_lock  # noqa: PLC0415
    from hubkernels.model.lock import LOCK as FILE  # noqa: PLC0415
    from hubkernels.model.project import KernelDependency  # noqa: PLC0415

    run.at = LOCK, tuple(package.name for package in run.target.packages)
    ours = [KernelDependency(each["repo_id"], revision=each["commit"]) for each in run.results]
    file = run.builder.places.build / FILE
    write_lock(file, lock(ours, remote_of(), {*run.trust, *(each.repo_id for each in ours)}))
    run.note(Step(LOCK, ", ".join(run.at[1]), "ok", str(file)))


def _key_of_reading(run: Release, order: Order, result: dict[str, Any]) -> str:
    from hubkernels.check.verdict import Subject  # noqa: PLC0415
    from hubkernels.cli.gates import cases  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.gates_passed import key_of  # noqa: PLC0415

    subject = Subject(run.builder, order.package, report)
    at = {"url": order.remote.url, "commit": result["commit"], "card": order.card is not None}
    return key_of(subject.folder, {**cases(subject), **at})


def _planned(run: Release) -> Iterator[Step]:
    """Every step as it would be taken now. What will be built anew has passed no gate."""
    from hubkernels.check.verdict import Subject  # noqa: PLC0415 - `--help` does without

    subjects = [Subject(run.builder, package, report) for package in run.target.packages]
    pending = {each.package.name: _pending(run, each.package) for each in subjects}
    for name, whys in pending.items():
        yield Step("build", name, "run" if whys else "done", "; ".join(whys) or "up to date")
    for gate in run.gates:
        for each in subjects:
            name = each.package.name
            why = "of artifacts that are yet to be built" if pending[name] else run.why(gate, name, run.key(gate, each))
            yield Step(gate.name, name, "run" if why else "done", why or "for just these artifacts, by an earlier run")
    for step, why in _LAST.items():
        yield from (Step(step, name, "run", why) for name in pending)


_LAST = {
    PUBLISH: "one commit, none where nothing differs",
    READ_BACK: "at the commit, unless an earlier run has done so",
    "card": "one commit, none where nothing differs",
    LOCK: "the commits and hashes of what was released",
}


def _pending(run: Release, package: Package) -> tuple[str, ...]:
    from hubkernels.build.state import why_not_current  # noqa: PLC0415 - `--help` does without

    accepted = run.builder.decide(package).accepted
    whys = ((variant.tag, why_not_current(run.builder, package, variant)) for variant in accepted)
    return tuple(f"{tag}: {why}" for tag, why in whys if why)


def _stopped(run: Release, step: str, names: tuple[str, ...], repeat: str, error: HubkernelsError) -> Stop:
    return Stop(step, names, run.command(repeat), error.problems, error.exit_code)


def _summary(run: Release, status: str, stop: Stop | None) -> dict[str, Any]:
    failed = None
    if stop:
        problems = [problem.to_json() for problem in stop.problems]
        failed = {"step": stop.step, "packages": list(stop.packages), "repeat": stop.repeat, "problems": problems}
    steps = [each._asdict() for each in run.steps]
    return {"status": status, "failed": failed, "steps": steps, "published": run.results}


def _tell_end(run: Release, status: str, stop: Stop | None, *, json: bool) -> None:
    if not json:
        say_warnings(dict.fromkeys(warning for verdict in run.verdicts for warning in verdict.outcome.warnings))
    if stop is None:
        if not json and status != "planned":
            say(status.replace("_", " "))
        return
    what = f"the release stopped at {stop.step}{f' of {name}' if (name := ', '.join(stop.packages)) else ''}"
    hint = f"`{stop.repeat}` does just that; the release goes on from there when it is called again"
    fail((*stop.problems, Problem(what, hint=hint)), stop.code, json=json)
