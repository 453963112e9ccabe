"""Records of what was measured of an artifact: beside it on this machine, in ``records/<variant>/`` on its branch.

They name the digest that they belong to and are no part of it: what is measured later changes no artifact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hubkernels import __version__
from hubkernels.bench.record import Record
from hubkernels.errors import InputError
from hubkernels.host.cpu import cpu_model
from hubkernels.host.files import json_object, read_json_object, read_regular, write_atomically
from hubkernels.hub.offer import Content, Offered
from hubkernels.model.artifact import records_of
from hubkernels.model.digest import digest_folder, hash_digest

RECORDS = "records"
"""The folder of a repository whose folders have the records of a variant each."""

PARITY, BENCH = "parity.json", "bench.json"
_LISTS = {PARITY: "rows", BENCH: "records"}
"""What each kind of record is a list of."""

SCHEMA = 1


@dataclass(frozen=True)
class FoundParity:
    """What `check parity` found of an artifact once. passed, rows: tensors compared. cpu: of the machine."""

    passed: int
    rows: int
    cpu: str | None

    def __str__(self) -> str:
        where = f" on {self.cpu}" if self.cpu else ""
        return f"parity {self.passed} of {self.rows}{where}"


def digest_of(offered: Offered) -> str:
    return hash_digest(offered.metadata["digest"]["files"])


def digest_in(folder: Path) -> str:
    """Of an artifact as it is now: to be asked before it is measured, so that a record is of what was measured."""
    return hash_digest(digest_folder(folder))


def write_parity(folder: Path, digest: str, found: Mapping[str, Any]) -> None:
    """Beside an artifact, what `check parity` found of it. Without a date: the same figures, the same bytes.

    digest: before it was compared. Where it is another by now, nothing is written: who knows which one was compared.
    """
    facts = {"package": found["package"], "variant": found["variant"], "artifact": found["id"]}
    versions = {"hubkernels": __version__, **{name: installed(name) for name in ("torch", "kernels")}}
    figures = {"machine": {"cpu": cpu_model()}, "versions": versions, "rows": found["rows"]}
    _write(folder, PARITY, digest, facts | figures)


def write_bench(folder: Path, digest: str, records: Iterable[Record]) -> None:
    """As `write_parity`. digest: before it was timed."""
    _write(folder, BENCH, digest, {"records": [record.to_json() for record in records]})


def _write(folder: Path, name: str, digest: str, facts: Mapping[str, Any]) -> None:
    if digest_in(folder) != digest:
        return
    value = {"schema": SCHEMA, "digest": digest, **facts}
    records_of(folder).mkdir(exist_ok=True)
    write_atomically(records_of(folder) / name, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def installed(name: str) -> str | None:
    """The version of a package here, not imported for that."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def records_beside(offered: Offered) -> dict[str, bytes]:
    """The records of just these bytes, by name; each is read once, so that what is sent is what was looked at."""
    found = {name: _read(records_of(offered.folder) / name) for name in (PARITY, BENCH)}
    return {
        name: content
        for name, content in found.items()
        if belongs_to(content, digest_of(offered)) and isinstance(json_object(content).get(_LISTS[name]), list)
    }


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError:
        return b""


def records_to_send(variants: Iterable[Offered]) -> dict[str, Content]:
    """By their path in the repository."""
    return {
        f"{RECORDS}/{each.tag}/{name}": Content(content)
        for each in variants
        for name, content in records_beside(each).items()
    }


def read_parity(record: Path, files: Mapping[str, str]) -> FoundParity | None:
    """None where there is no record of an artifact with these files, by its digest.

    Whoever published the artifact wrote it: it is told like a licence, and vouches for nothing.
    """
    found = json_object(_read(record))
    rows = found.get("rows")
    if not (_is_of(files, found) and isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        return None
    machine = found.get("machine")
    cpu = machine.get("cpu") if isinstance(machine, dict) else None
    return FoundParity(sum(row.get("ok") is True for row in rows), len(rows), cpu if isinstance(cpu, str) else None)


def _is_of(files: Mapping[str, str], record: Mapping[str, Any]) -> bool:
    try:
        return record.get("digest") == hash_digest(files)
    except UnicodeError:  # JSON may name a file as no text can
        return False


def belongs_to(content: bytes, digest: str) -> bool:
    """Whether a record is one of these bytes; what is no record is not."""
    return json_object(content).get("digest") == digest


def bench_records(root: Path, package: str, variants: Iterable[Offered]) -> tuple[Record, ...]:
    """The benchmark records of a package: those of its artifacts, else those of the project in ``bench/records``."""
    found = {record.file_name: record for record in _of_project(root / "bench/records") if record.package == package}
    found |= {record.file_name: record for each in variants for record in _of_artifact(each)}
    return tuple(found[name] for name in sorted(found))


def _of_project(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.glob("*.json")):
        yield Record.from_json(read_json_object(path), str(path))


def _of_artifact(offered: Offered) -> Iterator[Record]:
    path = records_of(offered.folder) / BENCH
    listed = json_object(records_beside(offered).get(BENCH, b"")).get("records")
    for value in listed if isinstance(listed, list) else ():
        if not isinstance(value, dict):
            raise InputError(f"{path} has what is no record")
        yield Record.from_json(value, str(path))
