"""Lists of what sources include: they hold wherever the content is the same, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.build.includes import Headers, Includes, keep, missing_instead, recall
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


def listed(tools: Toolchain) -> list[str]:
    return [str(tools.torch.root / name) for name in ("include/a b.h", "include/c10/d.h")]


def test_a_list_of_headers_holds_for_an_equal_sdk_elsewhere(store: Store, tmp_path: Path) -> None:
    one, other = sdk(tmp_path / "one"), sdk(tmp_path / "deep/other")
    digest = headers(store, one).note(listed(one))
    assert headers(store, other).hold(digest)
    assert headers(store, other).note(reversed(listed(other))) == digest


@pytest.mark.parametrize("change", ["content", "gone", "list gone"])
def test_a_list_of_headers_falls_with_any_change(store: Store, tmp_path: Path, change: str) -> None:
    tools = sdk(tmp_path / "one")
    digest = headers(store, tools).note(listed(tools))
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
    digest = headers(store, tools).note_absent([path])
    store.clear()
    of_one_run = headers(store, tools)
    assert not of_one_run.lack(digest)
    assert of_one_run.note_absent([path]) == digest
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


def test_an_empty_list_of_headers_holds(store: Store, tmp_path: Path) -> None:
    tools = sdk(tmp_path / "one")
    digest = headers(store, tools).note([])
    assert headers(store, tools).hold(digest)


def test_the_newest_lists_of_a_source_are_kept_once_each(store: Store) -> None:
    lists = [Includes({"a.cpp": str(number)}, "h", ("include/x.h",), "s", reads_id=True) for number in range(10)]
    for entry in (*lists, lists[4]):
        keep(store, "key", entry)
    assert recall(store, "key") == [lists[number] for number in (4, 9, 8, 7, 6, 5, 3, 2)]
    assert recall(store, "another") == []


def test_what_would_come_first_if_it_were_there(tmp_path: Path) -> None:
    (tmp_path / "include/hk").mkdir(parents=True)
    (tmp_path / "include/hk/x.h").touch()
    absent, blocked = missing_instead(
        tmp_path, ["include", "cpu", "new/deep"], ["x.h", "hk/x.h", "hk/y.h", "c10/d/e.h"]
    )
    assert absent == {"include/x.h", "include/hk/y.h", "include/c10", "cpu", "new"}
    assert not blocked


def test_a_folder_with_the_name_of_a_header_is_told(tmp_path: Path) -> None:
    (tmp_path / "include/x.h").mkdir(parents=True)
    assert missing_instead(tmp_path, ["include"], ["x.h"]) == (set(), True)


RIGHT = {
    "own": {"a.cpp": "1"},
    "headers": "h",
    "absent": ["include/x.h"],
    "shadows": "s",
    "reads_id": True,
    "text": "",
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": 1},
        [7, {}],
        [{**RIGHT, "own": {"a.cpp": 1}}],
        [{**RIGHT, "own": ["a.cpp"]}],
        [{**RIGHT, "headers": None}],
        [{**RIGHT, "absent": "x"}],
        [{**RIGHT, "absent": [1]}],
        [{**RIGHT, "reads_id": 1}],
        [{**RIGHT, "more": 1}],
        [{**RIGHT, "shadows": None}],
    ],
)
def test_a_list_of_another_shape_is_none(store: Store, wrong: object) -> None:
    right = Includes({"a.cpp": "1"}, "h", ("include/x.h",), "s", reads_id=True)
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
