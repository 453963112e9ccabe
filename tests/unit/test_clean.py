"""`kernel-builder clean` removes what builds made, and nothing else."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from hubkernels.build.clean import clean
from hubkernels.build.places import LOCK, Places
from hubkernels.build.work import locked
from hubkernels.cli import main
from hubkernels.model.size import size_text

BUILD_TOML = """
[workspace]
schema = 1
general = { edition = 5, license = "MIT", backends = ["cpu"] }
torch = { src = [] }
[package.one]
general = { version = 1 }
[package.two]
general = { version = 1 }
"""


def silent(_: object) -> None:
    pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose two packages have been built."""
    (tmp_path / "build.toml").write_text(BUILD_TOML, encoding="utf-8")
    for name in ("one", "two"):
        folder = tmp_path / "build" / name
        (folder / "variant").mkdir(parents=True)
        (folder / "variant/metadata.json").write_bytes(b"x" * 70)
        (folder / "variant.build.json").write_text('{"variant": "variant", "": ""}', encoding="utf-8")
    work = tmp_path / "build/.hubkernels"
    (work / "cache/0123").mkdir(parents=True)
    (work / "cache/0123/a.o").write_bytes(b"x" * 500)
    (work / LOCK).touch()
    return tmp_path


def times(folder: Path) -> dict[Path, int]:
    """When each thing at and below a folder last changed, so that whatever came and went there shows."""
    return {path: path.lstat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in (root / "build").rglob("*") if not path.is_dir())


def test_without_names_every_package_and_the_work_folder_go(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "-C", str(root)]) == 0
    assert files(root) == ["build/.hubkernels/lock"]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], Path(line[1]).name) for line in lines] == [
        ("removed", "one"),
        ("removed", "two"),
        ("emptied", ".hubkernels"),
        ("freed", "700"),
    ]


def test_a_named_package_goes_alone(root: Path) -> None:
    assert main(["clean", "one", "-C", str(root)]) == 0
    assert files(root) == [
        "build/.hubkernels/cache/0123/a.o",
        "build/.hubkernels/lock",
        "build/two/variant.build.json",
        "build/two/variant/metadata.json",
    ]


def test_a_second_clean_finds_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["clean", "-C", str(root)])
    capsys.readouterr()
    assert main(["clean", "-C", str(root)]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"


def test_cleaning_what_was_never_built_makes_no_folder(root: Path) -> None:
    clean(Places(root / "elsewhere"), ("one",), silent, work=True)
    assert not (root / "elsewhere").exists()


def test_what_builds_did_not_make_stays(root: Path) -> None:
    (root / "build/notes.txt").write_text("mine", encoding="utf-8")
    main(["clean", "-C", str(root)])
    assert (root / "build/notes.txt").is_file()


def test_links_out_of_the_build_folder_are_removed_but_not_followed(root: Path) -> None:
    outside = root / "outside"
    (outside / "kept").mkdir(parents=True)
    (outside / "kept/file").write_text("mine", encoding="utf-8")
    for link in ("one/link", ".hubkernels/link", ".hubkernels/cache/link", "three"):
        (root / "build" / link).symlink_to(outside / "kept", target_is_directory=True)
    removed = clean(Places(root), ("one", "two", "three"), silent, work=True)
    assert sum(item.size for item in removed) == 700
    assert files(root) == ["build/.hubkernels/lock"]
    assert (outside / "kept/file").is_file()


@pytest.mark.parametrize("names", [(), ("one",)])
def test_a_work_folder_that_is_a_link_is_unlinked_and_its_target_left_alone(root: Path, names: tuple[str, ...]) -> None:
    work, elsewhere = root / "build/.hubkernels", root / "elsewhere"
    work.rename(elsewhere)
    (elsewhere / LOCK).unlink()
    work.symlink_to(elsewhere, target_is_directory=True)
    before = times(elsewhere)
    assert main(["clean", *names, "-C", str(root)]) == 0
    assert not work.is_symlink()
    assert times(elsewhere) == before
    assert not (root / "build/one").exists()


def test_a_linked_lock_or_runs_is_not_followed(root: Path) -> None:
    work, elsewhere = root / "build/.hubkernels", root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("mine", encoding="utf-8")
    (work / LOCK).unlink()
    (work / LOCK).symlink_to(elsewhere / "file")
    (work / "runs").symlink_to(elsewhere, target_is_directory=True)
    before = times(elsewhere)
    assert main(["clean", "one", "-C", str(root)]) == 0
    assert times(elsewhere) == before
    assert (elsewhere / "file").read_text(encoding="utf-8") == "mine"
    assert not (root / "build/one").exists()


def test_a_running_build_is_waited_for(root: Path) -> None:
    places = Places(root)
    said: list[object] = []
    with locked(places.work, silent):
        cleaning = threading.Thread(target=clean, args=(places, ("one",), said.append), kwargs={"work": False})
        cleaning.start()
        deadline = time.monotonic() + 10
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (root / "build/one/variant/metadata.json").is_file()
    cleaning.join(10)
    assert said == [f"another build is running in {places.build}; waiting for it"]
    assert not (root / "build/one").exists()


def test_the_lock_file_stays_so_that_a_waiting_build_holds_the_same_one(root: Path) -> None:
    before = (root / "build/.hubkernels" / LOCK).stat().st_ino
    main(["clean", "-C", str(root)])
    assert (root / "build/.hubkernels" / LOCK).stat().st_ino == before


def test_an_unknown_package_removes_nothing(root: Path) -> None:
    before = files(root)
    assert main(["clean", "on", "-C", str(root)]) == 2
    assert files(root) == before


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000_000, "2.5 GB")])
def test_sizes_are_spelled_for_people(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_build_folder_that_is_a_link_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "build").rename(root / "outside")
    (root / "build").symlink_to("outside")
    before = files(root)
    assert main(["clean", "-C", str(root)]) == 2
    assert f"{root}/build is a link to {root}/outside" in capsys.readouterr().err
    assert files(root) == before


