"""Why a package is not published: every reason that can be told before the Hub is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hubkernels.check.builds import check_artifact
from hubkernels.errors import Problem, nearest
from hubkernels.hub.branches import version_of
from hubkernels.hub.offer import Offered
from hubkernels.model.client import COMMIT, LICENSES


def local_reasons(offered: Sequence[Offered], branch: str | None) -> tuple[Problem, ...]:
    """Every reason in the metadata of artifacts that are as they should be. branch: the one that was asked for."""
    rules: Iterable[Iterator[Problem]] = (
        _mixed(offered),
        _other_branch(offered, branch),
        _unpinned(offered),
        _unlicensed(offered),
    )
    return tuple(problem for rule in rules for problem in rule)


def unfit(offered: Iterable[Offered]) -> Iterator[Problem]:
    """What is not as it should be. Where there is any, no other rule reads the metadata: they may be anything."""
    for each in offered:
        for violation in check_artifact(each.folder):
            yield Problem(str(violation), str(each.folder), "`kernel-builder build` makes it anew")


def _mixed(offered: Sequence[Offered]) -> Iterator[Problem]:
    """One branch is one version of one kernel under one licence."""
    for key in ("version", "name", "license"):
        found = {each.tag: each.metadata.get(key) for each in offered}
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{tag} has {value}" for tag, value in found.items())
            yield Problem(f"the variants differ in their {key}: {listed}", hint="`kernel-builder build` makes all anew")


def _other_branch(offered: Sequence[Offered], branch: str | None) -> Iterator[Problem]:
    asked, version = version_of(branch or ""), offered[0].metadata["version"]
    read = _read_as(branch or "")
    if read is not None and (branch != f"v{read}" or read < 0):
        what = f"clients read the branch {branch} as version {read}, beside v{abs(read)}"
        yield Problem(what, hint="leave --branch out, or give it a name that is no number after a v")
    elif asked not in {None, version}:
        what = f"the branch {branch} is for version {asked}; the artifacts are version {version}"
        yield Problem(what, hint=f"leave --branch out, or set general.version = {asked} and build")


def _read_as(branch: str) -> int | None:
    """The version that the client takes a branch for: whatever Python takes for a number, as v01 and v1_0."""
    try:
        return int(branch[1:]) if branch.startswith("v") else None
    except ValueError:
        return None


def _unpinned(offered: Iterable[Offered]) -> Iterator[Problem]:
    """What a kernel loads must be fixed like the kernel itself."""
    loose = {
        entry["repo-id"]: entry.get("revision", f"version {entry.get('version')}")
        for each in offered
        for entry in each.metadata.get("kernel-depends", ())
        if not COMMIT.fullmatch(str(entry.get("revision", "")))
    }
    for repo_id, found in loose.items():
        hint = "name the commit in build.toml: revision = the 40 hex digits that `kernel-builder lock` tells"
        yield Problem(f"kernel-depends takes {repo_id} at {found}, which can move", hint=hint)


def _unlicensed(offered: Iterable[Offered]) -> Iterator[Problem]:
    for found in sorted({str(each.metadata.get("license")) for each in offered}):
        if found.lower() not in LICENSES:
            hint = nearest(found.lower(), LICENSES) or 'say "other", and ship the text as LICENSE'
            yield Problem(f"the Hub knows no license {found}", "general.license", hint)


_COMMIT = (
    "`git status` tells which, toolchain.lock among them where a build wrote it; what that overlooks has h or S before "
    "it in `git ls-files -v`: commit and build again, or publish it all the same with --allow-dirty"
)


def dirty(offered: Iterable[Offered]) -> Iterator[Problem]:
    tags = [each.tag for each in offered if each.dirty]
    if tags:
        what = f"the checkout had files that are not committed when these were built: {', '.join(tags)}"
        yield Problem(what, hint=_COMMIT)
