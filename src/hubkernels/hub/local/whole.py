"""Whether a repository is whole: each object is what its name says, and nothing that a ref leads to is missing.

Nor does a folder in it have what no client may send, whose name would lead out of the folder of who takes it.

Who carries a repository elsewhere asks before: damage would go along, and be found by whoever reads the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path

from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.objects import S_ISGITLINK, Commit, ShaFile, Tag, Tree
from dulwich.pack import Pack

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.host.files import hash_file, open_regular
from hubkernels.hub.local.content import Pointer
from hubkernels.hub.local.describe import pointer_of
from hubkernels.hub.local.kinds import out_of_place
from hubkernels.hub.local.names import RepoId, against_entry
from hubkernels.hub.local.objects import DamagedObjectError
from hubkernels.hub.local.packs import inflate
from hubkernels.hub.local.refs import KINDS
from hubkernels.hub.local.repository import MAIN, Repository
from hubkernels.hub.local.tree import FILE, FOLDER, MODES, Entry, all_entries

_TOLD = 10
_HEX = "[0-9a-f]"
_INDEXES = f"objects/pack/pack-{40 * _HEX}.idx"
Kinds = dict[str, str]
"""What each object that was found good is, by its id."""


def insist_on_whole(git: Repository, repo: RepoId, where: str, hint: str) -> None:
    """Raises CheckFailedError that names the repository and what is damaged, the first few of it."""
    if wrong := tuple(islice(_damage(git), _TOLD)):
        raise CheckFailedError(*(Problem(f"{repo} is damaged: {what}", where, hint) for what in wrong))


def insist_on_large(git: Repository, repo: RepoId, where: str, hint: str) -> None:
    """The same for what is left of large files that a ref leads to, but for those that were left out.

    It was looked at before, by `insist_on_whole`.
    """
    allowed = git.content.left_out()
    lost = dict.fromkeys(pointer.oid for pointer in lacking(git) if pointer.oid not in allowed)
    if lost:
        files = (str(git.content.path(oid).relative_to(git.folder)) for oid in islice(lost, _TOLD))
        what = f"{repo} is damaged: {{}}, the content of a large file, is missing, or has another size"
        raise CheckFailedError(*(Problem(what.format(file), where, hint) for file in files))


def lacking(git: Repository) -> Iterator[Pointer]:
    """The large files that a ref leads to, and whose content is not here."""
    seen: set[str] = set()
    following = [(oid, git.objects.kind(oid)) for prefix in KINDS for oid in git.refs.below(prefix).values()]
    while following:
        oid, kind = following.pop()
        if oid in seen:
            continue
        seen.add(oid)
        if kind != "blob":
            following += _below(git.objects[oid])
        elif (pointer := pointer_of(git, oid, git.objects.blob(oid).size)) and not git.content.has(pointer):
            yield pointer


def _damage(git: Repository) -> Iterator[str]:
    """What is of another kind, for nothing is read then; else what is not as its name says.

    Where all is, what no folder may have; where none has, what is missing.
    """
    if placed := [f"{path.relative_to(git.folder)} {what}" for path, what in out_of_place(git.folder)]:
        yield from placed
        return
    kinds: Kinds = {}
    wrong = [*git.refs.damaged(), *_unreadable(git.folder, kinds)]
    wrong = wrong or list(islice(_strange(git, kinds), _TOLD))
    yield from wrong or _missing(git, kinds)


def _unreadable(folder: Path, kinds: Kinds) -> Iterator[str]:
    for pattern, read in _STORES.items():
        for path in sorted(folder.glob(pattern)):
            found = _read(read, path)
            if found is None:
                yield f"{path.relative_to(folder)} is not what its hash says"
            kinds |= found or {}


def damaged_packs(folder: Path) -> Iterator[Path]:
    """Those of a repository of which an object is not as its name says."""
    return (path.with_suffix(".pack") for path in sorted(folder.glob(_INDEXES)) if _read(_packed, path) is None)


def _read(read: Callable[[Path], Kinds], path: Path) -> Kinds | None:
    """None for what is damaged."""
    try:
        return read(path)
    except Exception:  # noqa: BLE001 - dulwich raises whatever flipped bytes lead it to
        return None


def _loose(path: Path) -> Kinds:
    """Read in pieces: it may be large."""
    digest, oid = hashlib.sha1(usedforsecurity=False), path.parent.name + path.name
    with open_regular(path) as file:
        pieces = inflate(file)
        first = next(pieces)
        digest.update(first)
        size = len(first)
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
    head = first.partition(b"\0")[0]
    kind, told = head.split()
    if digest.hexdigest() != oid or int(told) != size - len(head) - 1:
        raise ValueError(oid)
    return {oid: kind.decode()}


def _packed(index: Path) -> Kinds:
    """Each object is read: the checksum of a pack is no word on the names that its index has for them."""
    found = {}
    with closing(Pack(str(index.with_suffix("")), object_format=DEFAULT_OBJECT_FORMAT)) as pack:
        pack.index.check()
        pack.data.check()
        for oid in pack:
            number, text = pack.get_raw(oid)
            found[oid.decode()] = ShaFile.from_raw_string(number, text, verify_sha=oid).type_name.decode()
    return found


def _large(path: Path) -> Kinds:
    if hash_file(path) != path.name:
        raise ValueError(path.name)
    return {}


_STORES: Mapping[str, Callable[[Path], Kinds]] = {
    f"objects/{2 * _HEX}/{38 * _HEX}": _loose,
    _INDEXES: _packed,
    f"lfs/objects/{2 * _HEX}/{2 * _HEX}/{64 * _HEX}": _large,
}
"""What is carried and named by its content. Other files are remains of a git that was killed, which no reader sees."""


def _strange(git: Repository, kinds: Kinds) -> Iterator[str]:
    """Of every folder, also of one that no ref leads to: a client may ask for a commit by its id."""
    for oid in sorted(oid for oid, kind in kinds.items() if kind == "tree"):
        try:
            found = all_entries(git.objects, oid)
        except DamagedObjectError:
            yield f"its folder {oid} is none that git reads"
            continue
        for entry in found:
            if reason := _against(entry):
                yield f"its folder {oid} has {entry.path[:80]!r}: {reason}"


def _against(entry: Entry) -> str | None:
    if entry.mode not in MODES:
        return f"its mode is {entry.mode:o}, which git gives to nothing"
    if (entry.path, entry.mode) == (".gitmodules", FILE):  # of submodules, which stay
        return None
    return against_entry(entry.path)


def _missing(git: Repository, kinds: Kinds) -> Iterator[str]:
    """What refs lead to and no object is; and main, which clients ask for by default and nobody can delete."""
    seen: set[str] = set()
    if git.refs.get(MAIN) is None:
        yield "it has no branch main"
    for prefix in KINDS:
        for name, oid in git.refs.below(prefix).items():
            if prefix != "refs/tags/" and kinds.get(oid) != "commit":
                yield f"{prefix}{name} names {oid}, which is no commit here"
            else:
                yield from _missing_below(git, kinds, oid, seen, f"{prefix}{name}")


def _missing_below(git: Repository, kinds: Kinds, start: str, seen: set[str], name: str) -> Iterator[str]:
    following = [(start, kinds.get(start, "object"))]
    while following:
        oid, kind = following.pop()
        if kinds.get(oid) != kind:
            yield f"{name} needs the {kind} {oid}, which is not here"
        elif oid not in seen and kind != "blob":
            following += _below(git.objects[oid])
        seen.add(oid)


def _below(found: ShaFile) -> Iterable[tuple[str, str]]:
    """The objects that one names, and what each of them is."""
    if isinstance(found, Tree):
        for item in found.items():
            if not S_ISGITLINK(item.mode):
                yield item.sha.decode(), "tree" if item.mode == FOLDER else "blob"
    elif isinstance(found, Commit):
        yield found.tree.decode(), "tree"
        yield from ((parent.decode(), "commit") for parent in found.parents)
    elif isinstance(found, Tag):
        yield found.object[1].decode(), found.object[0].type_name.decode()
