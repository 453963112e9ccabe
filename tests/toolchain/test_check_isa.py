"""`check isa`: flags written by hand, in the upstream form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Cli, Ran, SmallProject

pytest.importorskip("torch", reason="builds take the headers of an installed torch")

SECTION = """
[kernel.wide]
backend = "cpu"
depends = ["torch"]
include = ["include"]
cxx-flags = ["-mavx512f"]
src = ["cpu/wide.cpp"]
"""
SHARED = """
{linkage} float sum(const float* x) {{
  float s = 0;
  for (int i = 0; i < 64; ++i) s += x[i];
  return s;
}}
"""


def share(root: Path, linkage: str, flags: str) -> None:
    """A baseline and an AVX-512 source that call one function of a header."""
    for path, name in (("cpu/kernel.cpp", "narrow"), ("cpu/wide.cpp", "wide")):
        text = (root / path).read_text() if (root / path).exists() else '#include "kernel.h"\n'
        (root / path).write_text(f"{text}\nfloat {name}(const float* x) {{ return sum(x); }}\n")
    with (root / "include/kernel.h").open("a") as header:
        header.write(SHARED.format(linkage=linkage))
    toml = (root / "build.toml").read_text()
    toml = toml.replace("[kernel.cpu]\n", f"[kernel.cpu]\ncxx-flags = [{flags}]\n")
    (root / "build.toml").write_text(toml + SECTION)


def check(cli: Cli, root: Path) -> Ran:
    assert cli("build", "--project", root).code == 0
    return cli("check", "isa", "--project", root)


def test_a_function_that_is_kept_in_the_copy_that_every_machine_runs_is_a_warning(
    small: SmallProject, cli: Cli
) -> None:
    share(small.without_torch().root, "[[gnu::noinline]] inline", "")
    ran = check(cli, small.root)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("ok  isa  my-kernel")
    assert (
        "cpu/wide.cpp: _Z3sumPKf is also in cpu/kernel.cpp, compiled for every machine: the linker keeps one copy, "
        "here that of cpu/kernel.cpp, but another builder may keep this one, compiled with -mavx512f; "
        "give it internal linkage"
    ) in ran.err


def test_a_function_that_is_kept_in_a_copy_for_other_machines_fails(small: SmallProject, cli: Cli) -> None:
    """Two files with flags of their own, neither of which machines of the other need have."""
    share(small.without_torch().root, "[[gnu::noinline]] inline", '"-msse4a"')
    ran = check(cli, small.root)
    assert ran.code == 1
    assert "_Z3sumPKf is also in cpu/wide.cpp, compiled with -mavx512f: the linker keeps one copy, this one" in ran.err


def test_a_definition_of_other_machines_that_takes_the_place_of_a_merged_one_fails(
    small: SmallProject, cli: Cli
) -> None:
    """A full specialization is no weak symbol: the linker prefers it to what a template gave another file."""
    share(small.without_torch().root, "template <typename T> [[gnu::noinline]]", "")
    for path in ("cpu/kernel.cpp", "cpu/wide.cpp"):
        text = (small.root / path).read_text()
        (small.root / path).write_text(text.replace("sum(x)", "sum<int>(x)"))
    special = "template <>\nfloat sum<int>(const float* x) { return x[0]; }\n"
    wide = small.root / "cpu/wide.cpp"
    wide.write_text(wide.read_text().replace("float wide(", f"{special}float wide("))
    ran = check(cli, small.root)
    assert ran.code == 1
    assert "is also in cpu/kernel.cpp, compiled for every machine: the linker keeps one copy, this one" in ran.err


def test_machines_with_avx512_run_what_older_flags_make(small: SmallProject, cli: Cli) -> None:
    share(small.without_torch().root, "[[gnu::noinline]] inline", '"-mavx2", "-mfma"')
    ran = check(cli, small.root)
    assert ran.code == 0, ran.err
    assert "here that of cpu/kernel.cpp, but another builder" in ran.err


def test_with_internal_linkage_nothing_is_shared(small: SmallProject, cli: Cli) -> None:
    share(small.without_torch().root, "[[gnu::noinline]] static", "")
    ran = check(cli, small.root)
    assert (ran.code, ran.err) == (0, "")


def test_a_project_without_flags_of_its_own_is_passed_over(small: SmallProject, cli: Cli) -> None:
    ran = check(cli, small.without_torch().root)
    assert ran.code == 2, "it was named, and there is nothing to look at"
    assert "no source of" in ran.err


def test_objects_that_the_cache_has_no_more_are_made_again(small: SmallProject, cli: Cli, cold_cache: Path) -> None:
    """The library is still kept, so that no build makes them."""
    share(small.without_torch().root, "static", "")
    found = check(cli, small.root)
    objects = sorted(cold_cache.rglob("*.o"))
    for entry in objects:
        entry.unlink()
    assert cli("check", "isa", "--project", small.root) == found
    assert sorted(cold_cache.rglob("*.o")) == objects


def test_what_is_not_built_as_its_sources_are_is_said(small: SmallProject, cli: Cli) -> None:
    share(small.without_torch().root, "static", "")
    assert check(cli, small.root).code == 0
    (small.root / "cpu/kernel.cpp").write_text((small.root / "cpu/kernel.cpp").read_text() + "// changed\n")
    ran = cli("check", "isa", "--project", small.root)
    assert ran.code == 2
    assert "is not built as its sources are now\n  hint: run `kernel-builder build`" in ran.err


def test_what_init_writes_is_clean(tmp_path: Path, cli: Cli) -> None:
    assert cli("init", tmp_path / "new", "--name", "owner/my-kernel").code == 0
    ran = check(cli, tmp_path / "new")
    assert (ran.code, ran.err) == (0, "")
