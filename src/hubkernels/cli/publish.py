"""`kernel-builder publish`."""

from __future__ import annotations

import json as json_format
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hubkernels.cli.build import Quiet, build
from hubkernels.cli.console import note, report, say, say_json, say_problems, say_warnings
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, Variants, open_target
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.cli.target import Target
    from hubkernels.hub.deliver import Delivery
    from hubkernels.hub.publish import Published
    from hubkernels.hub.show import Shown
    from hubkernels.hub.sign import Signer
    from hubkernels.model.project import Package

SIGN_KEY = "HUBKERNELS_SIGN_KEY"
SIGN_CONFIG = "HUBKERNELS_SIGN_CONFIG"

RepoId = Annotated[
    str | None, typer.Option("--repo-id", metavar="OWNER/NAME", help="Repository; general.hub.repo-id by default.")
]
Branch = Annotated[
    str | None, typer.Option("--branch", metavar="NAME", help="Branch; that of the version, as v1, by default.")
]
Private = Annotated[bool, typer.Option("--private", help="Where the repository is made, make it private.")]
RepoTypeName = Literal["kernel", "model"]
RepoType = Annotated[RepoTypeName, typer.Option("--repo-type", help="model: repositories of old.")]
CreatePr = Annotated[bool, typer.Option("--create-pr", help="Propose the commit; needs no right to write.")]
AllowDirty = Annotated[
    bool, typer.Option("--allow-dirty", help="Publish what was built of uncommitted files, or is out of date, too.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would change, by variant; change nothing.")]
OutputJson = Annotated[Path | None, typer.Option("--output-json", metavar="FILE", help="Write what was done here.")]
Sign = Annotated[bool, typer.Option("--sign", help="Sign as the CI job that this runs in: sigstore, no key.")]
SignKey = Annotated[
    Path | None, typer.Option("--sign-key", metavar="FILE", help=f"Sign with this key of `keygen`; else {SIGN_KEY}.")
]
SignConfig = Annotated[
    Path | None,
    typer.Option(
        "--sign-config", metavar="FILE", help=f"The sigstore of --sign, its ClientTrustConfig; else {SIGN_CONFIG}."
    ),
]
NoReadBack = Annotated[
    bool, typer.Option("--no-read-back", help="Do not load what was published with the stock client.")
]
NoCard = Annotated[bool, typer.Option("--no-card", help="Leave the card, README.md on main, as it is.")]


