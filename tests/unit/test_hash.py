"""`hash`: the digest after a change by hand, other keys kept, nothing written where it is right or with --check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hubkernels.model.digest import digest_folder
from tests.conftest import Cli, SmallProject, write_noarch

TAG = "torch-stable-abi210-cpu-x86_64-linux"


def artifact(folder: Path) -> Path:
    """A folder with metadata that somebody else wrote: a digest of the older content, and a key that we do not know."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("new = 1\n", encoding="utf-8")
    (folder / "sub").mkdir()
    (folder / "sub/data.bin").write_bytes(b"\0\1")
    metadata = {
        "name": "my-kernel",
        "id": "_x",
        "their-own": {"ä": [1, 2]},
        "digest": {"algorithm": "sha256", "files": {"__init__.py": "old", "gone.py": "x"}},
        "version": 1,
    }
    (folder / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    return folder


@pytest.fixture
def built(small: SmallProject) -> Path:
    return artifact(small.root / "build/my-kernel" / TAG)


def metadata(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    return found


def test_the_digest_is_written_and_other_keys_are_kept_in_order(built: Path, small: SmallProject, cli: Cli) -> None:
    before = metadata(built)
    ran = cli("hash", small.root)
    assert (ran.code, ran.out.split()) == (0, ["written", str(built), "2", "files"])
    after = metadata(built)
    assert after["digest"] == {"algorithm": "sha256", "files": digest_folder(built)}
    assert list(after) == list(before)
    assert {key: value for key, value in after.items() if key != "digest"} == {
        key: value for key, value in before.items() if key != "digest"
    }
    assert [path.name for path in built.iterdir() if path.name.startswith(".")] == []


def test_a_digest_that_is_right_is_left_alone(built: Path, small: SmallProject, cli: Cli) -> None:
    cli("hash", small.root)
    note = built.parent / f"{TAG}.build.json"
    note.write_text("{}", encoding="utf-8")
    inode = (built / "metadata.json").stat().st_ino
    assert cli("hash", small.root).out.split()[0] == "ok"
    assert (built / "metadata.json").stat().st_ino == inode
    assert note.exists()


def test_what_told_of_the_earlier_content_goes(built: Path, small: SmallProject, cli: Cli) -> None:
    note, signature = built.parent / f"{TAG}.build.json", built / "metadata.json.sigstore"
    note.write_text("{}", encoding="utf-8")
    signature.write_text("{}", encoding="utf-8")
    cli("hash", "my_kernel", "--project", small.root)
    assert not note.exists()
    assert not signature.exists()


def test_check_changes_nothing_and_names_the_files(built: Path, small: SmallProject, cli: Cli) -> None:
    before = (built / "metadata.json").read_bytes()
    ran = cli("hash", "--check", small.root)
    assert (ran.code, ran.out.split()[0]) == (1, "differs")
    assert "error: the digest does not fit: __init__.py, gone.py, sub/data.bin\n" in ran.err
    assert (built / "metadata.json").read_bytes() == before
    cli("hash", small.root)
    assert cli("hash", "--check", small.root).code == 0


def test_as_json(built: Path, small: SmallProject, cli: Cli) -> None:
    (found,) = json.loads(cli("hash", "--json", small.root).out)
    assert found == {
        "folder": str(built),
        "current": False,
        "differing": ["__init__.py", "gone.py", "sub/data.bin"],
    }


@pytest.mark.parametrize("below", ["build", "."])
def test_a_folder_of_artifacts_without_build_toml(tmp_path: Path, cli: Cli, below: str) -> None:
    folder = artifact(tmp_path / "download" / below / TAG)
    assert cli("hash", tmp_path / "download", "--project", tmp_path).code == 0
    assert metadata(folder)["digest"] == {"algorithm": "sha256", "files": digest_folder(folder)}


def test_artifacts_where_upstreams_builder_puts_them(small: SmallProject, cli: Cli) -> None:
    folder = artifact(small.root / "build" / TAG)
    assert cli("hash", small.root).out.split()[:2] == ["written", str(folder)]


def test_nothing_built_is_an_error(small: SmallProject, cli: Cli) -> None:
    ran = cli("hash", small.root)
    assert ran.code == 2
    assert "run `kernel-builder build` first" in ran.err


@pytest.mark.parametrize("text", ["[]", "{", "null"])
def test_metadata_that_cannot_be_read_is_named_and_kept(built: Path, small: SmallProject, cli: Cli, text: str) -> None:
    (built / "metadata.json").write_text(text, encoding="utf-8")
    ran = cli("hash", small.root)
    assert ran.code == 2
    assert f"--> {built / 'metadata.json'}" in ran.err
    assert (built / "metadata.json").read_text(encoding="utf-8") == text


def test_a_folder_with_a_slash_is_one_also_where_the_current_folder_is_a_project(
    built: Path, small: SmallProject, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = artifact(tmp_path / "elsewhere" / TAG)
    monkeypatch.chdir(small.root)
    ran = cli("hash", elsewhere.parent, "--json")
    assert (ran.code, [item["folder"] for item in json.loads(ran.out)]) == (0, [str(elsewhere)])
    assert cli("hash", "--check").code == 1, built


def test_a_member_that_cannot_be_read_is_told_after_the_work(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path / "good", "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/build.toml").write_text("[", encoding="utf-8")
    made = artifact(tmp_path / "build/good/torch-cpu")
    ran = cli("hash", tmp_path)
    assert (ran.code, ran.out.split()[:2]) == (2, ["written", str(made)])
    assert "bad/build.toml" in ran.err
    assert cli("hash", "good", "-C", tmp_path).code == 0
