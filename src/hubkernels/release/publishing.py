"""The end of a release: what has passed every gate is published, read back, shown and locked."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from hubkernels.check.verdict import Subject
from hubkernels.errors import CheckFailedError, Problem
from hubkernels.hub.deliver import Delivery, load_back, send, show_card
from hubkernels.hub.lock import lock
from hubkernels.hub.lock_files import write_lock
from hubkernels.hub.order import Order, warnings
from hubkernels.model.lock import LOCK as LOCK_FILE
from hubkernels.model.project import KernelDependency
from hubkernels.release.gates import cases
from hubkernels.release.passed import Artifacts, artifacts_in, artifacts_of, key_of
from hubkernels.release.release import Release
from hubkernels.release.steps import CARD, LOCK, PUBLISH, READ_BACK, Step, Taken, stopping_at


def publish(release: Release) -> Iterator[Taken]:
    """What there is against any package is found out before the first one is sent."""
    with stopping_at(PUBLISH, tuple(each.name for each in release.built), release.repeat_all()):
        orders = _orders(release)
    if found := warnings(orders):
        yield Taken((), found)
    done = []
    for order in orders:
        delivery = yield from _deliver(release, order)
        done.append(delivery)
    if not release.course.dry_run:
        yield _lock(release, done)


def _orders(release: Release) -> tuple[Order, ...]:
    """Another build may have been at work meanwhile: what is offered has passed every gate, these very bytes.

    That they are sent, and no others, is for who sends them: each file is held against the digest that is offered.
    """
    subjects = release.subjects()
    _refuse_unpassed(release, [(each, artifacts_in(each.folder)) for each in subjects])
    orders = release.orders(subjects)
    offered = [artifacts_of(order.publication.variants) for order in orders]
    _refuse_unpassed(release, list(zip(subjects, offered, strict=True)))
    return orders


def _refuse_unpassed(release: Release, found: Sequence[tuple[Subject, Artifacts]]) -> None:
    changed = [
        Problem(f"{subject.package.name} was changed while it was released: {gate.name} has not seen it as it is now")
        for subject, artifacts in found
        for gate in release.gates
        if (key := release.key(gate, subject, artifacts)) and release.why(gate, subject.package.name, key)
    ]
    if changed:
        raise CheckFailedError(*changed)


def _deliver(release: Release, order: Order) -> Generator[Taken, None, Delivery]:
    name = order.package.name
    with stopping_at(PUBLISH, (name,), release.repeat_publish(name)):
        done = send(order)
    yield Taken((Step(PUBLISH, name, "ok", done.published.status),), delivery=done)
    if release.course.dry_run:
        return done
    with stopping_at(READ_BACK, (name,), release.repeat_publish(name)):
        key = _key_of_reading(release, done)
        again = release.passed.why_again(READ_BACK, name, key)
        done = load_back(done) if again else done
    yield _told_back(done)
    if order.card is not None:
        with stopping_at(CARD, (name,), release.repeat_publish(name)):
            done = show_card(done)
        yield Taken((Step(CARD, name, "ok", done.card.status if done.card else ""),), delivery=done)
    release.passed.note(READ_BACK, name, key)  # with the card, which has its figures
    return done


def _told_back(done: Delivery) -> Taken:
    name = done.order.package.name
    if done.read_back is None:
        return Taken((Step(READ_BACK, name, "done", "at just this commit, by an earlier run"),))
    count = f"{len(done.read_back)} of {len(done.order.publication.variants)} variants"
    return Taken((Step(READ_BACK, name, "ok", count),), delivery=done)


def _key_of_reading(release: Release, done: Delivery) -> str:
    order = done.order
    at = {"url": order.remote.url, "commit": done.published.commit, "card": order.card is not None}
    facts = {**cases(release.subject(order.package)), **at}
    return key_of(artifacts_of(order.publication.variants), facts)


def _lock(release: Release, done: Sequence[Delivery]) -> Taken:
    """What was released, and all that it depends on, pinned for who loads it."""
    published = [each.published for each in done]
    ours = [KernelDependency(each.repo_id, revision=each.commit) for each in published]
    file = release.builder.places.build / LOCK_FILE
    pins = [f"{each.repo_id}@{each.commit}" for each in published]
    names = tuple(each.order.package.name for each in done)
    with stopping_at(LOCK, names, release.repeat_lock(pins, file)):
        write_lock(file, lock(ours, release.remote_of, {*release.trust, *(each.repo_id for each in ours)}))
    return Taken((Step(LOCK, ", ".join(names), "ok", str(file)),))
