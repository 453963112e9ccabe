"""Lists of what sources include: they hold wherever the content is the same, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.build.includes import Headers, Includes, keep, recall
from hubkernels.build.scan import Scanner
from hubkernels.build.sources import Source
from hubkernels.host.files import FileHashes
from hubkernels.host.store import Store
from hubkernels.toolchain.cpu import Toolchain
from tests.unit.test_plan import TOOLS, VARIANT


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "objects")


def sdk(root: Path) -> Toolchain:
    """A toolchain whose torch has two headers."""
    (root / "include/c10").mkdir(parents=True)
    (root / "include/a b.h").write_text("a")
    (root / "include/c10/d.h").write_text("d")
    return replace(TOOLS, torch=replace(TOOLS.torch, root=root))


def headers(store: Store, tools: Toolchain) -> Headers:
    return Headers(store, FileHashes(tools.torch.root / "hashes.json"), tools)


def kept(around: Headers, paths: Iterable[str] = (), absent: Iterable[str] = ()) -> tuple[str, str]:
    """Keep lists of headers, and of paths where nothing is; tell their hashes."""
    lists = around.listed(paths), around.listed_absent(absent)
    around.keep(*lists)
    return lists[0].digest, lists[1].digest


def listed(tools: Toolchain) -> list[str]:
    return [str(tools.torch.root / name) for name in ("include/a b.h", "include/c10/d.h")]


def test_a_list_of_headers_holds_for_an_equal_sdk_elsewhere(store: Store, tmp_path: Path) -> None:
    one, other = sdk(tmp_path / "one"), sdk(tmp_path / "deep/other")
    digest, _ = kept(headers(store, one), listed(one))
    assert headers(store, other).hold(digest)
    assert headers(store, other).listed(reversed(listed(other))).digest == digest


@pytest.mark.parametrize("change", ["content", "gone", "list gone"])
def test_a_list_of_headers_falls_with_any_change(store: Store, tmp_path: Path, change: str) -> None:
    tools = sdk(tmp_path / "one")
    digest, _ = kept(headers(store, tools), listed(tools))
    header = tools.torch.root / "include/c10/d.h"
    if change == "content":
        header.write_text("other")
    elif change == "gone":
        header.unlink()
    else:
        store.clear()
    assert not headers(store, tools).hold(digest)
    if change == "content":
        header.write_text("d")
        assert headers(store, tools).hold(digest)


def test_a_list_of_what_is_absent_holds_again_once_it_is_made_again(store: Store, tmp_path: Path) -> None:
    """So that one package that asked the compiler saves the others from it."""
    tools = sdk(tmp_path / "one")
    path = str(tools.torch.root / "include/new.h")
    _, digest = kept(headers(store, tools), absent=[path])
    store.clear()
    of_one_run = headers(store, tools)
    assert not of_one_run.lack(digest)
    assert kept(of_one_run, absent=[path])[1] == digest
    assert of_one_run.lack(digest)


def test_folders_of_the_compilers_own_are_in_the_key_of_a_list(store: Store, tmp_path: Path) -> None:
    """It leaves out those that are not there: a header in one that comes to be may come first."""
    tools = sdk(tmp_path / "one")
    more = replace(tools, compiler=replace(tools.compiler, system=(*tools.compiler.system, "/usr/local/include/x")))
    hashes, around = FileHashes(tmp_path / "hashes.json"), headers(store, tools)
    keys = {
        Scanner(tmp_path, store, hashes, around, VARIANT, each, {})._key(Source("a.cpp", ())) for each in (tools, more)
    }
    assert len(keys) == 2


def test_a_list_that_is_not_kept_writes_nothing(store: Store, tmp_path: Path) -> None:
    """A store that has grown is trimmed, which walks all of it."""
    tools = sdk(tmp_path / "one")
    around = headers(store, tools)
    around.listed(listed(tools))
    around.listed_absent(["/usr/include/new.h"])
    assert not store.grown
    assert not store.folder.exists()


@pytest.mark.parametrize("now", ["nothing", "a file"])
def test_a_folder_with_a_headers_name_holds_while_it_is_one(store: Store, tmp_path: Path, now: str) -> None:
    tools = sdk(tmp_path / "one")
    folder = tools.torch.root / "include/random"
    folder.mkdir()
    _, digest = kept(headers(store, tools), absent=[f"{folder}/"])
    assert headers(store, tools).lack(digest)
    folder.rmdir()
    if now == "a file":
        folder.touch()
    assert not headers(store, tools).lack(digest)


def test_an_empty_list_of_headers_holds(store: Store, tmp_path: Path) -> None:
    tools = sdk(tmp_path / "one")
    digest, _ = kept(headers(store, tools))
    assert headers(store, tools).hold(digest)


def test_the_newest_lists_of_a_source_are_kept_once_each(store: Store) -> None:
    lists = [Includes({"a.cpp": str(number)}, {}, "h", ("include/x.h",), "s", reads_id=True) for number in range(10)]
    for entry in (*lists, lists[4]):
        keep(store, "key", entry)
    assert recall(store, "key") == [lists[number] for number in (4, 9, 8, 7, 6, 5, 3, 2)]
    assert recall(store, "another") == []


RIGHT = {
    "own": {"a.cpp": "1"},
    "named": {},
    "headers": "h",
    "absent": ["include/x.h"],
    "shadows": "s",
    "reads_id": True,
    "reads_torch": True,
    "text": "",
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": 1},
        [7, {}],
        [{**RIGHT, "own": {"a.cpp": 1}}],
        [{**RIGHT, "own": ["a.cpp"]}],
        [{**RIGHT, "named": {"a.h": 1}}],
        [{**RIGHT, "named": None}],
        [{**RIGHT, "headers": None}],
        [{**RIGHT, "absent": "x"}],
        [{**RIGHT, "absent": [1]}],
        [{**RIGHT, "reads_id": 1}],
        [{**RIGHT, "reads_torch": 1}],
        [{**RIGHT, "more": 1}],
        [{**RIGHT, "shadows": None}],
    ],
)
def test_a_list_of_another_shape_is_none(store: Store, wrong: object) -> None:
    right = Includes({"a.cpp": "1"}, {}, "h", ("include/x.h",), "s", reads_id=True)
    keep(store, "key", right)
    (name,) = (path.name for path in store.folder.glob("*/*.includes"))
    store.put(name, json.dumps([RIGHT]).encode())
    assert recall(store, "key") == [right]
    store.put(name, json.dumps(wrong).encode())
    assert recall(store, "key") == []
    store.put(name, b"no JSON")
    assert recall(store, "key") == []
    keep(store, "key", right)
    assert recall(store, "key") == [right]
