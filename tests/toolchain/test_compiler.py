"""What a compiler is known by: its programs, their libraries, and what its driver does of its own accord."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.files import FileHashes
from hubkernels.host.process import run
from hubkernels.toolchain.compiler import RUNTIME, compiler_environment, find_compiler
from hubkernels.toolchain.driver import Driver, ask_driver
from hubkernels.toolchain.needed import needed_libraries


def driver(compiler: str) -> Driver:
    path = shutil.which(compiler)
    assert path
    return ask_driver((path,), compiler_environment(os.environ))


def real(program: str) -> str:
    return os.path.realpath(shutil.which(program) or program)


def test_every_program_that_makes_a_library_is_a_part(compiler: str) -> None:
    parts = {Path(path).name for path in driver(compiler).files()}
    wanted = {"clang", "ld"} if "clang" in compiler else {"cc1plus", "as", "collect2", "ld", "lto1", "liblto_plugin.so"}
    assert wanted <= parts


@pytest.mark.parametrize("program", ["clang++", "ld", "as"])
def test_libraries_are_those_that_the_loader_takes(program: str) -> None:
    path = shutil.which(program)
    if path is None or Path(real(program)).read_bytes()[:4] != b"\x7fELF":
        pytest.skip(f"{program} is not installed as a program")
    loaded = re.findall(r"=> (\S+)", run(("ldd", path)).output)
    ours = re.compile(r"lib(LLVM|clang|bfd)")
    expected = {os.path.realpath(each) for each in loaded if ours.match(Path(each).name)}
    assert set(needed_libraries(path, ours)) == expected


def test_a_file_that_is_no_program_needs_nothing(tmp_path: Path) -> None:
    for content in (b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + b"\xff" * 80):
        (tmp_path / "file").write_bytes(content)
        assert needed_libraries(str(tmp_path / "file"), re.compile("")) == []


def test_a_compiler_from_a_relative_entry_of_path_is_run_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.which("g++")
    if path is None:
        pytest.skip("g++ is not installed")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/g++").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    environment = compiler_environment({**os.environ, "PATH": f"bin:{os.environ['PATH']}"})
    environment.pop("CXX", None)
    found = find_compiler(environment, FileHashes(tmp_path / "hashes.json"))
    assert found.command == (str(tmp_path / "bin/g++"),)


def test_two_questions_have_one_answer_and_name_no_folder(compiler: str) -> None:
    words = driver(compiler).words()
    assert words == driver(compiler).words()
    assert not [word for command in words for word in command if "/" in word]


@pytest.mark.parametrize("folder", ["t mp", "t,mp"])
def test_where_temporary_files_go_is_no_part_of_a_compiler(
    compiler: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = driver(compiler).words()
    (tmp_path / folder).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / folder))
    assert driver(compiler).words() == words


def test_the_files_of_the_link_are_those_of_the_driver(compiler: str) -> None:
    for name in RUNTIME:
        said = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        assert driver(compiler).library(name) == Path(said.strip()).resolve()


def test_a_profile_that_a_driver_names_is_a_part(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text("one")
    script = tmp_path / "driver"
    script.write_text(f'#!/bin/sh\nexec g++ -fauto-profile={profile} "$@"\n')
    script.chmod(0o755)
    environment = compiler_environment({**os.environ, "CXX": str(script)})
    before = find_compiler(environment, FileHashes(tmp_path / "hashes")).fingerprint
    profile.write_text("two")
    assert find_compiler(environment, FileHashes(tmp_path / "hashes")).fingerprint != before


def test_without_the_static_library_its_package_is_named(tmp_path: Path) -> None:
    """A driver that looks for libraries in a folder which has all but one."""
    for name in RUNTIME[:3]:
        (tmp_path / name).touch()
    script = tmp_path / "driver"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *-###*) '
        f'echo " ld {tmp_path}/crtbeginS.o -L{tmp_path} {tmp_path}/crtendS.o" >&2 ;; *) exec g++ "$@" ;; esac\n'
    )
    script.chmod(0o755)
    with pytest.raises(EnvironmentLacksError, match=r"no libstdc\+\+\.a\n(.*\n)*.*libstdc\+\+-static"):
        find_compiler(compiler_environment({**os.environ, "CXX": str(script)}), FileHashes(tmp_path / "hashes"))


def test_variables_that_add_flags_are_left_out_and_those_of_launchers_stay() -> None:
    kept = compiler_environment(
        {"NIX_CFLAGS_COMPILE_x86_64_unknown_linux_gnu": "-O0", "CCC_ADD_ARGS": "-O0", "CPATH": "/x", "CCACHE_DIR": "/c"}
    )
    assert kept.keys() == {"CCACHE_DIR", "LC_ALL", "SOURCE_DATE_EPOCH"}
