"""All that there is to publish of one package, looked at, and asked of the Hub, before anything of any is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hubkernels.build.pipeline import Builder
from hubkernels.errors import CheckFailedError, EnvironmentLacksError, Problem, gathered
from hubkernels.host.git import git_state, why_no_state
from hubkernels.hub.prepare import Wishes, prepare, refuse_shared_repository, repository_of
from hubkernels.hub.publish import Publication, preview
from hubkernels.hub.remote import Remote
from hubkernels.hub.show import Sheet, prepare_card
from hubkernels.model.project import Package


@dataclass(frozen=True)
class Course:
    """Which steps are taken. read_back: what was published is loaded. with_card: the card tells of it."""

    dry_run: bool = False
    read_back: bool = True
    with_card: bool = True


@dataclass(frozen=True)
class Order:
    """card: None for none."""

    builder: Builder
    package: Package
    course: Course
    publication: Publication
    remote: Remote
    card: Sheet | None


def make_orders(builder: Builder, packages: Iterable[Package], wishes: Wishes, course: Course) -> tuple[Order, ...]:
    """Asks no Hub. Raises whatever there is against publishing any of these, of all at once."""
    chosen = tuple(packages)
    refuse_shared_repository(chosen, wishes)
    return gathered(lambda package: _make(builder, package, wishes, course), chosen)


def ask_ahead(orders: Iterable[Order]) -> None:
    """Raises whatever the Hub has against any of these by now, of all at once. Sends nothing."""
    gathered(_ask, orders)


def untraced(orders: Iterable[Order]) -> tuple[Problem, ...]:
    """A warning, one for all of them, where it is known of no commit what was built of it."""
    found = tuple(each for each in orders if not all(variant.traced for variant in each.publication.variants))
    if not found:
        return ()
    names = ", ".join(each.package.name for each in found)
    what = f"no git commit is known for the sources of {names}: `verify` cannot build again what is published"
    root, environment = found[0].builder.project.root, found[0].builder.environment
    if why := why_no_state(root, environment):
        return (Problem(f"{what}; {why.what}", why.where, why.hint),)
    return (Problem(what, str(root), "commit the sources to git and build again, then publish"),)


def _refuse_unknown(builder: Builder, package: Package, publication: Publication) -> None:
    """Of what was built in a checkout whose git failed nobody knows whether it is committed.

    Raises EnvironmentLacksError where git fails still, CheckFailedError where it can be asked by now.
    """
    unknown = [each.tag for each in publication.variants if not each.traced]
    if not unknown:
        return
    anyway = "and build again, or publish it all the same with --allow-dirty"
    if why := why_no_state(package.root, builder.environment):
        raise EnvironmentLacksError(Problem(why.what, why.where, f"{why.hint}, {anyway}"))
    if git_state(package.root, builder.environment) is not None:
        what = f"it is not known whether the files are committed that were built: {', '.join(unknown)}"
        raise CheckFailedError(Problem(what, str(package.root), f"look at `git status` {anyway}"))


def _ask(order: Order) -> None:
    if not (order.course.dry_run or order.publication.as_pull_request):
        order.remote.insist_on_right()
    preview(order.publication, order.remote)


def _make(builder: Builder, package: Package, wishes: Wishes, course: Course) -> Order:
    """A proposal is on no branch yet, and the card tells of what is."""
    publication = prepare(builder, package, wishes)
    if not wishes.allow_dirty:
        _refuse_unknown(builder, package, publication)
    remote = Remote(repository_of(package, wishes), wishes.repo_type)
    has_card = course.with_card and not publication.as_pull_request
    card = prepare_card(package, publication, remote.repo_id) if has_card else None
    return Order(builder, package, course, publication, remote, card)
