"""`kernel-builder release`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubkernels.cli.console import columns, fail, report, say, say_problems, say_warnings
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
    OutputJson,
    Private,
    RepoId,
    Sign,
    SignConfig,
    SignKey,
    chosen_signer,
    put_down,
    refuse_unwritable,
    tell_delivery,
    told_whatever_happens,
)
from hubkernels.errors import HubkernelsError, Problem

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.release.steps import Ended, Event, Stop

Bench = Annotated[bool, typer.Option("--bench", help="Time every case, too, and publish the records.")]
Plan = Annotated[bool, typer.Option("--plan", help="Tell the steps, and why each has to be done; do nothing.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Pass all gates, then tell what would be published.")]


def release(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    bench: Bench = False,
    plan: Plan = False,
    dry_run: DryRun = False,
    allow_dirty: AllowDirty = False,
    repo_id: RepoId = None,
    private: Private = False,
    sign: Sign = False,
    sign_key: SignKey = None,
    sign_config: SignConfig = None,
    trust: Trust = None,
    no_card: NoCard = False,
    output_json: OutputJson = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    memory: Memory = None,
    json: Json = False,
) -> int:
    """Build, check, publish and load back: every gate in turn, from the one that failed when it is called again."""
    from hubkernels.hub.order import Course  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.prepare import Wishes  # noqa: PLC0415
    from hubkernels.release.gates import GATES, WITH_BENCH  # noqa: PLC0415
    from hubkernels.release.pipeline import carry_out  # noqa: PLC0415
    from hubkernels.release.plan import plan as look_ahead  # noqa: PLC0415
    from hubkernels.release.release import Release  # noqa: PLC0415

    refuse_unwritable(output_json)
    builder, target = open_target(project, packages, settings(jobs, memory))
    signer = chosen_signer(sign_key, sign_config, keyless=sign)
    wishes = Wishes(repo_id=repo_id, private=private, allow_dirty=allow_dirty, signer=signer)
    course = Course(dry_run=dry_run, with_card=not no_card)
    gates = WITH_BENCH if bench else GATES
    trusted = tuple(trust or ())
    words = _words(
        (dry_run, "--dry-run"),
        (allow_dirty, "--allow-dirty"),
        (repo_id, "--repo-id"),
        (private, "--private"),
        (sign, "--sign"),
        (sign_key, "--sign-key"),
        (sign_config, "--sign-config"),
        (no_card, "--no-card"),
        (output_json, "--output-json"),
        (json, "--json"),
    )
    asked = Release(builder, target.packages, wishes, gates, remote_of(), report, target.named, trusted, course, words)
    events = [look_ahead(asked)] if plan else carry_out(asked)
    success = "planned" if plan else "would_release" if dry_run else "released"
    ended, repeat = _carried_out(events if json else _told(events), builder, output_json, success, json=json)
    if not json:
        say_warnings(ended.warnings)
    if ended.stop:
        return _fail(ended.stop, repeat, json=json)
    if not (json or plan):
        say(success.replace("_", " "))
        for command in _next(ended):
            say(f"  next: {command}")
    return 0


def _carried_out(
    events: Iterable[Event], builder: Builder, output_json: Path | None, success: str, *, json: bool
) -> tuple[Ended, str]:
    """How it ended, and the command that repeats what stopped it.

    What was published is told of a run that is interrupted, too: nobody else remembers its commits.
    """
    from hubkernels.release.steps import gather  # noqa: PLC0415 - `--help` does without

    seen: list[Event] = []
    whole = False

    def tell() -> None:
        ended = gather(seen)
        status = "interrupted" if not whole else "failed" if ended.stop else success
        if whole or ended.deliveries:
            summary = _summary(ended, status, _repeat(builder, ended))
            put_down(output_json, summary, summary if json else None, summary["published"])

    try:
        with told_whatever_happens(tell):
            for event in events:
                seen.append(event)  # noqa: PERF402 - what came is kept where the next one raises
            whole = True
    except HubkernelsError as error:
        if not (whole and gather(seen).stop):
            raise
        say_problems(error.problems)  # that there is no summary is no reason to keep why it stopped
    ended = gather(seen)
    return ended, _repeat(builder, ended)


def _repeat(builder: Builder, ended: Ended) -> str:
    return _command(builder, ended.stop.repeat) if ended.stop else ""


def _told(events: Iterable[Event]) -> Iterator[Event]:
    """Tell each as it comes."""
    from hubkernels.release.steps import Taken  # noqa: PLC0415 - `--help` does without

    for event in events:
        if isinstance(event, Taken) and event.delivery is not None:
            tell_delivery(event.delivery)
        elif isinstance(event, Taken):
            columns([(each.state, each.step, each.package, each.why) for each in event.steps])
        yield event


def _words(*options: tuple[object, str]) -> tuple[str, ...]:
    """The options of a command line that were given: by name alone, or with a value."""
    given = [(value, name) for value, name in options if value is not None and value is not False]
    return tuple(word for value, name in given for word in ((name,) if value is True else (name, str(value))))


def _command(builder: Builder, words: str) -> str:
    """A command line that finds the project again."""
    root = builder.project.root
    elsewhere = "" if root.resolve() == Path.cwd() else f" --project {shlex.quote(str(root))}"
    return f"kernel-builder {words}{elsewhere}"


def _summary(ended: Ended, status: str, repeat: str) -> dict[str, Any]:
    failed = None
    if ended.stop:
        problems = [problem.to_json() for problem in ended.stop.problems]
        failed = {
            "step": ended.stop.step,
            "packages": list(ended.stop.packages),
            "repeat": repeat,
            "problems": problems,
        }
    steps = [each._asdict() for each in ended.steps]
    return {
        "status": status,
        "failed": failed,
        "steps": steps,
        "warnings": [warning.to_json() for warning in ended.warnings],
        "next": _next(ended),
        "published": [each.to_json() for each in ended.deliveries],
    }


def _next(ended: Ended) -> list[str]:
    """What fetches and looks at what was released: its lock is none that these verbs take by themselves."""
    from hubkernels.release.steps import LOCK  # noqa: PLC0415 - `--help` does without

    locks = [shlex.quote(each.why) for each in ended.steps if (each.step, each.state) == (LOCK, "ok")]
    return [f"kernel-builder {verb} --lock {lock}" for lock in locks for verb in ("prefetch", "audit")]


def _fail(stop: Stop, repeat: str, *, json: bool) -> int:
    what = f"the release stopped at {stop.step}{f' of {name}' if (name := ', '.join(stop.packages)) else ''}"
    hint = f"`{repeat}` does just that; the release goes on from there when it is called again"
    return fail((*stop.problems, Problem(what, hint=hint)), stop.code, json=json)
