"""All that there is to publish of one package, looked at, and asked of the Hub, before anything of any is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hubkernels.build.pipeline import Builder
from hubkernels.errors import (
    CheckFailedError,
    EnvironmentLacksError,
    HubkernelsError,
    HubRefusedError,
    Problem,
    combined,
    gathered,
)
from hubkernels.host.git import git_state, why_no_state
from hubkernels.hub.prepare import Wishes, prepare, refuse_shared_repository, repository_of
from hubkernels.hub.publish import Publication, or_proposed, preview
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
    """card: None for none. lacking: in a dry run, why the Hub would not take it from who asks."""

    builder: Builder
    package: Package
    course: Course
    publication: Publication
    remote: Remote
    card: Sheet | None
    lacking: tuple[Problem, ...] = ()


def make_orders(builder: Builder, packages: Iterable[Package], wishes: Wishes, course: Course) -> tuple[Order, ...]:
    """Sends nothing. Raises whatever there is against any of these, here or on the Hub by now, of all at once."""
    chosen = tuple(packages)
    refuse_shared_repository(chosen, wishes)
    return gathered(lambda package: _make(builder, package, wishes, course), chosen)


def warnings(orders: Iterable[Order]) -> tuple[Problem, ...]:
    """What is no reason to send none of them."""
    told = tuple(orders)
    return (*_untraced(told), *(problem for each in told for problem in each.lacking))


def _untraced(orders: Iterable[Order]) -> tuple[Problem, ...]:
    """One for all of them, where it is known of no commit what was built of it."""
    found = tuple(each for each in orders if not all(variant.traced for variant in each.publication.variants))
    if not found:
        return ()
    names = ", ".join(each.package.name for each in found)
    what = f"no git commit is known for the sources of {names}: `verify` cannot build again what is published"
    root, environment = found[0].builder.project.root, found[0].builder.environment
    if why := why_no_state(root, environment):
        return (Problem(f"{what}; {why.what}", why.where, why.hint),)
    return (Problem(what, str(root), "commit the sources to git and build again, then publish"),)


def _refuse_unknown(builder: Builder, package: Package, wishes: Wishes, publication: Publication) -> None:
    """Of what was built in a checkout whose git failed nobody knows whether it is committed.

    Raises EnvironmentLacksError where git fails still, CheckFailedError where it can be asked by now.
    """
    unknown = [each.tag for each in publication.variants if not each.traced]
    if wishes.allow_dirty or not unknown:
        return
    anyway = "and build again, or publish it all the same with --allow-dirty"
    if why := why_no_state(package.root, builder.environment):
        raise EnvironmentLacksError(Problem(why.what, why.where, f"{why.hint}, {anyway}"))
    if git_state(package.root, builder.environment) is not None:
        what = f"it is not known whether the files are committed that were built: {', '.join(unknown)}"
        raise CheckFailedError(Problem(what, str(package.root), f"look at `git status` {anyway}"))


def _refuse(against: tuple[Problem, ...]) -> None:
    if against:
        raise CheckFailedError(*against)


def _insist_on_right(remote: Remote) -> None:
    with or_proposed():
        remote.insist_on_right()


def _ask(package: Package, wishes: Wishes, course: Course, publication: Publication) -> tuple[Problem, ...]:
    """Of a Hub that answers, whatever it has against it. A dry run needs no right to write: why it lacks is told."""
    remote = _remote_of(package, wishes)
    lacking = () if publication.as_pull_request else _refusals(partial(_insist_on_right, remote))
    refused = _refusals(partial(preview, publication, remote))
    if refused or (lacking and not course.dry_run):
        raise combined((*lacking, *refused))
    problems = (problem for error in lacking for problem in error.problems)
    return tuple(replace(problem, what=f"publishing would fail: {problem.what}") for problem in problems)


def _refusals(ask: Callable[[], object]) -> tuple[HubkernelsError, ...]:
    try:
        ask()
    except (CheckFailedError, HubRefusedError) as error:
        return (error,)
    return ()


def _card_of(package: Package, wishes: Wishes, course: Course, publication: Publication) -> Sheet | None:
    """A proposal is on no branch yet, and the card tells of what is."""
    has_card = course.with_card and not publication.as_pull_request
    return prepare_card(package, publication, repository_of(package, wishes)) if has_card else None


def _remote_of(package: Package, wishes: Wishes) -> Remote:
    return Remote(repository_of(package, wishes), wishes.repo_type)


def _make(builder: Builder, package: Package, wishes: Wishes, course: Course) -> Order:
    publication, against = prepare(builder, package, wishes)
    looks: tuple[Callable[[], Any], ...] = (
        partial(_refuse, against),
        partial(_refuse_unknown, builder, package, wishes, publication),
        partial(_ask, package, wishes, course, publication),
        partial(_card_of, package, wishes, course, publication),
    )
    *_, lacking, card = gathered(lambda look: look(), looks)
    return Order(builder, package, course, publication, _remote_of(package, wishes), card, lacking)
