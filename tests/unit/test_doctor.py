"""`kernel-builder doctor`: what is found, what it leads to, and the exit code."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path

import pytest
import tomli

from hubkernels.check import doctor
from hubkernels.check.doctor import CLIENT, Surroundings, can_build, examine
from hubkernels.check.finding import Finding
from hubkernels.cli import main
from hubkernels.host import disk
from hubkernels.host.machine import Machine
from hubkernels.host.store import Store
from hubkernels.model.sdk import LockedSdk, SdkName, Wheel, lock_text
from hubkernels.model.variant import Platform
from hubkernels.model.version import Version

REPOSITORY = Path(__file__).parents[2]
AVX2_MACHINE = "processor\t: 0\nflags\t\t: fpu sse2 avx avx2 fma f16c avx512f\nflags\t\t: none\n"
ZEN4 = "flags : avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_bf16\n"


@pytest.fixture(autouse=True)
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc starts a compiler to tell about itself; test_cuda_doctor.py has it."""
    monkeypatch.setattr(doctor, "find_nvcc", lambda _: None)


def around(tmp_path: Path, path: str = "", cpuinfo: str = "", **environment: str) -> Surroundings:
    (tmp_path / "cpuinfo").write_text(cpuinfo, encoding="utf-8")
    return Surroundings({"PATH": path, **environment}, tmp_path, tmp_path / "build", tmp_path / "cpuinfo")


def look(surroundings: Surroundings, subject: str) -> Finding:
    return next(finding for finding in examine(surroundings) if finding.subject == subject)


