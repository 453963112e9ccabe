"""One package on its way: sent, loaded back, shown on the card. Each step makes a new value of what was done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hubkernels.hub.order import Order
from hubkernels.hub.publish import Published, preview, publish
from hubkernels.hub.read_back import ReadBack, read_back
from hubkernels.hub.show import Shown, publish_card


@dataclass(frozen=True)
class Delivery:
    """What was done of an order so far. None: not, or not yet."""

    order: Order
    published: Published
    read_back: tuple[ReadBack, ...] | None = None
    card: Shown | None = None

    def to_json(self) -> dict[str, Any]:
        shown = self.card
        value = {**self.published.to_json(), "card_commit": shown.commit if shown else None}
        if self.read_back is not None:
            value["read_back"] = [each.to_json() for each in self.read_back]
        if shown is not None:
            value["card"] = shown.status
        return value


def deliver(order: Order) -> Iterator[Delivery]:
    """All steps of its course, told as each is done."""
    done = send(order)
    yield done
    if order.course.dry_run or done.published.commit is None:
        return
    if order.course.read_back:
        done = load_back(done)
        yield done
    if order.card is not None:
        yield show_card(done)


def send(order: Order) -> Delivery:
    """In a dry run, what would be sent."""
    step = preview if order.course.dry_run else publish
    return Delivery(order, step(order.publication, order.remote))


def load_back(done: Delivery) -> Delivery:
    order, commit = done.order, done.published.commit or ""
    loaded = read_back(order.builder, order.package, order.publication, order.remote, commit)
    return replace(done, read_back=loaded)


def show_card(done: Delivery) -> Delivery:
    """Of an order without a card, nothing."""
    order, commit = done.order, done.published.commit or ""
    if order.card is None:
        return done
    return replace(done, card=publish_card(order.card, order.publication, order.remote, commit, done.read_back or ()))
