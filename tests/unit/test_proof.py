"""What a commit holds, proved by its objects: names and kinds of entries that no kernel may have."""

from __future__ import annotations

import pytest

from hubkernels.errors import CheckFailedError
from hubkernels.runtime.gitpack import Object
from hubkernels.runtime.proof import File, Proven, Told

FILE, FOLDER = "100644", "40000"
ENTRY = tuple[str, bytes, Object]


def tree(*entries: ENTRY) -> Object:
    lines = (f"{mode} ".encode() + name + b"\0" + bytes.fromhex(what.oid) for mode, name, what in entries)
    return Object("tree", b"".join(lines))


def blob(text: bytes) -> Object:
    return Object("blob", text)


def commit(root: Object) -> Object:
    return Object("commit", f"tree {root.oid}\nauthor x <x@y> 0 +0000\ncommitter x <x@y> 0 +0000\n\nx\n".encode())


def proven(variant: Object, *others: Object, name: bytes = b"torch-cpu", mode: str = FOLDER) -> Proven:
    build = tree((mode, name, variant))
    root = tree((FOLDER, b"build", build))
    top = commit(root)
    return Proven(top.oid, {each.oid: each for each in (top, root, build, variant, *others)})


CODE = blob(b"def answer(): return 1\n")


def test_files_are_listed_with_their_hashes_and_what_came_along() -> None:
    pointer = blob(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n")
    elsewhere = blob(b"x" * 5000)
    inner = tree((FILE, b"table.bin", pointer), (FILE, b"large.so", elsewhere), (FILE, b"x.pyc", CODE))
    cached = tree((FILE, b"a.cpython-311.pyc", CODE))
    variant = tree((FOLDER, b"__pycache__", cached), (FILE, b"__init__.py", CODE), (FOLDER, b"data", inner))
    found = proven(variant, inner, cached, CODE, pointer)
    assert found.variants() == ("torch-cpu",)
    assert found.files("torch-cpu") == (
        File("__init__.py", CODE.oid),
        File("data/table.bin", pointer.oid, "a" * 64, 12345),
        File("data/large.so", elsewhere.oid),
    )
    assert [found.content(file) for file in found.files("torch-cpu")] == [CODE.content, None, None]
    kept = Proven(found.commit, found.evidence())
    assert kept.files("torch-cpu") == found.files("torch-cpu")
    assert [kept.content(file) for file in kept.files("torch-cpu")] == [None, None, None]


@pytest.mark.parametrize(
    "name",
    [
        *(b"..", b".", b"", b".git", b".GIT", b".git ", b".git.", b"git~1", b"GIT~2", b"a/b", b"../x", b"/etc"),
        *(b"a\\b", b"c:x", b"a\nb", b"a\x1b[0m", b"\xff", b"a*", b'"', b"a\x7f"),
    ],
)
@pytest.mark.parametrize("mode", [FILE, FOLDER])
def test_a_name_that_leads_elsewhere_is_refused(name: bytes, mode: str) -> None:
    variant = tree((mode, name, CODE if mode == FILE else tree()))
    with pytest.raises(CheckFailedError, match="file that no kernel may have"):
        proven(variant, CODE, tree()).files("torch-cpu")


def test_a_mode_that_is_no_text_is_refused() -> None:
    """It ended in a UnicodeDecodeError."""
    strange = Object("tree", b"\xff link\0" + bytes(20))
    with pytest.raises(CheckFailedError, match="of git's mode b'.xff'"):
        proven(strange).files("torch-cpu")


@pytest.mark.parametrize("mode", ["120000", "160000", "100000", "0", "140000", "777777"])
def test_what_is_no_file_is_refused(mode: str) -> None:
    with pytest.raises(CheckFailedError, match="of git's mode"):
        proven(tree((mode, b"link", CODE)), CODE).files("torch-cpu")


def test_a_link_is_no_variant() -> None:
    assert proven(CODE, mode="120000").variants() == ()
    assert Proven(*_without_build()).variants() == ()


def _without_build() -> tuple[str, dict[str, Object]]:
    root = tree((FILE, b"README.md", CODE))
    top = commit(root)
    return top.oid, {each.oid: each for each in (top, root)}


def test_two_files_of_one_name_are_refused() -> None:
    """Equal ones, too: a tree of half a million of them counted as one file, and was read for each folder."""
    for second in (blob(b""), CODE):
        variant = tree((FILE, b"a.py", CODE), (FILE, b"a.py", second))
        with pytest.raises(CheckFailedError, match="two files of one name"):
            proven(variant).files("torch-cpu")


def test_what_is_missing_or_of_another_kind_is_refused() -> None:
    whole = proven(tree((FILE, b"a.py", CODE)))
    for oid in whole.evidence():
        fewer = {key: each for key, each in whole.evidence().items() if key != oid}
        with pytest.raises(CheckFailedError, match=f"lacks the (commit|tree) {oid}"):
            Proven(whole.commit, fewer).files("torch-cpu")
    with pytest.raises(CheckFailedError, match="lacks the tree"):
        proven(CODE).files("torch-cpu")
    odd = Object("commit", b"parent x\n")
    with pytest.raises(CheckFailedError, match="names no tree"):
        Proven(odd.oid, {odd.oid: odd}).variants()
    for content in (b"100644 a", b"100644 a\0short", b"100644\0" + b"x" * 20, b"x"):
        with pytest.raises(CheckFailedError, match="malformed"):
            proven(Object("tree", content)).files("torch-cpu")


def test_folders_that_unfold_without_end_are_refused() -> None:
    """Thirty objects, each folder with the one below it twice: a thousand million files."""
    level, kept = tree((FILE, b"x", CODE)), [CODE]
    for _ in range(30):
        kept.append(level)
        level = tree((FOLDER, b"a", level), (FOLDER, b"b", level))
    with pytest.raises(CheckFailedError, match="more than 10000 files"):
        proven(level, *kept).files("torch-cpu")
    for _ in range(10):
        kept.append(level)
        level = tree((FOLDER, b"a", level))
    with pytest.raises(CheckFailedError, match="deep"):
        proven(level, *kept).files("torch-cpu")


def test_bytecode_counts_although_it_is_not_listed() -> None:
    """Fifty folders that are one tree of 20,000 names took 43 s, and nothing ended it."""
    many = tree(*((FILE, b"%d.pyc" % number, CODE) for number in range(300)))
    variant = tree(*((FOLDER, b"%02d" % number, many) for number in range(50)))
    with pytest.raises(CheckFailedError, match="more than 10000 files"):
        proven(variant, many, CODE).files("torch-cpu")


def test_what_a_hub_lists_is_held_to_the_same_names() -> None:
    for path in ("../x", "a/../../x", ".git/config", "/x", "a//b"):
        with pytest.raises(CheckFailedError, match="file that no kernel may have"):
            Told("a" * 40, {f"build/torch-cpu/{path}": File(path, "b" * 40)}).files("torch-cpu")
    told = Told("a" * 40, {path: File(path, "b" * 40) for path in ("build/v/a.py", "build/v/x.pyc", "README.md")})
    assert (told.variants(), [file.path for file in told.files("v")]) == (("v",), ["a.py"])
