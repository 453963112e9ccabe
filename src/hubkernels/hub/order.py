"""All that there is to publish of one package, looked at before anything of any package is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hubkernels.build.pipeline import Builder
from hubkernels.hub.prepare import Wishes, prepare, repository_of
from hubkernels.hub.publish import Publication
from hubkernels.hub.remote import Remote
from hubkernels.hub.show import Sheet, prepare_card
from hubkernels.model.project import Package


@dataclass(frozen=True)
class Order:
    """card: None for none."""

    builder: Builder
    package: Package
    wishes: Wishes
    publication: Publication
    remote: Remote
    card: Sheet | None


def make_orders(builder: Builder, packages: Iterable[Package], wishes: Wishes) -> tuple[Order, ...]:
    """Raises whatever there is against publishing the first package that has something against it."""
    return tuple(_make(builder, package, wishes) for package in packages)


def _make(builder: Builder, package: Package, wishes: Wishes) -> Order:
    publication = prepare(builder, package, wishes)
    remote = Remote(repository_of(package, wishes), wishes.repo_type)
    card = prepare_card(package, publication, remote.repo_id) if wishes.has_card else None
    return Order(builder, package, wishes, publication, remote, card)
