"""`kernel-builder publish`."""

from __future__ import annotations

import json as json_format
import os
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hubkernels.cli.build import Quiet, build
from hubkernels.cli.console import note, say, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, Variants, open_target
from hubkernels.errors import InputError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubkernels.build.pipeline import Builder
    from hubkernels.hub.prepare import Wishes
    from hubkernels.hub.publish import Publication, Published
    from hubkernels.hub.read_back import ReadBack
    from hubkernels.hub.remote import Remote
    from hubkernels.hub.show import Sheet
    from hubkernels.hub.sign import Signer
    from hubkernels.model.project import Package

SIGN_KEY = "HUBKERNELS_SIGN_KEY"

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
    no_read_back: NoReadBack = False,
    no_card: NoCard = False,
    output_json: OutputJson = None,
    project: ProjectFolder = HERE,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Publish what is built: one commit a package, on the branch of its version, then loaded back at that commit."""
    from hubkernels.hub.prepare import Wishes  # noqa: PLC0415 - `--help` does without

    wishes = Wishes(
        tuple(variant or ()), repo_id, branch, private, create_pr, allow_dirty, chosen_signer(sign_key, keyless=sign)
    )
    builder, target = open_target(project, packages)
    if repo_id and len(target.packages) > 1:
        names = ", ".join(package.name for package in target.packages)
        raise InputError(Problem(f"--repo-id is for one package; there are {names}", hint="name one"))
    with_card = not (no_card or create_pr)
    orders = [
        make_order(builder, package, wishes, with_card=with_card, repo_type=repo_type) for package in target.packages
    ]
    tell = not (quiet or json)
    results: list[dict[str, Any]] = []
    try:
        for order in orders:
            results.append(send(order, dry_run=dry_run, tell=tell))
            if results[-1]["commit"] and not dry_run:
                loaded = () if no_read_back else load_back(builder, order, results[-1], tell=tell)
                show_card(order, results[-1], loaded, tell=tell)
    finally:
        if output_json and results:
            write_results(output_json, results[0] if len(results) == 1 else results)  # of one in upstream's form
        if json and results:
            say_json(results)


@wraps(publish)
def build_and_publish(**options: Any) -> None:  # noqa: ANN401 - those of publish
    """Build what has changed, then publish it."""
    build(options["packages"], options["variant"], options["project"], quiet=options["quiet"] or options["json"])
    publish(**options)


def chosen_signer(key: Path | None, *, keyless: bool) -> Signer | None:
    """Who signs: what the command line says, else the key that the environment names."""
    from hubkernels.hub.sign_key import PASSWORD, read_signer  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.sign_keyless import ambient_signer  # noqa: PLC0415

    if keyless and key:
        raise InputError(Problem("--sign signs without a key, and --sign-key names one", hint="leave one of them out"))
    if keyless:
        return ambient_signer()
    file = key or (Path(named) if (named := os.environ.get(SIGN_KEY)) else None)
    return read_signer(file, os.environ.get(PASSWORD)) if file else None


class Order(NamedTuple):
    """All that there is to publish of one package, looked at before anything is sent. card: None for none."""

    package: Package
    publication: Publication
    remote: Remote
    card: Sheet | None


def make_order(
    builder: Builder, package: Package, wishes: Wishes, *, with_card: bool, repo_type: RepoTypeName = "kernel"
) -> Order:
    """Raises whatever there is against publishing it."""
    from hubkernels.hub.prepare import prepare, repository_of  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.remote import Remote  # noqa: PLC0415
    from hubkernels.hub.show import prepare_card  # noqa: PLC0415

    publication = prepare(builder, package, wishes)
    remote = Remote(repository_of(package, wishes), repo_type)
    return Order(
        package, publication, remote, prepare_card(package, publication, remote.repo_id) if with_card else None
    )


def send(order: Order, *, dry_run: bool, tell: bool) -> dict[str, Any]:
    from hubkernels.hub.publish import preview, publish  # noqa: PLC0415 - `--help` does without

    done = preview(order.publication, order.remote) if dry_run else publish(order.publication, order.remote)
    if tell:
        _tell(done)
    return {**done.to_json(), "card_commit": None}


def load_back(builder: Builder, order: Order, result: dict[str, Any], *, tell: bool) -> tuple[ReadBack, ...]:
    from hubkernels.hub.read_back import read_back  # noqa: PLC0415 - `--help` does without

    loaded = read_back(builder, order.package, order.publication, order.remote, result["commit"])
    result["read_back"] = [each.to_json() for each in loaded]
    if tell:
        _tell_loaded(loaded)
    return loaded


def show_card(order: Order, result: dict[str, Any], loaded: Sequence[ReadBack], *, tell: bool) -> None:
    from hubkernels.hub.show import publish_card  # noqa: PLC0415 - `--help` does without

    if order.card is None:
        return
    shown = publish_card(order.card, order.publication, order.remote, result["commit"], loaded)
    result.update(card_commit=shown.commit, card=shown.status)
    words = {
        "uploaded": f"card at {shown.commit}",
        "no_changes": "the card says just this",
        "left_to_newer_version": "the card is that of a newer version, and stays",
    }
    if tell:
        say(f"{order.remote.repo_id} main: {words[shown.status]}")


def _tell(done: Published) -> None:
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


def _tell_loaded(loaded: Sequence[ReadBack]) -> None:
    for each in loaded:
        note(str(each))


def write_results(file: Path, value: object) -> None:
    from hubkernels.host.files import write_atomically  # noqa: PLC0415 - `--help` does without

    write_atomically(file, (json_format.dumps(value, indent=2) + "\n").encode())
