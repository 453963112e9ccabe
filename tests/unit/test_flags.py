"""Words of compiler command lines, one by one."""

from __future__ import annotations

import pytest

from hubkernels.config.flags import why_refused, why_suspicious
from tests.conftest import Cli, SmallProject


@pytest.mark.parametrize(
    "word",
    [
        *("-B", "-B/opt/x", "--sysroot=/x", "-isysroot", "--gcc-toolchain=/x", "--config=x.cfg", "-Xclang"),
        *("-fsanitize-ignorelist=x", "-fsanitize-coverage-allowlist=x", "-fbasic-block-sections=x", "-mllvm"),
        *("-fxray-attr-list=x", "-fthinlto-index=x", "-fprofile-remapping-file=x", "-fbuild-session-file=x"),
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
        *("-I-", "-F", "-Fx", "-F=x", "-iframework", "-iframeworkx", "-remap", "-index-header-map", "--embed-dir=x"),
    ],
)
def test_a_search_for_headers_that_is_not_known_is_refused_with_the_way_out(word: str) -> None:
    refused = why_refused(f"$<1:{word}>" if ";" in word else word)
    assert refused
    assert "searches for headers in a way that is not supported" in refused[0]
    assert "write -I, -iquote, -isystem or -idirafter" in str(refused[1])


def test_a_string_is_one_flag() -> None:
    refused = why_refused("-mavx2 -mfma")
    assert refused == ("has several flags in one string: '-mavx2 -mfma'", "write each as a string of its own")
    assert why_refused('-DNAME="a - b"') is None


@pytest.mark.parametrize("word", ["-o", "-ofoo", "-o/etc/foo"])
def test_where_an_object_goes_is_the_builders_to_say(word: str) -> None:
    refused = why_refused(word)
    assert refused
    assert "the builder's to give" in refused[0]


@pytest.mark.parametrize(
    "word",
    [
        *(
            "-Wa,x.s",
            "-Wa,--noexecstack,-Ia",
            "-Wa,-I,a",
            "-Wa,-Ix",
            "-Wa,",
            "-Wa,-",
            "-Wa,--",
            "-Wa,-tx",
            "-Wa,--itbl=x",
        ),
        "$<1:-Wa,x.s>",
    ],
)
def test_a_file_for_the_assembler_is_refused(word: str) -> None:
    refused = why_refused(word)
    assert refused
    assert "hands the assembler a file" in refused[0]
    assert "name sources in src" in str(refused[1])


@pytest.mark.parametrize(
    "word",
    [
        *("-fopt-info=x", "-fopt-info-vec-missed=x", "-fdump-tree-all", "-fdump-go-spec=x", "-aux-info", "-aux-info=x"),
        *(
            "-ftime-trace",
            "-ftime-trace=x",
            "-fstack-usage",
            "-fcallgraph-info=su",
            "-gsplit-dwarf",
            "-gsplit-dwarf=single",
        ),
        *("--coverage", "-coverage", "-fprofile-arcs", "-fprofile-generate", "-fprofile-instr-generate=x"),
        *(
            "-ftest-coverage",
            "-dumpbase",
            "-dumpbase-ext",
            "-dumpdir",
            "--dumpdir",
            "-dM",
            "-dA",
            "-da",
            "-dp",
            "-time=x",
        ),
        *("-fsave-optimization-record", "-foptimization-record-file=x", "-fproc-stat-report=x", "-save-stats"),
        *(
            "-serialize-diagnostics",
            "--serialize-diagnostics",
            "--analyze",
            "-emit-llvm",
            "-fdiagnostics-format=json-file",
        ),
        *(
            "-fdiagnostics-add-output=sarif",
            "-fcrash-diagnostics-dir=x",
            "-fcompare-debug",
            "-dependency-file",
            "-fdeps-file=x",
        ),
    ],
)
def test_a_compiler_writes_the_object_alone(word: str) -> None:
    refused = why_refused(word)
    assert refused
    assert "makes the compiler write other files" in refused[0]
    assert "devshell" in str(refused[1])


@pytest.mark.parametrize("word", ["-frecord-gcc-switches", "-grecord-gcc-switches", "-grecord-command-line"])
def test_the_command_line_does_not_go_into_an_object(word: str) -> None:
    refused = why_refused(word)
    assert refused
    assert "writes the command line into the object" in refused[0]
    assert "leave it out" in str(refused[1])


@pytest.mark.parametrize("word", ["-print-search-dirs", "--print-file-name=x", "--help=common", "--version", "-###"])
def test_a_step_compiles(word: str) -> None:
    assert why_refused(word) == (
        f"has a flag with which the compiler prints, and compiles nothing: {word!r}",
        "leave it out",
    )


@pytest.mark.parametrize("word", ["-I", "-isystem", "-include", "-D", "-x", "-u", "--param", "-Xlinker"])
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
        *("-fopt-info", "-fopt-info-vec-missed", "-fbasic-block-sections=all", "-ftime-report", "-time", "-pg"),
        *(
            "-fsanitize-recover=all",
            "-Wa,--noexecstack,-mrelax-relocations=no,--defsym=A=1",
            "-gno-record-gcc-switches",
        ),
        *("-diag-suppress=174", "-dc", "-dlto", "-dopt", "-debug", "-ftree-vectorize", "-finline-functions", "-g3"),
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
