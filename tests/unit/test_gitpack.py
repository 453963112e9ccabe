"""Reading packs: those that git and dulwich make, with deltas of both kinds, and those that nobody should send."""

from __future__ import annotations

import hashlib
import random
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubkernels.runtime.gitpack import (
    Bounds,
    Object,
    PackError,
    object_id,
    pack_objects,
    read_pack,
    unpack_objects,
)
from hubkernels.runtime.pktline import LineError, NoPackError, ask_for, frames, line, pack_of

TEXT = b"".join(b"line %d of a file\n" % number for number in range(400))


def git(folder: Path, *words: str, given: bytes = b"") -> bytes:
    return subprocess.run(["git", "-C", str(folder), *words], input=given, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifteen commits that change a file, so that git stores most of them as deltas, one on another."""
    folder = tmp_path_factory.mktemp("history")
    git(folder, "init", "-q")
    chance = random.Random(5)  # noqa: S311 - any numbers
    lines = TEXT.splitlines(keepends=True)
    for number in range(15):
        lines[chance.randrange(len(lines))] = b"another line %d\n" % number
        (folder / "a.py").write_bytes(b"".join(lines))
        (folder / "b").mkdir(exist_ok=True)
        (folder / f"b/{number}.bin").write_bytes(chance.randbytes(3000))
        git(folder, "add", "-A")
        git(folder, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", f"{number}")
    return folder


def pack_by_git(folder: Path, *options: str) -> bytes:
    every = git(folder, "rev-list", "--objects", "--no-object-names", "--all")
    return git(folder, "pack-objects", "--stdout", "-q", "--window=50", "--depth=50", *options, given=every)


@pytest.mark.parametrize("options", [(), ("--delta-base-offset",), ("--no-reuse-delta", "--delta-base-offset")])
def test_a_pack_of_git_is_read_whole(history: Path, options: tuple[str, ...]) -> None:
    pack = pack_by_git(history, *options)
    found = read_pack(pack)
    named = git(history, "rev-list", "--objects", "--no-object-names", "--all").decode().split()
    assert found.keys() == set(named)
    assert len(pack) < sum(len(each.content) for each in found.values()) / 2, "git made no deltas"
    for oid, each in found.items():
        assert git(history, "cat-file", each.kind, oid) == each.content


def test_a_pack_of_dulwich_is_read_whole() -> None:
    pack = pytest.importorskip("dulwich.pack")
    objects = pytest.importorskip("dulwich.objects")
    formats = pytest.importorskip("dulwich.object_format")
    blobs = [objects.Blob.from_string(TEXT + b"%d\n" % number * number) for number in range(30)]
    for deltify in (True, False):
        pieces: list[bytes] = []
        entries = pack.pack_objects_to_data([(blob, None) for blob in blobs], deltify=deltify)
        pack.write_pack_data(pieces.append, entries[1], num_records=entries[0], object_format=formats.SHA1)
        found = read_pack(b"".join(pieces))
        assert {oid: each.content for oid, each in found.items()} == {b.id.decode(): b.data for b in blobs}


def size_bytes(kind: int, size: int) -> bytes:
    made = bytearray()
    byte, size = kind << 4 | size & 15, size >> 4
    while size:
        made.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    made.append(byte)
    return bytes(made)


def entry(kind: int, content: bytes, base: bytes = b"", size: int | None = None) -> bytes:
    return size_bytes(kind, len(content) if size is None else size) + base + zlib.compress(content)


def checksum(body: bytes) -> bytes:
    return hashlib.sha1(body, usedforsecurity=False).digest()


def packed(*entries: bytes, count: int | None = None, version: int = 2) -> bytes:
    head = b"PACK" + version.to_bytes(4, "big") + (len(entries) if count is None else count).to_bytes(4, "big")
    body = head + b"".join(entries)
    return body + checksum(body)


def delta(source: int, target: int, steps: bytes) -> bytes:
    def number(value: int) -> bytes:
        made = bytearray()
        while value > 0x7F:
            made.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*made, value])

    return number(source) + number(target) + steps


BASE = b"x" * 1000
COPY_ALL = b"\xb0\xe8\x03"  # 1000 bytes from 0
BASE_ID = bytes.fromhex(object_id("blob", BASE))


def test_a_base_may_stand_behind_its_delta() -> None:
    change = delta(1000, 1003, COPY_ALL + b"\x03abc")
    found = read_pack(packed(entry(7, change, BASE_ID), entry(3, BASE)))
    assert {each.content for each in found.values()} == {BASE, BASE + b"abc"}


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "no pack"),
    "a page of a proxy": (lambda: b"<html>" + b" " * 100, "no pack"),
    "cut off": (lambda: packed(entry(3, BASE))[:-5], "checksum"),
    "another version": (lambda: packed(entry(3, BASE), version=9), "version 9"),
    "more objects than it has": (lambda: packed(entry(3, BASE), count=2), "ends within"),
    "fewer objects than it has": (lambda: packed(entry(3, BASE), count=0), "after the last"),
    "many objects": (lambda: packed(count=1 << 31), "objects, more than"),
    "a huge object": (lambda: packed(entry(3, BASE, size=1 << 40)), "more than the"),
    "an endless size": (lambda: packed(b"\xbf" + b"\xff" * 40), "no number"),
    "a bomb": (lambda: packed(entry(3, b"\0" * 5_000_000, size=1000)), "as long as"),
    "shorter than it says": (lambda: packed(entry(3, BASE, size=1001)), "as long as"),
    "no zlib": (lambda: packed(size_bytes(3, 5) + b"hello world"), "inflated"),
    "no kind": (lambda: packed(entry(5, BASE)), "no kind"),
    "a base before the pack": (lambda: packed(entry(6, b"", b"\x7f")), "against nothing"),
    "a base that is the delta": (lambda: packed(entry(6, b"", b"\x00")), "against nothing"),
    "a base within an object": (lambda: packed(entry(3, BASE), entry(6, b"", b"\x01")), "not in the pack"),
    "an endless distance": (lambda: packed(entry(3, BASE), size_bytes(6, 1) + b"\xff" * 40), "no number"),
    "a base elsewhere": (lambda: packed(entry(7, delta(1, 1, b""), b"\x11" * 20)), "not in the pack"),
    "deltas in a circle": (
        lambda: packed(entry(7, delta(1, 1, b"\x01a"), b"\x11" * 20), entry(7, delta(1, 1, b"\x01b"), b"\x12" * 20)),
        "not in the pack",
    ),
    "another base": (lambda: packed(entry(3, BASE), entry(7, delta(7, 1, b"\x01a"), BASE_ID)), "another size"),
    "beyond its base": (
        lambda: packed(entry(3, BASE), entry(7, delta(1000, 9, b"\x93\xff\xff\x09"), BASE_ID)),
        "beyond its base",
    ),
    "a step of nothing": (lambda: packed(entry(3, BASE), entry(7, delta(1000, 1, b"\0"), BASE_ID)), "within a step"),
    "a step cut off": (lambda: packed(entry(3, BASE), entry(7, delta(1000, 9, b"\x09a"), BASE_ID)), "within a step"),
    "a copy cut off": (lambda: packed(entry(3, BASE), entry(7, delta(1000, 9, b"\x91"), BASE_ID)), "within a step"),
    "a delta without sizes": (lambda: packed(entry(3, BASE), entry(7, b"\xff" * 30, BASE_ID)), "no numbers"),
    "a delta of less": (lambda: packed(entry(3, BASE), entry(7, delta(1000, 5, b"\x01a"), BASE_ID)), "more or less"),
    "a delta bomb": (
        lambda: packed(entry(3, BASE), entry(7, delta(1000, 1 << 40, COPY_ALL * 10), BASE_ID)),
        "more than the",
    ),
    "a delta bomb that lies": (
        lambda: packed(entry(3, BASE), entry(7, delta(1000, 1000, COPY_ALL * 100_000), BASE_ID)),
        "more or less",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pack_that_nobody_should_send_is_refused(name: str) -> None:
    make, words = HOSTILE[name]
    with pytest.raises(PackError, match=words):
        read_pack(make())


def test_many_objects_of_a_fair_size_are_bounded_together() -> None:
    many = packed(*(entry(3, b"%d" % number + b"\0" * 1000) for number in range(100)))
    assert len(read_pack(many)) == 100
    with pytest.raises(PackError, match="unfolds to more"):
        read_pack(many, Bounds(all=50_000))


def test_deltas_count_to_the_bound_of_the_whole() -> None:
    """Each of ten bytes makes a thousand."""
    change = [entry(7, delta(1000, 1001, COPY_ALL + b"\x01" + bytes([number])), BASE_ID) for number in range(100)]
    with pytest.raises(PackError, match="unfolds to more"):
        read_pack(packed(entry(3, BASE), *change), Bounds(all=50_000))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_is_changed_in_a_pack_is_refused_or_is_an_object_with_its_own_id(data: st.DataObject) -> None:
    pack = bytearray(packed(entry(3, BASE), entry(7, delta(1000, 1003, COPY_ALL + b"\x03abc"), BASE_ID))[:-20])
    place = data.draw(st.integers(0, len(pack) - 1))
    pack[place] = data.draw(st.integers(0, 255))
    whole = bytes(pack) + checksum(bytes(pack))
    try:
        found = read_pack(whole)
    except PackError:
        return
    assert all(oid == each.oid for oid, each in found.items())


def test_objects_are_kept_and_found_again() -> None:
    objects = [Object("blob", b""), Object("tree", b"\0 1"), Object("commit", b"tree x\n")]
    text = pack_objects({each.oid: each for each in objects})
    assert unpack_objects(text) == {each.oid: each for each in objects}
    for wrong in (text[:-1], b"x" + text, b"blob -1\0", b"blob 5", b"blob \0", b"blob 9" * 20):
        with pytest.raises(PackError):
            unpack_objects(wrong)


def banded(*pieces: bytes, band: int = 1) -> bytes:
    return b"".join(line(bytes([band]) + piece) for piece in pieces)


def test_the_pack_of_an_answer_is_what_the_first_band_carries() -> None:
    head = line(b"shallow " + b"a" * 40 + b"\n") + b"0000" + line(b"NAK\n")
    assert pack_of(head + banded(b"PA", b"CK") + banded(b"so far", band=2) + banded(b"!") + b"0000") == b"PACK!"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (line(b"ERR upload-pack: not our ref\n"), NoPackError, "not our ref"),
        (line(b"NAK\n") + banded(b"out of memory\n", band=3), NoPackError, "out of memory"),
        (line(b"NAK\n") + banded(b"PACK"), LineError, "cut off"),
        (line(b"NAK\n") + banded(b"PACK")[:-1], LineError, "within the line"),
        (line(b"NAK\n") + banded(b"x", band=9), LineError, "no band"),
        (line(b"NAK\n") + line(b""), LineError, "no band"),
        (b"<html>", LineError, "no length"),
        (line(b"hello\n"), LineError, "unexpected line: hello"),
        (b"", LineError, "no pack"),
    ],
)
def test_an_answer_without_a_pack_tells_why(answer: bytes, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        pack_of(answer)


def lengths(text: bytes) -> Iterator[int]:
    for each in frames(text):
        yield -1 if each is None else len(each)


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_lines_are_read_as_they_were_written(texts: list[bytes]) -> None:
    assert list(frames(b"".join(map(line, texts)) + b"0000")) == [*texts, None]


def test_git_itself_answers_what_is_asked(history: Path) -> None:
    """`git upload-pack` as a server runs it, for a commit that is no head."""
    git(history, "config", "uploadpack.allowFilter", "true")
    commit = git(history, "rev-parse", "HEAD~3").decode().strip()
    answer = git(history, "upload-pack", "--stateless-rpc", ".", given=ask_for(commit, 1000, "test/1"))
    found = read_pack(pack_of(answer))
    kinds = sorted(each.kind for each in found.values())
    assert commit in found
    assert kinds == ["commit", "tree", "tree"], "files of more than 1000 bytes, and earlier commits, were not asked for"
