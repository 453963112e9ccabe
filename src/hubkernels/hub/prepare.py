"""From a built package to what is to be published of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubkernels.build.artifacts import choose_built, variants_by_tag
from hubkernels.build.pipeline import Builder
from hubkernels.build.state import stale
from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.host.files import read_errors, read_regular
from hubkernels.host.links import OWN_FILE, why_foreign
from hubkernels.hub.offer import Content, Offered, read_offer
from hubkernels.hub.publish import Publication
from hubkernels.hub.records import records_to_send
from hubkernels.hub.refusals import dirty, local_reasons, unfit
from hubkernels.hub.remote import RepoType
from hubkernels.hub.sign import Signer
from hubkernels.model.client import COMMIT, REPO_ID, REPO_RULE, is_branch
from hubkernels.model.project import Package

_LONGEST_BRANCH = 200
"""Bytes: a branch is a file on a Hub's disk, and gets a lock beside it."""


@dataclass(frozen=True)
class Wishes:
    """What the user said of what is published, and where; what they did not say is in build.toml."""

    variants: tuple[str, ...] = ()
    repo_id: str | None = None
    branch: str | None = None
    private: bool = False
    as_pull_request: bool = False
    allow_dirty: bool = False
    signer: Signer | None = None
    repo_type: RepoType = "kernel"


def repository_of(package: Package, wishes: Wishes) -> str:
    """Where a package goes. Raises InputError where neither the command line nor build.toml tells."""
    found = package.repo_id if wishes.repo_id is None else wishes.repo_id
    if found is None:
        where = str(package.root / "build.toml")
        hint = f'--repo-id OWNER/{package.name}, or general.hub.repo-id = "OWNER/{package.name}"'
        raise InputError(Problem(f"{package.name} names no repository on the Hub", where, hint))
    if not REPO_ID.fullmatch(found):
        raise InputError(Problem(f"{found or 'an empty name'} is not a repository of the Hub", hint=REPO_RULE))
    return found


def refuse_shared_repository(packages: Sequence[Package], wishes: Wishes) -> None:
    """Raises InputError where one repository is named for several packages."""
    if wishes.repo_id is not None and len(packages) > 1:
        names = ", ".join(package.name for package in packages)
        raise InputError(Problem(f"--repo-id is for one package; there are {names}", hint="name one"))


def prepare(builder: Builder, package: Package, wishes: Wishes) -> tuple[Publication, tuple[Problem, ...]]:
    """The artifacts as they are, and every reason against them that this machine tells. Builds nothing.

    Raises InputError where nothing is built, CheckFailedError for artifacts that no Hub can be asked about.
    """
    offered = read_offer(choose_built(builder.places.package(package.name), wishes.variants))
    branch = wishes.branch or package.branch
    if branch is not None and not is_branch(branch):
        raise InputError(Problem(f"{branch} is not the name of a git branch", hint="leave --branch out"))
    if branch is not None and _is_taken_for_another(branch):
        what = f"{branch} is no name for a branch: it is long, or reads as something else of git's"
        raise InputError(Problem(what, hint="leave --branch out"))
    against = () if wishes.allow_dirty else (*dirty(offered), *_outdated(builder, package, offered))
    against = (*against, *_strays(builder, package, offered))
    if wrong := tuple(unfit(offered)):
        raise CheckFailedError(*wrong, *against)
    version = offered[0].metadata["version"]
    more = {**_benchmarks(package), **records_to_send(offered)}
    where = branch or f"v{version}"
    publication = Publication(offered, where, more, wishes.private, wishes.as_pull_request, wishes.signer)
    return publication, (*local_reasons(offered, branch), *against)


def _is_taken_for_another(branch: str) -> bool:
    """A Hub refuses these when the repository is made already."""
    odd = branch == "HEAD" or branch.startswith("refs/") or COMMIT.fullmatch(branch)
    return bool(odd) or len(branch.encode(errors="replace")) > _LONGEST_BRANCH


def _strays(builder: Builder, package: Package, offered: Sequence[Offered]) -> Iterator[Problem]:
    """Variants that build.toml no longer has are held against no sources, and the client may prefer them."""
    known = variants_by_tag(package, builder.rows)
    for each in offered:
        variant = known.get(each.tag)
        if variant is None or variant.backend not in package.backends:
            what = f"build.toml no longer makes {each.tag}"
            yield Problem(what, str(each.folder), "delete it, or name the others with --variant")


def _outdated(builder: Builder, package: Package, offered: Sequence[Offered]) -> Iterator[Problem]:
    for found in stale(builder, package, [each.tag for each in offered]):
        yield Problem(found.what, found.where, f"{found.hint}, or publish it all the same with --allow-dirty")


def _benchmarks(package: Package) -> Mapping[str, Content]:
    """What upstream's `kernels benchmark` runs; a workspace keeps no such folder for each of its packages."""
    if package.home:
        return {}
    found = sorted((package.root / "benchmarks").glob("benchmark*.py"))
    return {f"benchmarks/{path.name}": _content(path, package.root) for path in found}


def _content(path: Path, root: Path) -> Content:
    if why := why_foreign(path, root):
        raise InputError(Problem(f"{path.relative_to(root)} {why}", str(path), OWN_FILE))
    with read_errors(path):
        return Content(read_regular(path))
