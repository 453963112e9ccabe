"""The record of one benchmark cell: JSON, one file each; docs/records.md explains every field."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from hubkernels.errors import InputError, Problem

SCHEMA = 1


@dataclass(frozen=True)
class Timing:
    """Wall time of one call. spread_us: first and third quartile. runs: calls timed."""

    median_us: float
    best_us: float
    spread_us: tuple[float, float]
    runs: int


@dataclass(frozen=True)
class PeerResult:
    """Another implementation, timed in the same run. ratio: our median over this one; below 1, ours is faster.

    error: relative error norm against float64.
    """

    name: str
    time: Timing
    error: float
    ratio: float


@dataclass(frozen=True)
class FailedPeer:
    """A peer that could not be timed, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Machine:
    """isa: tier forced by HUBKERNELS_ISA, None for the best one. allocator: what was set about malloc, or "default"."""

    cpu: str
    cores: int
    isa: str | None
    allocator: str


@dataclass(frozen=True)
class Versions:
    """compiler: of the artifact, from its build.json; None where that is missing."""

    python: str
    torch: str
    kernels: str
    hubkernels: str
    compiler: str | None


@dataclass(frozen=True)
class Git:
    """State of the project's repository. dirty: tracked or new files differ from the commit."""

    commit: str
    dirty: bool


@dataclass(frozen=True)
class Record:
    """One op, dtype, shape and direction ("fwd" or "f+b") on one machine.

    preemptions: how often the system took a core away while this was timed.
    """

    op: str
    package: str
    variant: str
    artifact: str
    digest: str
    dtype: str
    shape_name: str
    shape: tuple[int, ...]
    direction: str
    machine: Machine
    versions: Versions
    git: Git | None
    threads: int
    time: Timing
    bytes: int
    share_of_copy: float
    copy_gb_s: float
    error: float
    peers: tuple[PeerResult, ...]
    failed_peers: tuple[FailedPeer, ...]
    cache: str
    preemptions: int
    page_faults: str
    date: str

    def to_json(self) -> dict[str, Any]:
        """The JSON form: the timing is flat, since a reader wants ``median_us`` first of all."""
        fields = _flat(asdict(self))
        return {"schema": SCHEMA, **fields, "peers": [_flat(peer) for peer in fields["peers"]]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str | None = None) -> Record:
        """Read the JSON form, which may come from elsewhere.

        Raises InputError for another schema version, and for fields missing, unknown or of another type.
        """
        if data.get("schema") != SCHEMA:
            hint = f"this hubkernels reads schema {SCHEMA}; a newer one may read it, or measure again"
            raise InputError(Problem(f"record schema {data.get('schema')!r} is unknown", where, hint))
        try:
            return cls._read({key: value for key, value in data.items() if key != "schema"})
        except (KeyError, TypeError) as error:
            raise InputError(
                Problem(f"not a record of schema {SCHEMA}: {error}", where, "see docs/records.md")
            ) from error

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Record:
        parts = {
            "shape": tuple(data["shape"]),
            "machine": Machine(**data["machine"]),
            "versions": Versions(**data["versions"]),
            "git": None if data["git"] is None else Git(**data["git"]),
            "peers": tuple(PeerResult(**_nested(peer)) for peer in data["peers"]),
            "failed_peers": tuple(FailedPeer(**peer) for peer in data["failed_peers"]),
        }
        found = cls(**_nested({**data, **parts}))
        _insist_on_types(found)
        return found

    @property
    def file_name(self) -> str:
        """One name a cell and way of running it: a second run on the same machine replaces the first."""
        shape = "x".join(map(str, self.shape))
        ways = (f"t{self.threads}", self.page_faults.replace(" ", "-"), self.machine.isa)
        cell = (self.package, self.op, self.dtype, shape, self.direction)
        return "-".join((*cell, *(way for way in ways if way))) + ".json"

    def text(self) -> str:
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"


_TIMING = ("median_us", "best_us", "spread_us", "runs")


def _insist_on_types(part: object) -> None:
    """Raises TypeError that names the first field of a record, or of a part of it, that is not as declared."""
    for name, declared in get_type_hints(type(part)).items():
        value = getattr(part, name)
        if not _is(value, declared):
            raise TypeError(f"{name} is {str(value)[:80]!r}, and no {_WORDS.get(declared, 'such part')}")


_WORDS: Mapping[object, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def _is(value: Any, declared: Any) -> bool:  # noqa: ANN401 - any JSON, and a type as it was declared
    if declared in {str, int, bool}:
        return type(value) is declared
    if declared is float:
        return type(value) in {int, float} and abs(value) <= sys.float_info.max
    of = get_args(declared)
    if get_origin(declared) is tuple:
        wanted = of[:1] * len(value) if of[1:] == (...,) else of
        return len(value) == len(wanted) and all(map(_is, value, wanted))
    if of:  # one of several
        return any(_is(value, each) for each in of)
    if not isinstance(value, declared):
        return False
    if is_dataclass(value):
        _insist_on_types(value)
    return True


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key, value in fields.items():
        whole.update(value if key == "time" else {key: value})
    return whole


def _nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    timing = {name: fields[name] for name in _TIMING}
    rest = {key: value for key, value in fields.items() if key not in _TIMING}
    return {**rest, "time": Timing(**{**timing, "spread_us": tuple(timing["spread_us"])})}
