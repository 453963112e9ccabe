"""Whether what was published is what its sources give: built again, and compared file by file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hubkernels import __version__
from hubkernels.build.pipeline import Builder
from hubkernels.build.planner import toolchain_facts
from hubkernels.build.report import Report
from hubkernels.build.settings import Settings
from hubkernels.check.reproducible import where_they_differ
from hubkernels.config import read_project
from hubkernels.config.members import BUILD_TOML
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem, nearest
from hubkernels.host.files import read_json_object
from hubkernels.host.git import check_out
from hubkernels.hub.variant_metadata import sources_of
from hubkernels.model.client import GIT_URL
from hubkernels.model.digest import METADATA, digest_folder
from hubkernels.model.project import Package, Project
from hubkernels.model.variant import AnyVariant, Variant

Outcome = Literal["equal", "differs", "not built here"]
_OWN = frozenset({"id", "digest", "provenance"})
"""Keys of the metadata that are compared in a way of their own."""


_PUBLISH_AGAIN = "nobody can verify that: ask who published it to commit the sources, build and publish again"
_NAMES_SOURCES = (
    "--source DIR|URL names it; who publishes writes the git address as `source` below [general] in build.toml, and "
    "nobody needs to name it"
)
_LACKS = "`kernel-builder doctor` tells what this machine lacks; another machine may have it"
_OTHER_SOURCES = "--source and --subfolder name other sources"


@dataclass(frozen=True)
class Rebuilt:
    """One variant. files: how many are equal. differing: each file with how. reason: why it is not built here.

    way_out: of that reason. could: what may be the cause of a difference, as far as it is known.
    """

    variant: str
    outcome: Outcome
    files: int = 0
    differing: tuple[str, ...] = ()
    reason: str | None = None
    way_out: str | None = None
    could: str | None = None


@dataclass(frozen=True)
class Wanted:
    """Where the sources come from, if not from where the metadata say, and how they are built."""

    environment: Mapping[str, str]
    settings: Settings
    source: str | None = None
    subfolder: str | None = None


@dataclass(frozen=True)
class _Published:
    """A variant as it was published."""

    tag: str
    folder: Path
    metadata: Mapping[str, Any]

    @property
    def commit(self) -> str | None:
        """That of the sources."""
        return sources_of(self.metadata).commit

    @property
    def builder(self) -> str:
        """The version of hubkernels, or of what it was built with."""
        found = _table(_table(self.metadata.get("provenance")).get("kernel-builder"))
        return str(found.get("version", "unknown"))

    @property
    def links(self) -> tuple[str, ...]:
        """Repositories that the metadata name; only addresses: a path or an option would mean something here."""
        found = (self.metadata.get(key) for key in ("source", "upstream"))
        return tuple(link for link in found if isinstance(link, str) and GIT_URL.fullmatch(link))

    def why_not(self, source: str | None) -> tuple[str, str] | None:
        """Why there are no sources to build it of, and the way out."""
        if self.commit is None:
            return "its metadata name no commit that it was built of", _PUBLISH_AGAIN
        if sources_of(self.metadata).dirty is not False:
            return "it was built of files that were not committed", _PUBLISH_AGAIN
        if source is None and not self.links:
            return "its metadata name no repository of its sources", _NAMES_SOURCES
        return None


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def rebuild(found: Mapping[str, Path], tags: Sequence[str], wanted: Wanted, report: Report) -> Iterator[Rebuilt]:
    """Build published variants again, those of these tags or all. found: their folders, by tag.

    Raises InputError for a tag that was not published, and where the sources have no such package.
    """
    unknown = [tag for tag in tags if tag not in found]
    if unknown:
        raise InputError(*(Problem(f"{tag} was not published there", hint=nearest(tag, found)) for tag in unknown))
    published = [
        _Published(tag, found[tag], read_json_object(found[tag] / METADATA)) for tag in dict.fromkeys(tags or found)
    ]
    with tempfile.TemporaryDirectory(prefix="hubkernels-") as scratch:
        yield from _rebuild(published, wanted, Path(scratch).resolve(), report)


def _rebuild(published: Iterable[_Published], wanted: Wanted, scratch: Path, report: Report) -> Iterator[Rebuilt]:
    by_sources: dict[tuple[str, str, str], list[_Published]] = {}
    for each in published:
        if why := each.why_not(wanted.source):
            yield Rebuilt(each.tag, "not built here", reason=why[0], way_out=why[1])
        else:
            key = (wanted.source or each.links[0], str(each.commit), str(each.metadata.get("name")))
            by_sources.setdefault(key, []).append(each)
    for number, ((source, commit, name), variants) in enumerate(by_sources.items()):
        top = scratch / str(number)
        report(f"{name}: building it of {commit[:12]} of {source}")
        check_out(str(Path(source).resolve()) if Path(source).is_dir() else source, commit, top, wanted.environment)
        project, package = _find_package(top, name, wanted.subfolder)
        with _builder(project, wanted) as builder:
            for each in variants:
                yield _rebuild_one(builder, package, each, report)


@contextmanager
def _builder(project: Project, wanted: Wanted) -> Iterator[Builder]:
    builder = Builder(project, wanted.environment, wanted.settings)
    try:
        yield builder
    finally:
        builder.settle()


def _find_package(top: Path, name: str, subfolder: str | None) -> tuple[Project, Package]:
    """In the build.toml at the top, else in the one folder below whose build.toml has it."""
    below = sorted({path.parent for path in top.rglob(BUILD_TOML) if not _is_hidden(path.relative_to(top))})
    folders = [top / subfolder] if subfolder else [top]
    found = [each for folder in folders for each in _packages(folder, name)]
    if not found and not subfolder:
        found = [each for folder in below for each in _packages(folder, name)]
    places = sorted({str(package.root.relative_to(top)) for _, package in found})
    if not places:
        raise InputError(Problem(f"no {BUILD_TOML} of the sources has a package {name}", hint="--source, --subfolder"))
    if len(places) > 1:
        raise InputError(
            Problem(f"several folders of the sources have {name}: {', '.join(places)}", hint="--subfolder")
        )
    return found[0]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _packages(folder: Path, name: str) -> list[tuple[Project, Package]]:
    """None of what cannot be read: it is not what was built."""
    try:
        project = read_project(folder)
    except HubkernelsError:
        return []
    return [(project, package) for package in project.packages if package.name == name]


def _rebuild_one(builder: Builder, package: Package, published: _Published, report: Report) -> Rebuilt:
    decisions = builder.decide(package)
    chosen = [variant for variant in decisions.accepted if variant.tag == published.tag]
    if not chosen:
        reasons = [why for each in decisions.rejected if each.variant.tag == published.tag for why in each.reasons]
        why = "; ".join(reasons) or "its sources make no such variant"
        return Rebuilt(published.tag, "not built here", reason=why, way_out=_LACKS if reasons else _OTHER_SOURCES)
    try:
        folder = builder.build(package, chosen[0], report).folder
    except HubkernelsError as error:
        first = error.problems[0]
        why = f"the build fails: {first.what}"
        return Rebuilt(published.tag, "not built here", reason=why, way_out=first.hint or _LACKS)
    differing = tuple(_differences(published, folder))
    if not differing:
        return Rebuilt(published.tag, "equal", files=len(digest_folder(folder)) + 1)
    return Rebuilt(published.tag, "differs", differing=differing, could=_causes(builder, chosen[0], published, folder))


def _differences(published: _Published, rebuilt: Path) -> Iterator[str]:
    """Each file that differs, with how. Libraries have the id in their names, and are held against one another."""
    metadata = read_json_object(rebuilt / METADATA)
    before, after = str(published.metadata.get("id")), str(metadata.get("id"))
    there, here = digest_folder(published.folder), digest_folder(rebuilt)
    if _table(published.metadata.get("digest")).get("files") != there:
        yield f"{METADATA}: its digest is not that of the published files"
    if before != after:
        yield f"{METADATA}: the id is {before}, here {after}"
    for key in sorted((published.metadata.keys() | metadata.keys()) - _OWN):
        if published.metadata.get(key) != metadata.get(key):
            yield f"{METADATA}: {key} is {published.metadata.get(key)}, here {metadata.get(key)}"
    names = {name.replace(after, before): name for name in here}
    for name in sorted(there.keys() | names.keys()):
        if name not in names:
            yield f"{name}: no source makes it"
        elif name not in there:
            yield f"{name}: is made here, and was not published"
        elif there[name] != here[names[name]]:
            bytes_there, bytes_here = (published.folder / name).read_bytes(), (rebuilt / names[name]).read_bytes()
            yield f"{name}: {where_they_differ(bytes_there, bytes_here)}"


def _causes(builder: Builder, variant: AnyVariant, published: _Published, rebuilt: Path) -> str:
    """Beside a change by somebody. Of the same id nothing that a build reads differs, the compiler included."""
    if read_json_object(rebuilt / METADATA).get("id") == published.metadata.get("id"):
        return "the same id says that the same tools built it: files were changed, or are not built alike each time"
    facts = toolchain_facts(builder.tools(variant)) if isinstance(variant, Variant) else {}
    tools = ", ".join(f"{name} {value}" for name, value in facts.items())
    hubkernels = f"hubkernels {published.builder}, here {__version__}"
    where = f"; here {tools}" if tools else ""
    return f"another compiler or other headers, which the metadata do not tell, give another id: {hubkernels}{where}"


def require_some(results: Iterable[Rebuilt], name: str) -> None:
    """Raises EnvironmentLacksError where nothing was compared: then nothing is known."""
    found = tuple(results)
    if all(each.outcome == "not built here" for each in found):
        why = "\n".join(
            ("none of its variants was built here", *(f"  - {each.variant}: {each.reason}" for each in found))
        )
        ways_out = dict.fromkeys(each.way_out for each in found if each.way_out)
        raise EnvironmentLacksError(Problem(why, name, "; or ".join(ways_out)))
