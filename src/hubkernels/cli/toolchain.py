"""`kernel-builder toolchain`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubkernels.cli.console import columns, note, say, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, Variants, open_readable, settings
from hubkernels.errors import CheckFailedError, InputError, Problem

if TYPE_CHECKING:
    from hubkernels.build.sdks import ProjectSdks, Sdks
    from hubkernels.model.sdk import LockedSdk
    from hubkernels.toolchain.sdk.store import SdkStore

app = typer.Typer(
    help="Headers and compilers from the package index, locked.", no_args_is_help=True, rich_markup_mode=None
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file.")]


@app.command("lock")
def lock(
    packages: Packages = None,
    project: ProjectFolder = HERE,
    variant: Variants = None,
    update: Annotated[
        bool, typer.Option("--update", help="Ask for the newest of all, also of what is locked.")
    ] = False,
    json: Json = False,
) -> None:
    """Pin what the project's variants are built with in toolchain.lock: what is there stays, what lacks is added."""
    builder, target = open_readable(project, packages, settings(toolchain="system"))  # a lock may be beyond reading
    sdks, there = builder.sdks, builder.sdks.there(anew=update)
    wanted = builder.wanted(target.packages, tuple(variant or ()), there)
    if variant and not wanted.names:
        hint = "`kernel-builder list-variants` tells the variants of a package"
        raise InputError(Problem(f"no SDK is asked for by {', '.join(variant)}", str(project), hint))
    made, left_out = sdks.add([name for name in wanted.names if update or name not in there], anew=update)
    added = {sdk.name: sdk for sdk in made}

    def changed(now: Sdks) -> Sdks:
        if not update:
            return {**added, **now}
        some = packages or variant
        others = (name for name in now if some or name in wanted.names or name.platform != wanted.platform)
        return {**{name: now[name] for name in others}, **added}

    found = sdks.write(changed, anew=update)
    new = [name for name in added if found[name] == added[name]]
    reasons = (*wanted.left_out, *left_out)
    if json:
        entries = [_as_json(found[name]) for name in sorted(found)]
        say_json({"sdks": entries, "added": [str(name) for name in new], "left-out": list(reasons)})
        return
    columns([_row(found[name], "added" if name in new else "there") for name in sorted(found)])
    for reason in reasons:
        say(f"left out: {reason}")


@app.command("fetch")
def fetch(project: ProjectFolder = HERE, json: Json = False) -> None:
    """Bring what toolchain.lock pins into the store, for builds without a network."""
    sdks = _sdks(project)
    maker, done = sdks.maker(), []
    for sdk in _of_this_machine(sdks.read()):
        done.append({**_as_json(sdk), "folder": str(maker.fetch(sdk))})
        if not json:
            say(f"{sdk.name}: {done[-1]['folder']}")
    sdks.store().note(sdks.lock)
    if json:
        say_json(done)


@app.command("list")
def list_sdks(project: ProjectFolder = HERE, json: Json = False) -> None:
    """Tell what toolchain.lock pins, and what the store has."""
    from hubkernels.host.disk import taken  # noqa: PLC0415 - `--help` does without
    from hubkernels.model.size import size_text  # noqa: PLC0415

    sdks = _sdks(project)
    locked = _locked(sdks)
    sizes = {each.sdk.tree: (each.sdk, taken(each.root)) for each in sdks.store().stored()}
    pinned = {sdk.tree for sdk in locked}
    rows = [(sdk, "locked", sizes[sdk.tree][1] if sdk.tree in sizes else None) for sdk in locked]
    rows += [(sdk, "not in this lock", size) for tree, (sdk, size) in sorted(sizes.items()) if tree not in pinned]
    if json:
        told = [({"locked": sdk.tree in pinned, "stored": size is not None}, sdk, size) for sdk, _, size in rows]
        say_json([{**_as_json(sdk), **state, "stored-bytes": size} for state, sdk, size in told])
        return
    lines = [
        _row(sdk, why, "not fetched" if size is None else f"{size_text(size)} in the store") for sdk, why, size in rows
    ]
    columns(lines) if lines else say("nothing is in the store")


@app.command("verify")
def verify(project: ProjectFolder = HERE, json: Json = False) -> None:
    """Read every file in the store: what is not as it was made is named and removed."""
    sdks = _sdks(project)
    store, sound = sdks.store(), []
    problems = [_found(store, root, "an SDK does not tell what it is") for root in store.untold()]
    for stored in list(store.stored()):
        if damaged := store.damage(stored):
            more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
            problems.append(_found(store, stored.root, f"{stored.sdk.name} was altered: {damaged[0]}{more}"))
        else:
            sound.append(stored)
    if problems:
        raise CheckFailedError(*problems)
    _locked(sdks)  # last: what was altered goes, whatever the lock is
    if json:
        say_json([_as_json(stored.sdk) for stored in sound])
    else:
        rows = [_row(stored.sdk, "as it was made") for stored in sound]
        columns(rows) if rows else say("nothing is in the store")


