"""What a release tells while it goes on, and what is known of it in the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from hubkernels.errors import HubkernelsError, Problem
from hubkernels.hub.deliver import Delivery

BUILD, PUBLISH, READ_BACK, CARD, LOCK = "build", "publish", "read back", "card", "lock"
"""The steps that are no gates."""


class Step(NamedTuple):
    """One step of one package. state: of what was done, or `run` and `done` in a plan. why: for it, in words."""

    step: str
    package: str
    state: str
    why: str


class Taken(NamedTuple):
    """Steps that were just taken. delivery: how far its package is by now, where they were about that."""

    steps: tuple[Step, ...]
    warnings: tuple[Problem, ...] = ()
    delivery: Delivery | None = None


class Stop(NamedTuple):
    """Where it ended. repeat: the verb, and its words, that does just this step."""

    step: str
    packages: tuple[str, ...]
    repeat: str
    problems: tuple[Problem, ...]
    code: int


Event = Taken | Stop


class StoppedError(Exception):
    """What a step raises; it never leaves this room."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.step)
        self.stop = stop


@contextmanager
def stopping_at(step: str, packages: tuple[str, ...], repeat: str) -> Iterator[None]:
    """Around what a step does: its errors end the release there."""
    try:
        yield
    except HubkernelsError as error:
        raise StoppedError(Stop(step, packages, repeat, error.problems, error.exit_code)) from error


@dataclass(frozen=True)
class Ended:
    """A whole run. stop: None where it came to its end. deliveries: of each package that was sent, the last."""

    steps: tuple[Step, ...]
    warnings: tuple[Problem, ...]
    deliveries: tuple[Delivery, ...]
    stop: Stop | None


def gather(events: Iterable[Event]) -> Ended:
    told = tuple(events)
    taken = [event for event in told if isinstance(event, Taken)]
    sent = {each.delivery.order.package.name: each.delivery for each in taken if each.delivery}
    return Ended(
        tuple(step for each in taken for step in each.steps),
        tuple(dict.fromkeys(warning for each in taken for warning in each.warnings)),
        tuple(sent.values()),
        next((event for event in told if isinstance(event, Stop)), None),
    )
