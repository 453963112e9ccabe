"""What `check reproducible` copies, and how it tells what differs."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
from pathlib import Path

import pytest

from hubkernels.check.reproducible import _scratch, compare, copy_package, copy_sources, where_they_differ
from hubkernels.errors import EnvironmentLacksError, Problem


def artifact(folder: Path, op_id: str = "_k_cpu_a", **files: bytes) -> Path:
    folder.mkdir()
    (folder / "metadata.json").write_text(json.dumps({"id": op_id}))
    for name, content in files.items():
        (folder / f"{name}.py").write_bytes(content)
    return folder


def test_equal_artifacts_have_no_difference(tmp_path: Path) -> None:
    one, other = (artifact(tmp_path / name, a=b"x") for name in "12")
    assert list(compare(one, other)) == []


def test_each_file_that_differs_is_named(tmp_path: Path) -> None:
    one = artifact(tmp_path / "1", a=b"same", b=b"abc", c=b"abc", d=b"")
    other = artifact(tmp_path / "2", a=b"same", b=b"abd", c=b"abcd", e=b"")
    assert list(compare(one, other)) == [
        ("d.py", "is there before only"),
        ("e.py", "is there after only"),
        ("b.py", "differs when it is built again: byte 2"),
        ("c.py", "differs when it is built again: 3 bytes, then 4"),
    ]


def test_another_id_is_the_one_difference(tmp_path: Path) -> None:
    one, other = artifact(tmp_path / "1", a=b"x"), artifact(tmp_path / "2", "_k_cpu_b", a=b"y")
    ((place, what),) = compare(one, other)
    assert (place, "_k_cpu_a, then _k_cpu_b" in what) == ("metadata.json", True)


@pytest.mark.parametrize("content", [b"\x7fELF", b"\x7fELF" + b"\0" * 60])
def test_a_broken_library_is_compared_as_bytes(content: bytes) -> None:
    assert where_they_differ(content, content + b"x") == f"{len(content)} bytes, then {len(content) + 1}"


def test_a_project_is_copied_without_what_was_made_from_it(tmp_path: Path) -> None:
    root = tmp_path / "project"
    kept = {"build.toml", "cpu/build/kernel.cpp", "cpu/.clang-format", "link"}
    left = {"build/.hubkernels/lock", ".git/HEAD", "venv/pyvenv.cfg", "venv/lib/x.py", "cpu/__pycache__/x.pyc"}
    for name in (kept | left) - {"link"}:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "link").symlink_to("cpu")
    copy_sources(root, tmp_path / "copy")
    copied = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*")}
    assert {name for name in copied if not (tmp_path / "copy" / name).is_dir() or name == "link"} == kept


def write(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    return root


def test_what_is_neither_file_nor_folder_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe ended the check, with a list of what could not be copied as its words."""
    root = write(tmp_path / "project", "build.toml", "cpu/kernel.cpp")
    os.mkfifo(root / "cpu/pipe")
    (root / "link").symlink_to(root / "cpu/pipe")
    monkeypatch.chdir(root)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        copy_sources(root, tmp_path / "copy")
    copied = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*")}
    assert copied - {"link"} == {"build.toml", "cpu", "cpu/kernel.cpp"}
    assert not (tmp_path / "copy/link").exists()


def test_a_file_that_there_is_no_room_for_is_named(tmp_path: Path) -> None:
    root = write(tmp_path / "project", "build.toml", "cpu/kernel.cpp")
    (root / "large").write_bytes(bytes(1 << 20))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, hard))
    try:
        with pytest.raises(EnvironmentLacksError, match=f"cannot copy {root}/large: File too large") as caught:
            copy_package(root, (), tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.problems[0].hint == "name another folder with TMPDIR", "room it had"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        *((code, "free some space, or name another folder with TMPDIR") for code in (errno.ENOSPC, errno.EDQUOT)),
        *((code, None) for code in (errno.EACCES, errno.EIO, errno.EMFILE)),
    ],
)
def test_room_is_asked_for_where_there_is_none_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, hint: str | None
) -> None:
    """A file that may not be read was told as a full disk."""
    with pytest.raises(EnvironmentLacksError) as caught, _scratch():
        raise OSError(code, os.strerror(code), str(tmp_path / "from"), None, str(tmp_path / "x"))
    problem = Problem(f"cannot build a second time: {os.strerror(code)}", str(tmp_path / "x"), hint)
    assert caught.value.problems == (problem,)
    root = write(tmp_path / "project", "build.toml")
    (root / "link").symlink_to("build.toml")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.symlink", refuse)
    with pytest.raises(EnvironmentLacksError, match=f"cannot copy .*/link: .*{os.strerror(code)}") as caught:
        copy_sources(root, tmp_path / "copy")
    assert caught.value.problems[0].hint == hint


