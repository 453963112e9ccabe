"""A Hub's folder as one file, to be carried to a site without a network.

A tar whose every byte follows from its first member, manifest.json: names, sizes and SHA-256 of the rest, sorted. So
whoever reads it knows each byte that must come, padding and headers too, and any other is refused by name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.host.files import disk_errors, hash_file, place_to_write, read_errors, read_json_object
from hubkernels.hub.local.adopt import look_at, opened, place
from hubkernels.hub.local.hub import Hub, refuse_twins, repo_in, repositories
from hubkernels.hub.local.names import KINDS, RepoId, is_ref
from hubkernels.hub.local.repository import Repository, lay_out
from hubkernels.hub.local.whole import insist_on_large, insist_on_whole

MANIFEST = "manifest.json"
_FORM = 1
_BLOCK, _PIECE = 512, 1 << 20
_MANIFEST_MOST = 1 << 28
_FOR_ITS_OWNER, _AS_THE_UMASK_SAYS = 0o600, 0o666
_HEX = "[0-9a-f]"
_SHA256 = re.compile(rf"{_HEX}{{64}}")
_LARGE = re.compile(rf"lfs/objects/{_HEX}{{2}}/{_HEX}{{2}}/({_HEX}{{64}})")
_PARTS = re.compile(
    rf"hub\.json|packed-refs|lfs/left-out|refs/(heads|tags|pr)/[^\0\\]+|{_LARGE.pattern}"
    rf"|objects/({_HEX}{{2}}/{_HEX}{{38}}|pack/pack-{_HEX}{{40}}\.(pack|idx))"
)
"""What is carried of a repository: neither its config nor hooks, which git would obey."""


_PLACES = ("hub.json", "packed-refs", "objects/??/*", "objects/pack/*", "lfs/left-out", "lfs/objects/??/??/*")
"""Where it is, beside refs. Links are followed, as the server does: an operator may have moved a folder elsewhere."""

_SERVED = (
    "stop it, pack, and start it again; or `kernel-builder hub pull` from it into another folder, what a lock names, "
    "and pack that"
)


def _is_part(path: str) -> bool:
    """Of refs, what is the name of one: a git that was killed leaves its locks beside them."""
    return bool(_PARTS.fullmatch(path)) and (is_ref(path) or not path.startswith("refs/"))


class Member(NamedTuple):
    size: int
    sha256: str


@dataclass(frozen=True)
class Carried:
    """What is in an archive. sha256: of the archive itself."""

    repositories: tuple[str, ...]
    files: int
    sha256: str


def pack(folder: Path, file: Path) -> Carried:
    """Write all repositories of a Hub's folder to one file, which none but its owner may read where one is private.

    Raises EnvironmentLacksError where a server has it, CheckFailedError for a repository that is damaged.
    """
    if not folder.is_dir():
        raise InputError(Problem("there is no such folder", str(folder), "`kernel-builder hub pull` makes one"))
    with disk_errors(file):
        target = place_to_write(file)
    with opened(folder, _SERVED) as hub:
        for place in repositories(folder):
            _check(
                place,
                repo_in(folder, place),
                hub,
                str(place),
                "nothing was packed: delete it and pull it again, or take a copy",
            )
        mode = _FOR_ITS_OWNER if any(map(_is_private, repositories(folder))) else _AS_THE_UMASK_SAYS
        members = {name: Member(path.stat().st_size, hash_file(path)) for name, path in _carried(folder)}
        with disk_errors(file):
            scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
            handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                with os.fdopen(handle, "wb") as archive:
                    _write(archive, folder, members)
                scratch.replace(target)
            except BaseException:
                scratch.unlink(missing_ok=True)
                raise
    return _told(members, hash_file(file))


def _check(place: Path, repo: RepoId, hub: Hub, where: str, hint: str) -> None:
    """Raises CheckFailedError for a repository that is damaged."""
    git = Repository(place, hub.scratch)
    with closing(git.objects):
        insist_on_whole(git, repo, where, hint)
        insist_on_large(git, repo, where, hint)


def _carried(folder: Path) -> Iterator[tuple[str, Path]]:
    for repository in repositories(folder):
        refs = (path for kind in ("heads", "tags", "pr") for path in (repository / "refs" / kind).rglob("*"))
        for path in sorted({*refs, *(path for pattern in _PLACES for path in repository.glob(pattern))}):
            if path.is_file() and _is_part(path.relative_to(repository).as_posix()):
                yield path.relative_to(folder).as_posix(), path


def _write(archive: BinaryIO, folder: Path, members: Mapping[str, Member]) -> None:
    text = _manifest(members)
    archive.write(_header(MANIFEST, len(text)) + text + _padding(len(text)))
    for name in sorted(members):
        archive.write(_header(name, members[name].size))
        with (folder / name).open("rb") as source:
            while piece := source.read(_PIECE):
                archive.write(piece)
        archive.write(_padding(members[name].size))
    archive.write(bytes(2 * _BLOCK))


def _manifest(members: Mapping[str, Member]) -> bytes:
    files = {name: list(members[name]) for name in sorted(members)}
    return json.dumps({"form": _FORM, "files": files}, indent=0).encode()


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def _told(members: Mapping[str, Member], sha256: str) -> Carried:
    names = {"/".join(_place(name)[0]) for name in members}
    return Carried(tuple(sorted(names)), len(members), sha256)


def _place(name: str) -> tuple[RepoId, str]:
    """The repository of a member, and its path there. Raises CheckFailedError for what no archive has."""
    kind, owner, folder, rest = (*name.split("/", 3), "", "", "")[:4]
    repo = RepoId(kind, owner, folder.removesuffix(".git"))
    dotted = any(part in {"", ".", ".."} for part in name.split("/"))
    wrong = dotted or not _has_bytes(name) or not _is_part(rest)
    if kind not in KINDS or not folder.endswith(".git") or wrong:
        raise CheckFailedError(Problem(f"{name!r} is no file of a Hub", MANIFEST))
    return repo, rest


def _has_bytes(name: str) -> bool:
    """Half a character is none that a file can be called."""
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def unpack(file: Path, folder: Path) -> Carried:
    """Take the repositories of an archive into a Hub's folder, after every byte and every object of it was looked at.

    Raises CheckFailedError that names what is damaged, and for branches that would lose commits.
    """
    with read_errors(file):
        opened_archive = file.open("rb")
    with opened_archive as archive, opened(folder) as hub:
        reader = _Reader(archive, str(file))
        members = reader.manifest()
        staged: dict[RepoId, Path] = {}
        for name in sorted(members):
            repo, rest = _place(name)
            if repo not in staged:
                staged[repo] = _stage(hub)
            with disk_errors(folder):
                reader.copy(name, members[name], staged[repo] / rest)
        reader.end()
        for repo, new in staged.items():
            _check(new, repo, hub, str(file), "nothing was unpacked: pack it again from a whole folder")
        refuse_twins(staged, str(file))
        for each in [look_at(hub, repo, new, private=_is_private(new)) for repo, new in staged.items()]:
            place(hub, each)
    return _told(members, reader.sha256)


def _is_private(new: Path) -> bool:
    return read_json_object(new / "hub.json").get("private") is not False


def _stage(hub: Hub) -> Path:
    new = Path(tempfile.mkdtemp(dir=hub.scratch))
    lay_out(new)
    return new


class _Reader:
    """Reads an archive once, from its beginning to its end, and knows what must come."""

    def __init__(self, archive: BinaryIO, where: str) -> None:
        self._archive = archive
        self._where = where
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of what was read so far; of the archive, at its end."""
        return self._digest.hexdigest()

    def _read(self, size: int) -> bytes:
        found = self._archive.read(size)
        self._digest.update(found)
        return found

    def manifest(self) -> dict[str, Member]:
        """What is to come. It has one spelling alone."""
        head = self._read(_BLOCK)
        try:
            size = tarfile.TarInfo.frombuf(head, "utf-8", "strict").size
        except tarfile.HeaderError:
            size = -1
        if not 0 <= size <= _MANIFEST_MOST or head != _header(MANIFEST, size):
            raise self._damaged("its beginning is not that of an archive of kernels")
        text = self._read(size)
        members = _members(text)
        if members is None or _manifest(members) != text:
            raise self._damaged(f"{MANIFEST} is damaged")
        self._expect(_padding(size), f"what follows {MANIFEST}")
        return members

    def copy(self, name: str, member: Member, target: Path) -> None:
        """Bring one file to its place. Raises CheckFailedError where it is not the one that was packed."""
        self._expect(_header(name, member.size), f"the header of {name}")
        digest, left = hashlib.sha256(), member.size
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            while left and (piece := self._read(min(_PIECE, left))):
                left -= len(piece)
                digest.update(piece)
                file.write(piece)
        large = _LARGE.search(name)
        for expected, by in ((member.sha256, MANIFEST), (large[1] if large else member.sha256, "its name")):
            if left or digest.hexdigest() != expected:
                raise self._damaged(f"{name} has {digest.hexdigest()}: {by} has {expected}")
        self._expect(_padding(member.size), f"what follows {name}")

    def end(self) -> None:
        self._expect(bytes(2 * _BLOCK), "its end")
        if self._read(1):
            raise self._damaged("there is more behind its end")

    def _expect(self, expected: bytes, what: str) -> None:
        if self._read(len(expected)) != expected:
            raise self._damaged(f"{what} is damaged")

    def _damaged(self, what: str) -> CheckFailedError:
        return CheckFailedError(Problem(what, self._where, "nothing was unpacked: copy the archive again"))


def _members(text: bytes) -> dict[str, Member] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    files = found.get("files") if isinstance(found, dict) and found.get("form") == _FORM else None
    if not isinstance(files, dict) or not all(map(_is_member, files.values())):
        return None
    return {name: Member(*entry) for name, entry in files.items()}


def _is_member(found: object) -> bool:
    if not isinstance(found, list) or len(found) != len(Member._fields):
        return False
    size, sha256 = found
    return type(size) is int and size >= 0 and isinstance(sha256, str) and bool(_SHA256.fullmatch(sha256))
