"""The card on main, last of all: of what stands on the branch by then."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hubkernels.check.metadata import backend_type
from hubkernels.errors import InputError, Problem
from hubkernels.host.links import OWN_FILE, why_foreign
from hubkernels.hub.benchmarks import plot
from hubkernels.hub.branches import version_of
from hubkernels.hub.card import CARD, PLOT, CardFacts, CardVariant, Parity, parity_in, settle_parity
from hubkernels.hub.card_template import Render, card_of
from hubkernels.hub.changes import RemoteFile, compare
from hubkernels.hub.description import describe, first_paragraph
from hubkernels.hub.offer import Content, Offered
from hubkernels.hub.publish import MAIN, Publication
from hubkernels.hub.read_back import ReadBack
from hubkernels.hub.records import bench_records
from hubkernels.hub.remote import RaceLostError, Remote, start_again
from hubkernels.hub.variant_metadata import VariantMetadata, metadata_of, read_variant
from hubkernels.model.digest import hash_digest
from hubkernels.model.project import Package

CardStatus = Literal["uploaded", "no_changes", "left_to_newer_version", "left_alone"]


@dataclass(frozen=True)
class Sheet:
    """What this machine knows for a card, and how it is written."""

    facts: CardFacts
    write: Render

    def text(self) -> str:
        return self.write(self.facts)


@dataclass(frozen=True)
class Shown:
    """commit: of main, with the card; None where main was left alone."""

    status: CardStatus
    commit: str | None


def prepare_card(package: Package, publication: Publication, repo_id: str) -> Sheet:
    """All of a card but for what the Hub tells. Raises InputError where the template or a record is none.

    Before anything is published: what cannot be written is not found out after that.
    """
    first = publication.variants[0]
    said = describe({path: first.read(path) for path in _python_of(first)})
    facts = CardFacts(
        repo_id,
        "0" * 40,
        publication.branch,
        int(first.metadata["version"]),
        str(first.metadata["license"]),
        said.about or _about_in_readme(package),
        tuple(_variant(VariantMetadata(each.tag, each.metadata), 0) for each in publication.variants),
        said.functions,
        said.layers,
        records=bench_records(package.root, package.name, publication.variants),
        upstream=package.upstream,
        source=package.source,
        has_benchmark="benchmarks/benchmark.py" in publication.more,
    )
    sheet = Sheet(facts, card_of(package))
    sheet.text()
    return sheet


def _about_in_readme(package: Package) -> str:
    """That of a workspace is about all of its packages."""
    readme = package.root / CARD
    if package.home or not readme.is_file():
        return ""
    if why := why_foreign(readme, package.root):
        raise InputError(Problem(f"{CARD} {why}", str(readme), f"{OWN_FILE}; or --no-card"))
    return first_paragraph(readme.read_text(encoding="utf-8", errors="replace"))


def publish_card(
    sheet: Sheet, publication: Publication, remote: Remote, commit: str, loaded: Iterable[ReadBack] = ()
) -> Shown:
    """One commit onto main, or none where the card that is there says the same.

    commit: of the branch. loaded: what was read back of it. A newer version, or a newer commit, leaves the card alone.
    """
    facts = replace(sheet.facts, commit=commit, variants=_variants(remote, commit))
    found = tuple(
        Parity(each.variant, each.digest, each.passed, each.rows, "" if each.worst is None else f"{each.worst:.2g}")
        for each in loaded
        if each.rows
    )
    told = replace(sheet, facts=facts)
    return start_again(lambda: _publish_once(told, publication.branch, remote, found))


def is_front(branch: str, branches: Collection[str]) -> bool:
    """Whether the card is of this branch: of the newest version, or of any where there are no versions."""
    newest = max((found for name in branches if (found := version_of(name)) is not None), default=None)
    return newest is None or branch == f"v{newest}"


def _publish_once(sheet: Sheet, branch: str, remote: Remote, found: tuple[Parity, ...]) -> Shown:
    branches = remote.branches() or {}
    if not is_front(branch, branches):
        return Shown("left_alone" if version_of(branch) is None else "left_to_newer_version", None)
    if branches.get(branch) != sheet.facts.commit:
        return Shown("left_alone", None)
    head = branches.get(MAIN)
    if head is None:
        raise RaceLostError(Problem(f"{remote.repo_id} has no branch {MAIN} for its card", remote.url))
    there = remote.files(head)
    offered = _files(sheet, found, remote.read(head, CARD) if CARD in there else b"")
    changes = compare(offered, there, PLOT.__eq__)
    if not changes:
        return Shown("no_changes", head)
    made = remote.commit(MAIN, head, f"Card of {branch}, at {sheet.facts.commit[:12]}", offered, changes)
    return Shown("uploaded", made.commit)


def _files(sheet: Sheet, found: tuple[Parity, ...], before: bytes) -> Mapping[str, Content]:
    facts = sheet.facts
    parity = settle_parity(found, parity_in(before.decode(errors="replace")), facts.variants)
    text = sheet.write(replace(facts, parity=parity))
    drawn = {PLOT: Content(plot(facts.records).encode())} if PLOT in text else {}
    return {CARD: Content(text.encode()), **drawn}


def _variants(remote: Remote, commit: str) -> tuple[CardVariant, ...]:
    """Every variant of the branch, those that were there before too, as its metadata on the Hub tell."""
    files = remote.files(commit)
    found = (read_variant(path, remote.read(commit, path), remote.url) for path in metadata_of(files))
    return tuple(_variant(each, _size(each.place, files)) for each in found)


def _variant(described: VariantMetadata, size: int) -> CardVariant:
    digest = hash_digest(described.files) if described.files else ""
    sources, backend = described.sources, backend_type(described.metadata)
    return CardVariant(described.tag, backend, size, digest, sources.commit, sources.dirty is True)


def _size(place: str, files: Mapping[str, RemoteFile]) -> int:
    return sum(file.size for path, file in files.items() if path.startswith(f"{place}/"))


def _python_of(offered: Offered) -> Iterator[str]:
    return (name for name in offered.metadata["digest"]["files"] if name.endswith(".py"))