def publish(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    variant: Variants = None,
    repo_id: RepoId = None,
    branch: Branch = None,
    private: Private = False,
    repo_type: RepoType = "kernel",
    create_pr: CreatePr = False,
    allow_dirty: AllowDirty = False,
    dry_run: DryRun = False,
    sign: Sign = False,
    sign_key: SignKey = None,
    sign_config: SignConfig = None,
    no_read_back: NoReadBack = False,
    no_card: NoCard = False,
    output_json: OutputJson = None,
    project: ProjectFolder = HERE,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Publish what is built: one commit a package, on the branch of its version, then loaded back at that commit."""
    from hubkernels.hub.deliver import deliver  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.order import Course, make_orders, warnings  # noqa: PLC0415
    from hubkernels.hub.prepare import Wishes, refuse_shared_repository  # noqa: PLC0415

    refuse_unwritable(output_json)
    wishes = Wishes(
        tuple(variant or ()),
        repo_id,
        branch,
        private=private,
        as_pull_request=create_pr,
        allow_dirty=allow_dirty,
        signer=chosen_signer(sign_key, sign_config, keyless=sign),
        repo_type=repo_type,
    )
    course = Course(dry_run=dry_run, read_back=not no_read_back, with_card=not no_card)
    builder, target = open_target(project, packages)
    refuse_shared_repository(target.packages, wishes)  # whichever of them can be built here
    orders = make_orders(builder, _publishable(builder, target), wishes, course)
    say_warnings(warnings(orders))
    done: dict[str, Delivery] = {}

    def tell() -> None:
        results = [each.to_json() for each in done.values()]
        if results:  # the file of one in upstream's form
            put_down(output_json, results[0] if len(results) == 1 else results, results if json else None, results)

    with told_whatever_happens(tell):
        for each in chain.from_iterable(map(deliver, orders)):
            done[each.order.package.name] = each
            if not (quiet or json):
                tell_delivery(each)


def _publishable(builder: Builder, target: Target) -> tuple[Package, ...]:
    """Where none is named, all but those that are not built and cannot be here, which is told: as `release` does."""
    from hubkernels.build.artifacts import built  # noqa: PLC0415 - `--help` does without

    if target.named or len(target.packages) == 1:
        return target.packages
    found = [each for each in target.packages if built(builder.places.package(each.name))]
    lacking = [each for each in target.packages if each not in found]
    left_out = [each for each in lacking if not builder.decide(each).accepted] if found else []
    for each in left_out:
        report(f"{each.name}: no variant can be built here; `kernel-builder list-variants` tells why")
    return tuple(each for each in target.packages if each not in left_out)


@wraps(publish)
def build_and_publish(**options: Any) -> None:  # noqa: ANN401 - those of publish
    """Build what has changed, then publish it."""
    refuse_unwritable(options["output_json"])
    build(options["packages"], options["variant"], options["project"], quiet=options["quiet"] or options["json"])
    publish(**options)


def chosen_signer(key: Path | None, config: Path | None, *, keyless: bool) -> Signer | None:
    """Who signs: what the command line says, else the key that the environment names.

    config: of the sigstore that --sign asks; else what the environment names, else the public one.
    """
    from hubkernels.hub.sign_key import PASSWORD, read_signer  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.sign_keyless import ambient_signer  # noqa: PLC0415
    from hubkernels.hub.sign_trust import GITHUB_SERVER  # noqa: PLC0415

    if keyless and key:
        raise InputError(Problem("--sign signs without a key, and --sign-key names one", hint="leave one of them out"))
    if config and not keyless:
        raise InputError(Problem("--sign-config is of --sign, which is not there", hint="add --sign, or leave it out"))
    if keyless:
        return ambient_signer(config or _named(SIGN_CONFIG), os.environ.get("GITHUB_SERVER_URL") or GITHUB_SERVER)
    file = key or _named(SIGN_KEY)
    return read_signer(file, os.environ.get(PASSWORD)) if file else None


def _named(variable: str) -> Path | None:
    """A file that the environment names."""
    return Path(named) if (named := os.environ.get(variable)) else None


def tell_delivery(done: Delivery) -> None:
    """Tell the last step of it."""
    if done.card is not None:
        _tell_card(done.order.remote.repo_id, done.card)
    elif done.read_back is not None:
        for each in done.read_back:
            note(str(each))
        if not done.read_back:
            say_warnings([_nothing_back(done)])
    else:
        _tell_published(done.published)


def _tell_published(done: Published) -> None:
    for line in done.changes.lines():
        say(f"  {line}")
    words = {
        "no_changes": "nothing to publish: the branch holds just this",
        "would_upload": "would be published",
        "uploaded": "published",
        "pull_request_created": f"proposed: {done.pull_request}",
    }
    at = f" at {done.commit}" if done.commit else ""
    say(f"{done.repo_id} {done.branch}{at}: {words[done.status]}")


def _nothing_back(done: Delivery) -> Problem:
    """Why no variant came back: else it looks as where all did."""
    from hubkernels.check.runnable import find_runnable  # noqa: PLC0415 - `--help` does without

    order = done.order
    what = f"nothing of {done.published.repo_id} was loaded back"
    if order.remote.repo_type != "kernel":
        return Problem(f"{what}: the client loads from no {order.remote.repo_type} repository")
    passed = find_runnable(order.builder, order.package, ()).passed
    why = (f"  - {each.tag}: {passed[each.tag]}" for each in order.publication.variants if each.tag in passed)
    return Problem("\n".join((what, *why)), hint="publish, or `check load`, where its variants can be loaded")


def _tell_card(repo_id: str, shown: Shown) -> None:
    words = {
        "uploaded": f"card at {shown.commit}",
        "no_changes": "the card says just this",
        "left_to_newer_version": "the card is that of a newer version, and stays",
        "left_alone": "the branch moved on meanwhile, or is of no version: the card stays",
    }
    say(f"{repo_id} main: {words[shown.status]}")


def refuse_unwritable(file: Path | None) -> None:
    """Before anything is done: when it is, nobody must lose what was done for want of a place to write it."""
    from hubkernels.host.files import disk_errors, is_special  # noqa: PLC0415 - `--help` does without

    if file is None:
        return
    with disk_errors(file):
        special, folder = is_special(file), Path(os.path.realpath(file)).parent
    if file.is_dir() or not (special or folder.is_dir()):
        what = f"{file} is a folder" if file.is_dir() else f"there is no folder {folder}"
        raise InputError(Problem(what, "--output-json", "name a file in a folder that is there"))
    if not os.access(file if special else folder, os.W_OK):
        raise EnvironmentLacksError(Problem(f"{file} cannot be written", "--output-json", "name another file"))


@contextmanager
def told_whatever_happens(tell: Callable[[], None]) -> Iterator[None]:
    """Tell in the end what was done; of a run that fails or is interrupted, too, whose own end stays what it was."""
    try:
        yield
    except BaseException:
        try:
            tell()
        except HubkernelsError as error:
            say_problems(error.problems)
        raise
    tell()


def put_down(file: Path | None, written: object, told: object | None, results: Iterable[Mapping[str, Any]]) -> None:
    """Print what was done, where it is to be told, then write it where there is a file for it.

    results: of each package. Where the file cannot be written, the error says what is on the Hub all the same.
    """
    try:
        if told is not None:
            say_json(told)
    finally:
        if file is not None:
            _write_or_name(file, written, results)


def _write_or_name(file: Path, value: object, results: Iterable[Mapping[str, Any]]) -> None:
    try:
        write_results(file, value)
    except HubkernelsError as error:
        there = [each for each in results if each.get("status") in {"uploaded", "pull_request_created"}]
        if not there:
            raise
        names = ", ".join(f"{each['repo_id']} {each['branch']} at {each['commit']}" for each in there)
        hint = f"it is published all the same: {names}"
        raise type(error)(*(Problem(each.what, "--output-json", hint) for each in error.problems)) from error


def write_results(file: Path, value: object) -> None:
    """What a link leads to is written, and the link stays; a pipe or a device, such as /dev/stdout, is written into."""
    from hubkernels.host.files import (  # noqa: PLC0415 - `--help` does without
        disk_errors,
        is_special,
        place_to_write,
        write_atomically,
    )

    text = json_format.dumps(value, indent=2)
    if _is_stdout(file):  # opened anew, a file behind it would be cut off
        say(text)
        return
    with disk_errors(file):
        if is_special(file):
            file.write_bytes(f"{text}\n".encode())
            return
        place = place_to_write(file)
    write_atomically(place, f"{text}\n".encode())


def _is_stdout(file: Path) -> bool:
    return str(file) in {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