def program(folder: Path, name: str, script: str) -> str:
    """A program of that name in the folder, which is returned as a PATH."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return str(folder)


def test_our_command_is_known_by_what_it_says(tmp_path: Path) -> None:
    path = program(tmp_path, "kernel-builder", "echo 'hubkernels 0.1.0: kernel-builder and hubkernels'")
    assert look(around(tmp_path, path), "command") == Finding(
        "command", "ok", f"{path}/kernel-builder: hubkernels 0.1.0"
    )


@pytest.mark.parametrize("script", ["echo kernel-builder 0.16.0", "exit 2"])
def test_a_builder_of_another_project_in_front_of_ours_is_a_warning(tmp_path: Path, script: str) -> None:
    found = look(around(tmp_path, program(tmp_path, "kernel-builder", script)), "command")
    assert found.state == "warning"
    assert "is another program" in found.text
    assert found.hint == "call `hubkernels`: it is the same command as our kernel-builder"


def test_no_command_on_path_is_a_warning(tmp_path: Path) -> None:
    assert look(around(tmp_path), "command").state == "warning"


def test_without_a_compiler_no_build_is_possible_and_apt_has_one(tmp_path: Path) -> None:
    findings = examine(around(tmp_path))
    found = next(finding for finding in findings if finding.subject == "compiler")
    assert (found.state, found.apt) == ("missing", ("g++",))
    assert not can_build(findings)


def test_a_compiler_that_is_too_old_is_missing_and_says_why(tmp_path: Path) -> None:
    macros = "#define __GNUC__ 9\\n#define __GNUC_MINOR__ 4\\n#define __GNUC_PATCHLEVEL__ 0"
    found = look(around(tmp_path, program(tmp_path, "g++", f"printf '{macros}\\n'")), "compiler")
    assert found.state == "missing"
    assert "g++ 9.4.0 is too old" in found.text


def test_the_compiler_is_asked_once_and_as_a_build_asks_it(tmp_path: Path) -> None:
    script = f"echo \"asked $CPATH\" >>{tmp_path}/asked; printf '#define __GNUC__ 9\\n'"
    examine(around(tmp_path, program(tmp_path, "g++", script), CPATH="/trap"))
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "asked \n"


def test_without_torch_a_build_is_still_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Machine(Platform("x86_64", "linux"), None)
    monkeypatch.setattr("hubkernels.check.doctor.this_machine", lambda: here)
    found = look(around(tmp_path), "torch")
    assert (found.state, found.needed) == ("warning", False)
    assert (found.hint or "").startswith(
        "builds take its headers by toolchain.lock; to load kernels here, install torch"
    )


def test_the_cuda_that_a_project_pins_is_told(tmp_path: Path) -> None:
    assert "pins" not in look(around(tmp_path), "cuda").text
    name = SdkName("cuda", Version((13, 2)), "x86_64-linux")
    file = "nvidia_cuda_nvcc-13.2.78-py3-none-any.whl"
    wheel = Wheel(file, file, "0" * 64, 1, "0" * 64)
    (tmp_path / "toolchain.lock").write_text(lock_text([LockedSdk(name, (wheel,), "0" * 64)]), encoding="utf-8")
    assert look(around(tmp_path), "cuda").text.startswith("toolchain.lock pins 13.2; beside it no nvcc")
    (tmp_path / "toolchain.lock").write_text("{", encoding="utf-8")
    assert "pins" not in look(around(tmp_path), "cuda").text


def test_without_git_builds_work_and_note_no_commit(tmp_path: Path) -> None:
    found = look(around(tmp_path), "git")
    assert (found.state, found.needed) == ("warning", False)


@pytest.mark.parametrize(
    ("installed", "state"),
    [("0.17.2", "ok"), ("0.17.9", "ok"), ("0.17.1", "warning"), ("0.18.0", "warning"), ("0.18.0rc1", "warning")],
)
def test_the_client_has_a_range_that_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str, state: str
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: installed)
    assert look(around(tmp_path), "client").state == state


def test_without_the_client_a_build_is_still_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    found = look(around(tmp_path), "client")
    assert (found.state, found.needed, found.pip) == ("missing", False, ("kernels>=0.17.2,<0.18",))


def test_the_clients_range_is_that_of_the_extra() -> None:
    extras = tomli.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert f"kernels>={CLIENT[0]},<{CLIENT[1]}" in extras["client"]


def test_little_room_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_bytes", lambda _: 500_000_000)
    found = look(around(tmp_path), "disk")
    assert (found.state, found.text) == ("warning", f"0.5 GB free for {tmp_path / 'build'}")


def test_room_is_measured_where_the_folder_would_be_made(tmp_path: Path) -> None:
    assert disk.free_bytes(tmp_path / "not/made/yet") > 0


def test_a_noexec_temporary_folder_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = os.statvfs(tmp_path)
    noexec = os.statvfs_result((*mounted[:8], mounted.f_flag | os.ST_NOEXEC, *mounted[9:]))
    monkeypatch.setattr(os, "statvfs", lambda _: noexec)
    found = look(around(tmp_path), "temp")
    assert (found.state, found.hint) == ("warning", "set TMPDIR to a folder on another disk")


@pytest.mark.parametrize(
    ("cpuinfo", "tiers"),
    [(ZEN4, "avx512-bf16, avx512, avx2, scalar"), (AVX2_MACHINE, "avx2, scalar"), ("", "scalar")],
)
def test_tiers_are_those_whose_every_feature_the_machine_has(tmp_path: Path, cpuinfo: str, tiers: str) -> None:
    assert look(around(tmp_path, cpuinfo=cpuinfo), "cpu").text.endswith(f": {tiers}")


def test_only_what_is_needed_and_missing_prevents_a_build() -> None:
    useful = Finding("client", "missing", "not installed")
    doubtful = Finding("compiler", "warning", "odd", needed=True)
    assert can_build((useful, doubtful))
    assert not can_build((useful, Finding("torch", "missing", "not installed", needed=True)))


def test_the_verb_ends_with_one_line_a_package_manager_and_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = (
        Finding("python", "missing", "no Python.h", needed=True, apt=("python3-dev",)),
        Finding("compiler", "missing", "none", needed=True, apt=("g++",)),
        Finding("torch", "missing", "none", needed=True, pip=("torch>=2.10",)),
    )
    monkeypatch.setattr(doctor, "examine", lambda _: findings)
    assert main(["doctor"]) == 3
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "next: apt-get install python3-dev g++",
        "next: pip install 'torch>=2.10'",
    ]


def test_the_cache_is_told_with_what_it_holds_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    Store(folder / "objects").put(f"{0:032x}.o", b"x" * 1000)
    found = look(around(tmp_path, HUBKERNELS_CACHE=str(folder), HUBKERNELS_CACHE_SIZE="2GB"), "cache")
    assert (found.state, found.text) == ("ok", f"{folder}/objects: 1 entries, 0.00 of 2.00 GB")
    assert look(around(tmp_path, HUBKERNELS_CACHE_SIZE="large"), "cache").text == "not a size: 'large'"
    (tmp_path / "file").touch()
    found = look(around(tmp_path, HUBKERNELS_CACHE=str(tmp_path / "file")), "cache")
    assert (found.state, found.text) == ("warning", f"{tmp_path}/file is not a folder")
    if Path("/proc/self").exists():  # where not even root can make a folder
        found = look(around(tmp_path, HUBKERNELS_CACHE="/proc/x"), "cache")
        assert (found.state, "/proc" in found.text) == ("warning", True)
    found = look(around(tmp_path, HOME=str(tmp_path / "file")), "cache")
    assert found.text.startswith(f"{tmp_path}/file is not a folder: objects are kept in {tmp_path}/build/.hubkernels")


def test_json_has_every_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # unit tests start no compiler
    assert main(["doctor", "--json", "-C", str(tmp_path)]) in {0, 3}
    subjects = [finding["subject"] for finding in json.loads(capsys.readouterr().out)]
    assert subjects[:8] == ["command", "python", "compiler", "torch", "ninja", "client", "git", "disk"]
    assert subjects[8:] == ["cache", "temp", "cpu", "cuda", "cuda host"]
