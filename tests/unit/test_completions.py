"""The completion scripts, run by the shells that are here; and the tree of verbs that they are made from."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from hubkernels.cli.app import app
from hubkernels.cli.completions import SHELLS
from hubkernels.cli.tree import verbs
from tests.conftest import Cli

VERBS = {" ".join(verb.words): verb for verb in verbs(app)}


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(shell), reason=f"this machine has no {shell}")


def test_the_tree_has_verbs_groups_and_what_is_hidden() -> None:
    assert VERBS[""].options[0].names == ("--version",)
    assert {"build", "bench", "bench run", "check", "completions"} <= set(VERBS)
    assert {name for name, verb in VERBS.items() if verb.hidden} >= {"build-and-copy", "check-builds", "generate-docs"}
    build = {option.names[0]: option for option in VERBS["build"].options}
    assert build["--jobs"].names == ("--jobs", "-j")
    assert (build["--jobs"].value, build["--json"].value) == ("N", None)
    assert "--cores" not in build
    direction = next(option for option in VERBS["bench run"].options if option.names == ("--direction",))
    assert (direction.choices, direction.default) == (("fwd", "f+b", "both"), "both")
    assert VERBS["completions"].known == tuple(SHELLS)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_has_every_verb_and_option_and_nothing_hidden(cli: Cli, shell: str) -> None:
    text = cli("completions", shell).out
    for verb in VERBS.values():
        if verb.hidden:
            assert not verb.words or verb.words[-1] not in text.replace("kernel-builder", "")
            continue
        for name in (*verb.words, *(name for option in verb.options for name in option.names)):
            bare = name.lstrip("-") if shell == "fish" else name
            assert bare in text
    assert "kernel-builder" in text
    assert "hubkernels" in text


def test_a_shell_that_there_is_none_for_is_refused(cli: Cli) -> None:
    ran = cli("completions", "tcsh")
    assert ran.code == 2
    assert "powershell" in ran.err


CASES = [
    ("bu", {"build"}),
    ("build --v", {"--variant", "--verbose"}),
    ("build --jobs 3 --mem", {"--memory"}),
    ("bench ", {"run"}),
    ("bench run --direction ", {"fwd", "f+b", "both"}),
    ("completions p", {"powershell"}),
    ("check par", {"parity"}),
    ("check load --js", {"--json"}),
    ("build --variant ", set()),
]


@needs("bash")
@pytest.mark.parametrize(("line", "expected"), CASES)
def test_bash_completes(tmp_path: Path, cli: Cli, line: str, expected: set[str]) -> None:
    words = ["kernel-builder", *line.split(" ")]
    code = (
        f"{cli('completions', 'bash').out}\n"
        f"COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}\n"
        '_kernel_builder && printf "%s\\n" "${COMPREPLY[@]}"; complete -p hubkernels'
    )
    done = subprocess.run(["bash", "-euc", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    *found, registered = done.stdout.splitlines()
    assert set(found) - {""} == expected
    assert registered == "complete -o filenames -F _kernel_builder hubkernels"


@needs("fish")
@pytest.mark.parametrize(("line", "expected"), CASES)
def test_fish_completes(tmp_path: Path, cli: Cli, line: str, expected: set[str]) -> None:
    code = f"{cli('completions', 'fish').out}\ncomplete -C {shlex.quote(f'kernel-builder {line}')}"
    done = subprocess.run(["fish", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = {line.split("\t")[0] for line in done.stdout.splitlines()}
    assert found == expected


@pytest.mark.parametrize("shell", [pytest.param(name, marks=needs(name)) for name in ("bash", "zsh", "fish")])
def test_the_shell_can_parse_its_script(cli: Cli, shell: str) -> None:
    text = cli("completions", shell).out
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs("zsh")
def test_zsh_registers_the_function(cli: Cli) -> None:
    code = f"autoload -U compinit; compinit -u -D\n{cli('completions', 'zsh').out}\nprint $_comps[hubkernels]"
    done = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "_kernel_builder"
