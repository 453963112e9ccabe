"""Words of compiler command lines, one by one."""

from __future__ import annotations

import pytest

from hubkernels.config.flags import why_refused, why_suspicious
from tests.conftest import Cli, SmallProject


@pytest.mark.parametrize(
    "word",
    [
        *("-B", "-B/opt/x", "--sysroot=/x", "-isysroot", "--gcc-toolchain=/x", "--config=x.cfg", "-Xclang", "-Wa,-Ix"),
        *("-fno-integrated-as", "-fplugin=x.so", "-fpass-plugin=x.so", "-fprofile-use", "-fprofile-use=/x"),
        *("-fprofile-instr-use=x", "-fauto-profile=x", "-fmodules", "$<$<CXX_COMPILER_ID:GNU>:-B/opt/x>"),
    ],
)
def test_a_flag_that_brings_in_what_no_compiler_lists_is_refused_with_the_way_out(word: str) -> None:
    refused = why_refused(word)
    assert refused
    assert "what no compiler lists" in refused[0]
    assert "a script that CXX names" in str(refused[1])


@pytest.mark.parametrize(
    "word",
    [
        *(
            "--include-directory=a",
            "--include-directory",
            "--include-directory-after=a",
            "--include-prefix",
            "-iprefix",
        ),
        *(
            "-iwithprefixbefore",
            "-iwithprefix",
            "-imultilib",
            "-isystem-after",
            "-cxx-isystem",
            "--include",
            "-Ia;-iprefix",
        ),
        *(
            "-include-pch",
            "-stdlib=libc++",
            "-resource-dir",
            "-resource-dir=/x",
            "-working-directory=/x",
            "-I=a",
            "-I$SYSROOT/a",
        ),
    ],
)
def test_a_search_for_headers_that_is_not_known_is_refused_with_the_way_out(word: str) -> None:
    refused = why_refused(f"$<1:{word}>" if ";" in word else word)
    assert refused
    assert "searches for headers in a way that is not supported" in refused[0]
    assert "write -I, -iquote, -isystem or -idirafter" in str(refused[1])


@pytest.mark.parametrize("word", ["-o", "-ofoo", "-o/etc/foo"])
def test_where_an_object_goes_is_the_builders_to_say(word: str) -> None:
    refused = why_refused(word)
    assert refused
    assert "the builder's to give" in refused[0]


@pytest.mark.parametrize("word", ["-I", "-isystem", "-include", "-D", "-x"])
def test_a_list_does_not_end_in_a_flag_that_takes_a_word(small: SmallProject, cli: Cli, word: str) -> None:
    """It would take the builder's own next word."""
    toml = small.root / "build.toml"
    toml.write_text(toml.read_text().replace("[kernel.cpu]", f'[kernel.cpu]\ncxx-flags = ["-DA", "{word}"]'))
    ran = cli("check", "config", "-C", small.root)
    assert ran.code == 2
    assert f"cxx-flags ends in a flag that takes a word: '{word}'" in ran.err
    assert "cxx-flags[1]" in ran.err


def test_a_folder_below_the_compilers_own_is_refused_as_a_word_of_its_own() -> None:
    assert why_refused("=a", "-isystem")
    assert why_refused("a", "-isystem") is None
    assert why_refused("=a") is None


@pytest.mark.parametrize(
    "word", ["--specs", "-specs", "--output", "--output=x", "--define-macro", "--compile", "--dependencies"]
)
def test_the_long_name_of_a_flag_of_the_builder_is_refused(word: str) -> None:
    assert "the builder's to give" in (why_refused(word) or [""])[0]


@pytest.mark.parametrize("word", ["-lfoo", "-L/opt/lib", "-Wl,-z,now", "-fuse-ld=lld", "-Xlinker", "-shared"])
def test_a_flag_of_the_link_is_told_to_reach_nothing(word: str) -> None:
    assert why_refused(word) is None
    assert why_suspicious(word) == (
        f"has a flag of the link, which it never reaches: {word}",
        "kernels link the libraries that every machine has: drop it, or compile that library's sources",
    )


@pytest.mark.parametrize(
    "word",
    [
        "-lineinfo",
        "-lgomp",
        "-lm",
        "-flto",
        "-Wall",
        "-Wa,--noexecstack",
        "-Xptxas=-v",
        "-fprofile-arcs",
        "-mavx2",
        "-isystem",
        "-isystemx",
        "-iquotex",
        "-idirafter",
        "-include",
        "-includex.h",
        "-imacros",
        "-Ix",
        "-nostdinc",
        "-fno-inline",
    ],
)
def test_other_flags_are_no_matter(word: str) -> None:
    assert (why_refused(word), why_suspicious(word)) == (None, None)