@pytest.mark.parametrize("kind", ["work", "lock"])
def test_what_is_no_work_folder_or_no_lock_goes(root: Path, kind: str) -> None:
    work = root / "build/.hubkernels"
    if kind == "work":
        shutil.rmtree(work)
        work.write_bytes(b"x")
    else:
        (work / LOCK).unlink()
        (work / LOCK / "in it").mkdir(parents=True)
    assert main(["clean", "-C", str(root)]) == 0
    assert files(root) == ["build/.hubkernels/lock"]


def test_a_project_that_was_never_built_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "build.toml").write_text(BUILD_TOML, encoding="utf-8")
    own = {
        "build/one/notes.txt": "mine",
        "build/one/variant/metadata.json": "{}",
        "build/one/.build.json": '{"variant": ""}',
        "build/one/mine.build.json": '{"variant": "other"}',
        "build/two": "a file",
        "build/compile_commands.json": '[{"directory": "/x", "file": "a.cpp", "command": "c++ a.cpp"}]',
        "build/.hubkernels/mine": "mine",
    }
    for name, text in own.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["clean", "-C", str(tmp_path)]) == 0
    assert files(tmp_path) == sorted(own)
    told = capsys.readouterr()
    assert told.out == "nothing to remove\n"
    build = tmp_path / "build"
    assert [line for line in told.err.splitlines() if line.endswith(" stays: no build made it")] == [
        f"{build / name} stays: no build made it"
        for name in (
            *("one/.build.json", "one/mine.build.json", "one/notes.txt", "one/variant", "two"),
            *("compile_commands.json", ".hubkernels/mine"),
        )
    ]


def test_what_is_beside_artifacts_and_in_the_work_folder_stays(root: Path) -> None:
    own = ["build/.hubkernels/lock", "build/.hubkernels/mine.old/a", "build/one/notes.txt"]
    for name in own[1:]:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("mine", encoding="utf-8")
    (root / "build/.hubkernels/two.123.old").mkdir()
    (root / "build/one/.variant.build.json.k_3").write_text("half", encoding="utf-8")
    assert main(["clean", "-C", str(root)]) == 0
    assert files(root) == own
    assert not (root / "build/.hubkernels/two.123.old").exists()
    assert not (root / "build/two").exists()