def test_what_cannot_be_copied_is_no_lack_of_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """root may read every file."""
    root = write(tmp_path / "project", "build.toml", "cpu/kernel.cpp")

    def refuse(source: str, _: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", source)

    monkeypatch.setattr("shutil.copy2", refuse)
    with pytest.raises(EnvironmentLacksError, match="cannot copy .*: Permission denied") as caught:
        copy_sources(root, tmp_path / "copy")
    assert caught.value.problems[0].hint is None


def test_a_place_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentLacksError, match="cannot build a second time: No such file") as caught, _scratch():
        pass
    assert str(caught.value.problems[0].where).startswith(f"{tmp_path}/nowhere")
    assert caught.value.problems[0].hint == "name another folder with TMPDIR"


def test_links_out_of_a_project_are_copied_as_what_they_lead_to(tmp_path: Path) -> None:
    write(tmp_path / "shared", "a.h", "deep/b.h")
    root = write(tmp_path / "project", "build.toml", "include/c.h", ".hidden/d.h")
    (root / "a.h").symlink_to("../shared/a.h")
    (root / "folder").symlink_to("../shared")
    (tmp_path / "shared/link.h").symlink_to("a.h")
    (tmp_path / "shared/itself").symlink_to(tmp_path / "shared")
    (root / "absolute.h").symlink_to(root / "include/c.h")
    (root / "hidden.h").symlink_to(".hidden/d.h")
    (root / "inside.h").symlink_to("include/c.h")
    (root / "dangling").symlink_to("nowhere")
    copy = tmp_path / "elsewhere/copy"
    copy_sources(root, copy)
    texts = {"a.h": "a.h", "folder/deep/b.h": "deep/b.h", "folder/link.h": "a.h", "absolute.h": "include/c.h"}
    texts |= {"hidden.h": ".hidden/d.h", "inside.h": "include/c.h"}
    assert {name: (copy / name).read_text() for name in texts} == texts
    links = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_symlink()}
    assert links == {"inside.h", "dangling", "folder/itself"}, "a link in the project stays one"


def test_of_other_projects_only_their_build_toml_is_copied(tmp_path: Path) -> None:
    root = write(tmp_path / "all", "build.toml", "csrc/x.cpp", "one/build.toml", "one/csrc/y.cpp", "two/z.cpp")
    copy_sources(root, tmp_path / "copy")
    found = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*.*")}
    assert found == {"build.toml", "csrc/x.cpp", "one/build.toml", "two/z.cpp"}


def test_of_a_workspace_only_the_package_and_what_it_reads_are_copied(tmp_path: Path) -> None:
    """As the compiler names it: also what lies beside a folder that a link leads to."""
    root = write(tmp_path / "all", "common/x.h", "common/y.h", "one/build.toml", "one/z.cpp", "two/w.cpp", "two/v.h")
    (root / "one/link").symlink_to("../common")
    made = copy_package(root / "one", ["z.cpp", "../common/x.h", "link/x.h", "link/../two/v.h"], tmp_path / "copy")
    assert made == tmp_path / "copy/one"
    found = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*.*")}
    assert found == {"common/x.h", "one/build.toml", "one/z.cpp", "one/link/x.h", "one/link/y.h", "one/two/v.h"}
    assert (made / "link/../two/v.h").is_file()