def _found(store: SdkStore, root: Path, what: str) -> Problem:
    if store.owns(root):
        return Problem(f"{what}; it is removed", str(root), "`kernel-builder toolchain fetch` brings it again")
    hint = "builds take it from there: delete its folder, or let its owner run `kernel-builder toolchain verify`"
    return Problem(f"{what}; it stays, since this store is only read here", str(root), hint)


@app.command("prune")
def prune(
    project: ProjectFolder = HERE,
    days: Annotated[
        float,
        typer.Option("--days", min=0, help="What nobody used for so long, an hour at least, goes, locked or not."),
    ] = 90,
    json: Json = False,
) -> None:
    """Remove from the store what no lock names, and what was not used for long."""
    store = _sdks(project).store()
    removed, answers = store.prune(days), store.prune_answers(days)
    if json:
        say_json([_as_json(sdk) for sdk in removed])
    elif removed:
        columns([_row(sdk, "removed") for sdk in removed])
    elif not answers:
        say("nothing to remove")
    if answers:
        note(f"removed {answers} kept answer{'s' if answers > 1 else ''} of the package index")


@app.command("pack")
def pack(file: File, project: ProjectFolder = HERE, json: Json = False) -> None:
    """Write what toolchain.lock pins to one file, fetching what lacks."""
    from hubkernels.toolchain.sdk.pack import pack as write  # noqa: PLC0415 - `--help` does without

    own = _sdks(project)
    maker, store = own.maker(), own.store()
    sdks = _of_this_machine(own.read())
    if not sdks:
        raise InputError(Problem("there is nothing to pack: it pins nothing for this machine", str(own.lock)))
    write(file, [store.told(maker.fetch(sdk)) for sdk in sdks], note)
    _tell_carried(sdks, json=json)


@app.command("unpack")
def unpack(file: File, project: ProjectFolder = HERE, json: Json = False) -> None:
    """Take such a file into the store; of a damaged one nothing."""
    from hubkernels.toolchain.sdk.pack import unpack as read  # noqa: PLC0415 - `--help` does without

    _tell_carried(read(file, _sdks(project).store(), note), json=json)


def _tell_carried(sdks: Sequence[LockedSdk], *, json: bool) -> None:
    if json:
        say_json([_as_json(sdk) for sdk in sdks])
    else:
        columns([_row(sdk, sdk.tree) for sdk in sdks])


def _locked(sdks: ProjectSdks) -> tuple[LockedSdk, ...]:
    """What the lock pins; where there is none, that is told: what a verb prints then is of the store alone."""
    if sdks.locked:
        return sdks.read()
    note(f"there is no {sdks.lock.name} in {sdks.lock.parent}: `kernel-builder toolchain lock` writes one")
    return ()


def _of_this_machine(sdks: Sequence[LockedSdk]) -> tuple[LockedSdk, ...]:
    from hubkernels.host.machine import this_machine  # noqa: PLC0415 - `--help` does without

    platform = str(this_machine().platform)
    others = {sdk.name.platform for sdk in sdks} - {platform}
    if others:
        note(f"left out: SDKs for {', '.join(sorted(others))}, since this machine is {platform}")
    return tuple(sdk for sdk in sdks if sdk.name.platform == platform)


def _sdks(project: Path) -> ProjectSdks:
    """Those of a folder, which need not have a build.toml."""
    from hubkernels.build.cache import find_cache  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.places import Places  # noqa: PLC0415
    from hubkernels.build.sdks import project_sdks  # noqa: PLC0415

    return project_sdks(project, find_cache(os.environ, Places(project).cache), os.environ, note)


def _as_json(sdk: LockedSdk) -> dict[str, Any]:
    from hubkernels.model.sdk import sdk_to_json  # noqa: PLC0415 - `--help` does without

    return sdk_to_json(sdk)


def _row(sdk: LockedSdk, *state: str) -> tuple[str, ...]:
    from hubkernels.model.size import size_text  # noqa: PLC0415 - `--help` does without

    releases = ", ".join(sorted({wheel.release for wheel in sdk.wheels}))
    wheels = size_text(sum(wheel.size for wheel in sdk.wheels))
    made = f"of wheels of {wheels}" if sdk.name.is_whole else f"of a small part of {wheels} of wheels"
    return (str(sdk.name), releases, made, *state)
