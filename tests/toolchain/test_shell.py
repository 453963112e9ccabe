"""`devshell` and `testshell`: what can be compiled and imported in them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hubkernels.build.search import search_folders
from tests.conftest import Cli, SmallProject, environment

pytest.importorskip("torch", reason="shells are for an installed torch")


def run(project: SmallProject, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The verb in a process of its own, which it gives to the shell."""
    return subprocess.run(
        [sys.executable, "-m", "hubkernels.cli", *words],
        cwd=project.root,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def test_a_source_compiles_by_the_variables_of_a_devshell(small: SmallProject) -> None:
    done = run(small, "devshell", "-c", "$CXX $CXXFLAGS -fsyntax-only torch-ext/binding.cpp && echo fine")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_a_devshell_searches_the_folders_of_a_build(small: SmallProject, cli: Cli) -> None:
    """Those of the tables, the usual ones, and those that hubkernels puts before the compiler's own."""
    (small.root / "csrc").mkdir()
    (small.root / "csrc/usual.h").touch()
    (small.root / "cpu/own.cpp").write_text('#include "kernel.h"\n#include "usual.h"\n#include "registration.h"\n')
    done = run(small, "devshell", "-c", "$CXX $CXXFLAGS -fsyntax-only cpu/own.cpp && echo fine")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    variables = json.loads(cli("devshell", small.root, "--print-env", "--json").out)
    (step, *_) = json.loads(cli("plan", small.root).out)[0]["steps"]
    folders = [folder for folder in search_folders(step["command"]) if folder.startswith("/")]
    assert folders
    assert set(folders) <= set(variables["CPLUS_INCLUDE_PATH"].split(":"))


def test_a_program_links_by_the_variables_of_a_devshell(small: SmallProject) -> None:
    (small.root / "main.cpp").write_text(
        "#include <c10/core/Device.h>\nint main() { return c10::Device(c10::kCPU).is_cpu() ? 7 : 1; }\n",
        encoding="utf-8",
    )
    done = run(small, "devshell", "-c", "$CXX -std=c++20 main.cpp -o main $LDLIBS && ./main")
    assert done.returncode == 7, done.stderr


def test_the_exit_code_is_the_commands(small: SmallProject) -> None:
    assert run(small, "devshell", "--command", "exit 9").returncode == 9


def test_the_variables_are_printed_for_scripts(small: SmallProject, cli: Cli) -> None:
    code = (
        f'eval "$({sys.executable} -m hubkernels.cli devshell --print-env)"; echo "$HUBKERNELS_VARIANT"; $CXX --version'
    )
    done = subprocess.run(["sh", "-euc", code], cwd=small.root, capture_output=True, text=True, check=True)
    variables = json.loads(cli("devshell", small.root, "--print-env", "--json").out)
    assert done.stdout.splitlines()[0] == variables["HUBKERNELS_VARIANT"]
    assert str(small.root / "include") in variables["CPLUS_INCLUDE_PATH"].split(":")
    assert "PYTHONPATH" not in variables  # nothing is built


def test_paths_of_the_user_come_after_ours(small: SmallProject) -> None:
    done = run(small, "devshell", "-c", 'echo "$LIBRARY_PATH"', LIBRARY_PATH="/of/the/user")
    assert done.stdout.endswith(":/of/the/user\n")


def test_a_variant_that_is_not_there_is_refused(small: SmallProject, cli: Cli) -> None:
    ran = cli("devshell", small.root, "--variant", "torch-typo", "--print-env")
    assert (ran.code, "has no variant torch-typo" in ran.err) == (2, True)


def test_a_shell_that_cannot_be_started_is_said(small: SmallProject) -> None:
    done = run(small, "devshell", SHELL="/no/such/shell")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        3,
        "error: cannot start /no/such/shell: No such file or directory",
    )


def test_without_a_command_the_users_shell_is_started(small: SmallProject, tmp_path: Path) -> None:
    shell = tmp_path / "my shell"
    shell.write_text('#!/bin/sh\necho "in $HUBKERNELS_VARIANT with $# arguments"\n', encoding="utf-8")
    shell.chmod(0o755)
    done = run(small, "devshell", SHELL=str(shell))
    assert done.stdout.startswith("in torch-stable-abi210-cpu-")
    assert done.stdout.endswith(" with 0 arguments\n")
    assert "`exit` leaves this shell" in done.stderr


def test_a_testshell_builds_and_the_kernel_is_imported_by_its_name(small: SmallProject) -> None:
    code = python("import my_kernel; print(my_kernel.answer(), my_kernel.layers.WHOSE)")
    done = run(small, "testshell", "-c", code)
    assert (done.returncode, done.stdout) == (0, "42 42\n"), done.stderr
    small.write(answer=50)
    assert run(small, "testshell", "-c", code).stdout == "50 50\n"
    assert run(small, "devshell", "-c", code).stdout == "50 50\n"  # what is built is there too


def test_the_stock_client_takes_the_kernel_from_here(small: SmallProject) -> None:
    pytest.importorskip("kernels", reason="the stock client is not installed")
    text = (small.root / "build.toml").read_text(encoding="utf-8")
    (small.root / "build.toml").write_text(
        text.replace("[torch]", '[general.hub]\nrepo-id = "owner/my-kernel"\n\n[torch]'), encoding="utf-8"
    )
    load = "kernels.get_kernel('owner/my-kernel', version=1, backend='cpu')"
    code = python(f"import kernels; print({load}.answer())")
    done = run(small, "testshell", "-c", code, HF_HUB_OFFLINE="1", LOCAL_KERNELS="other/kernel=/elsewhere")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    variables = json.loads(run(small, "testshell", "--print-env", "--json").stdout)
    assert variables["LOCAL_KERNELS"] == f"owner/my-kernel={small.root}/build/my-kernel"


def test_a_package_without_a_repo_id_is_said_to_be_loaded_by_its_folder(small: SmallProject) -> None:
    done = run(small, "testshell", "-c", "env")
    assert "LOCAL_KERNELS" not in done.stdout
    assert f"my-kernel has no general.hub.repo-id: load it with get_local_kernel(Path('{small.root}/" in done.stderr


def test_a_colon_in_the_folder_is_told(tmp_path: Path, cli: Cli) -> None:
    """It ends an entry of PYTHONPATH: what is in the folder would not be found, and nothing would say why."""
    project = SmallProject(tmp_path / "a:b", "my-kernel").write().without_torch()
    ran = cli("devshell", "--project", project.root, "--print-env")
    assert ran.code == 0
    assert "a:b has a colon, which ends an entry of PYTHONPATH" in ran.err
