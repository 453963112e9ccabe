"""Sanitized builds, without a compiler: what may be asked for, and that no such build is taken for a release."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.build.places import Places
from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.sanitizer import parse_sanitizers, sanitizer_environment
from tests.unit.test_plan import TOOLS, VARIANT, made

BOTH = ("address", "undefined")


@pytest.mark.parametrize("text", ["address,undefined", "undefined, address", "address,address,undefined"])
def test_sanitizers_are_named_in_any_order(text: str) -> None:
    assert parse_sanitizers(text) == BOTH


@pytest.mark.parametrize(("text", "named"), [("thread", "thread"), ("address,asan", "asan"), ("", "")])
def test_a_sanitizer_that_would_not_tell_the_truth_is_refused(text: str, named: str) -> None:
    with pytest.raises(InputError, match=f"no such sanitizer: {named}\n.*--sanitize\n.*allowed: address, undefined"):
        parse_sanitizers(text)


def test_a_sanitized_build_has_another_id_and_stands_where_no_client_looks() -> None:
    assert made(tools=replace(TOOLS, sanitizers=BOTH)).op_id != made().op_id
    assert made(tools=replace(TOOLS, sanitizers=BOTH[:1])).op_id != made(tools=replace(TOOLS, sanitizers=BOTH)).op_id
    folder = Places(Path("/project"), sanitized=True).artifact("my-kernel", VARIANT.tag)
    assert folder == Path("/project/build/.hubkernels/sanitized/my-kernel") / VARIANT.tag


def test_every_object_and_the_link_are_sanitized_and_keep_their_lines() -> None:
    for step in made(tools=replace(TOOLS, sanitizers=BOTH)).steps:
        assert "-fsanitize=address,undefined" in step.command
        assert "-fno-sanitize-recover=all" in step.command
        assert "-g1" in step.command or step.verb == "link"
        assert not any(",-s," in word for word in step.command)


def test_without_a_runtime_the_package_that_has_it_is_named(tmp_path: Path) -> None:
    """A compiler answers with the name alone where there is no such file."""
    driver = tmp_path / "clang++"
    driver.write_text('#!/bin/sh\necho "${1#-print-file-name=}"\n', encoding="utf-8")
    driver.chmod(0o755)
    compiler = Compiler((str(driver),), "clang", Version((14, 0, 6)), "hash", {})
    with pytest.raises(EnvironmentLacksError, match="libclang_rt.asan.*\n.*apt-get install libclang-rt-14-dev"):
        sanitizer_environment(compiler, BOTH, {})


@pytest.mark.parametrize("name", [f"libclang_rt.asan-{os.uname().machine}.so", "libclang_rt.asan.so"])
def test_the_runtime_of_llvm_is_found_in_either_layout(tmp_path: Path, name: str) -> None:
    driver = tmp_path / "clang++"
    driver.write_text(
        f'#!/bin/sh\nfile="{tmp_path}/${{1#-print-file-name=}}"\n[ -f "$file" ] && echo "$file" || basename "$file"\n',
        encoding="utf-8",
    )
    driver.chmod(0o755)
    for file in (name, "libstdc++.so.6"):
        (tmp_path / file).touch()
    compiler = Compiler((str(driver),), "clang", Version((19,)), "hash", {})
    preloaded = sanitizer_environment(compiler, BOTH, os.environ)["LD_PRELOAD"]
    assert preloaded == f"{tmp_path / name} {tmp_path / 'libstdc++.so.6'}"
