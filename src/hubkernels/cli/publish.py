"""`kernel-builder publish`."""

from __future__ import annotations

import json as json_format
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hubkernels.cli.build import Quiet, build
from hubkernels.cli.console import note, say, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, Variants, open_target
from hubkernels.errors import InputError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubkernels.hub.publish import Published
    from hubkernels.hub.read_back import ReadBack
    from hubkernels.hub.sign import Signer

SIGN_KEY = "HUBKERNELS_SIGN_KEY"

RepoId = Annotated[
    str | None, typer.Option("--repo-id", metavar="OWNER/NAME", help="Repository; general.hub.repo-id by default.")
]
Branch = Annotated[
    str | None, typer.Option("--branch", metavar="NAME", help="Branch; that of the version, as v1, by default.")
]
Private = Annotated[bool, typer.Option("--private", help="Where the repository is made, make it private.")]
RepoType = Annotated[Literal["kernel", "model"], typer.Option("--repo-type", help="model: repositories of old.")]
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
    output_json: OutputJson = None,
    project: ProjectFolder = HERE,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Publish what is built: one commit a package, on the branch of its version, then loaded back at that commit."""
    from hubkernels.hub.prepare import Wishes, prepare, repository_of  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.publish import preview  # noqa: PLC0415
    from hubkernels.hub.publish import publish as send  # noqa: PLC0415
    from hubkernels.hub.read_back import read_back  # noqa: PLC0415
    from hubkernels.hub.remote import Remote  # noqa: PLC0415

    wishes = Wishes(
        tuple(variant or ()), repo_id, branch, private, create_pr, allow_dirty, _signer(sign_key, keyless=sign)
    )
    builder, target = open_target(project, packages)
    if repo_id and len(target.packages) > 1:
        names = ", ".join(package.name for package in target.packages)
        raise InputError(Problem(f"--repo-id is for one package; there are {names}", hint="name one"))
    orders = [
        (package, prepare(builder, package, wishes), Remote(repository_of(package, wishes), repo_type))
        for package in target.packages
    ]
    results: list[dict[str, Any]] = []
    try:
        for package, publication, remote in orders:
            done = preview(publication, remote) if dry_run else send(publication, remote)
            results.append(done.to_json())
            if not (quiet or json):
                _tell(done)
            if done.commit and not (dry_run or no_read_back):
                loaded = read_back(builder, package, publication, remote, done.commit)
                results[-1]["read_back"] = [each.to_json() for each in loaded]
                if not (quiet or json):
                    _tell_loaded(loaded)
    finally:
        if output_json and results:
            _write(output_json, results)
        if json and results:
            say_json(results)


def build_and_publish(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    variant: Variants = None,
    repo_id: RepoId = None,
    branch: Branch = None,
    private: Private = False,
    repo_type: RepoType = "kernel",
    create_pr: CreatePr = False,
    allow_dirty: AllowDirty = False,
    sign: Sign = False,
    sign_key: SignKey = None,
    output_json: OutputJson = None,
    project: ProjectFolder = HERE,
    quiet: Quiet = False,
) -> None:
    """Build what has changed, then publish it."""
    build(packages, variant, project, quiet=quiet)
    publish(
        packages,
        variant,
        repo_id,
        branch,
        private,
        repo_type,
        create_pr,
        allow_dirty,
        sign=sign,
        sign_key=sign_key,
        output_json=output_json,
        project=project,
        quiet=quiet,
    )


def _signer(key: Path | None, *, keyless: bool) -> Signer | None:
    """Who signs: what the command line says, else the key that the environment names."""
    from hubkernels.hub.sign_key import PASSWORD, read_signer  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.sign_keyless import ambient_signer  # noqa: PLC0415

    if keyless and key:
        raise InputError(Problem("--sign signs without a key, and --sign-key names one", hint="leave one of them out"))
    if keyless:
        return ambient_signer()
    file = key or (Path(named) if (named := os.environ.get(SIGN_KEY)) else None)
    return read_signer(file, os.environ.get(PASSWORD)) if file else None


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


def _write(file: Path, results: list[dict[str, Any]]) -> None:
    """Of one package in upstream's form, of several as a list."""
    from hubkernels.host.files import write_atomically  # noqa: PLC0415 - `--help` does without

    value = results[0] if len(results) == 1 else results
    write_atomically(file, (json_format.dumps(value, indent=2) + "\n").encode())
