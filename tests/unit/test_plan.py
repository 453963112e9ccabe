"""Plans without a compiler: what the id depends on, which files are compiled again, whole plans as golden files."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.build import plan as planning
from hubkernels.build.compile_commands import entries
from hubkernels.build.inquiry import parse_make_rule
from hubkernels.build.ninja import FailedStep, read_output, render
from hubkernels.build.plan import Inputs, plan
from hubkernels.build.report import Progress
from hubkernels.build.scan import ScannedSource
from hubkernels.build.sources import Source
from hubkernels.host.machine import TorchSdk
from hubkernels.model.backend import CPU
from hubkernels.model.plan import BuildPlan
from hubkernels.model.project import Package, Torch
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import RUNTIME, Compiler
from hubkernels.toolchain.cpu import Toolchain, stable_abi_macro
from hubkernels.toolchain.link import LinkStubs

GOLDEN = Path(__file__).parents[1] / "golden"
TOOLS = Toolchain(
    Compiler(
        ("/usr/bin/g++",),
        "g++",
        Version((12, 2, 0)),
        "compiler-hash",
        {name: Path("/usr/lib/gcc/12", name) for name in RUNTIME},
    ),
    TorchSdk("2.13.0", Path("/site/torch")),
    Path("/usr/include/python3.11"),
    LinkStubs("x86_64", "exports-hash", "functions-hash", Path("/site/hubkernels/toolchain/compat")),
    Path("/site/hubkernels/toolchain/include"),
)
VARIANT = Variant(Version((2, 10)), CPU, Platform("x86_64", "linux"), stable_abi=True)
PACKAGE = Package("my-kernel", 1, "Apache-2.0", (CPU,), Torch(), Path(), "torch-ext/my_kernel")
HEADER = ("torch/include/torch/csrc/stable/library.h", "h0")
INPUTS = Inputs(
    sources=(
        ScannedSource(Source("torch-ext/binding.cpp", ("-Iinclude",)), (("torch-ext/binding.cpp", "s0"), HEADER), True),
        ScannedSource(Source("cpu/a b$.cpp", ("-Iinclude", "-mavx2")), (("cpu/a b$.cpp", "s1"),), False),
    ),
    python=(("__init__.py", "torch-ext/my_kernel/__init__.py", "p0"),),
    folder="/project",
)


def made(inputs: Inputs = INPUTS, package: Package = PACKAGE, tools: Toolchain = TOOLS) -> BuildPlan:
    return plan(package, VARIANT, tools, inputs)


def test_the_plan_is_the_golden_one() -> None:
    """A change of any command shows here. Regenerate with `python -m tests.golden.regenerate` and read the diff."""
    assert json.loads((GOLDEN / "plan.json").read_text()) == made().to_json()


def test_the_ninja_file_is_the_golden_one() -> None:
    assert (GOLDEN / "build.ninja").read_text() == render(made().steps, VARIANT.tag, "build/.hubkernels", ["measured"])


def test_the_id_names_package_backend_and_content_and_nothing_else() -> None:
    op_id = made().op_id
    stem, _, uid = op_id.rpartition("_")
    assert stem == "_my_kernel_cpu"
    assert len(uid) == 12
    assert uid.isalnum()
    assert uid == uid.lower()
    assert made().op_id == op_id


@pytest.mark.parametrize(
    "inputs",
    [
        replace(INPUTS, python=(("__init__.py", "torch-ext/my_kernel/__init__.py", "p1"),)),
        replace(INPUTS, python=(("other.py", "torch-ext/my_kernel/__init__.py", "p0"),)),
        replace(INPUTS, sources=INPUTS.sources[:1]),
        replace(
            INPUTS, sources=(replace(INPUTS.sources[0], inputs=(("torch-ext/binding.cpp", "s0"),)), INPUTS.sources[1])
        ),
        replace(
            INPUTS,
            sources=(INPUTS.sources[0], replace(INPUTS.sources[1], source=Source("cpu/a b$.cpp", ("-Iinclude",)))),
        ),
    ],
    ids=["python file", "python name", "source gone", "header gone", "flag gone"],
)
def test_the_id_changes_with_any_content(inputs: Inputs) -> None:
    assert made(inputs).op_id != made().op_id


def test_the_id_changes_with_the_version_and_the_compiler() -> None:
    other = replace(TOOLS, compiler=replace(TOOLS.compiler, fingerprint="another"))
    assert len({made().op_id, made(package=replace(PACKAGE, version=2)).op_id, made(tools=other).op_id}) == 3


@pytest.mark.parametrize("field", ["exports", "functions"])
def test_the_id_changes_with_what_is_linked_to_every_library(field: str) -> None:
    stubs = {
        "exports": replace(TOOLS.stubs, exports="another"),
        "functions": replace(TOOLS.stubs, functions="another"),
    }
    other = replace(TOOLS, stubs=stubs[field])
    assert made(tools=other).op_id != made().op_id
    assert made(tools=other).library != made().library


def test_the_id_does_not_change_with_the_places_of_torch_and_compiler_nor_with_a_launcher() -> None:
    runtime = {name: Path("/opt/lib64", name) for name in RUNTIME}
    moved = Toolchain(
        replace(TOOLS.compiler, command=("ccache", "/opt/bin/g++"), runtime=runtime),
        TorchSdk("2.13.0", Path("/elsewhere/torch")),
        Path("/opt/python/include"),
        replace(TOOLS.stubs, compat=Path("/opt/hubkernels/compat")),
        Path("/opt/hubkernels/include"),
    )
    assert made(tools=moved).op_id == made().op_id
    assert [step.output for step in made(tools=moved).steps] == [step.output for step in made().steps]


def test_another_kernel_source_recompiles_itself_and_the_binding_that_has_the_id() -> None:
    changed = replace(INPUTS.sources[1], inputs=(("cpu/a b$.cpp", "s2"),))
    before, after = made(), made(replace(INPUTS, sources=(INPUTS.sources[0], changed)))
    assert before.steps[0].output != after.steps[0].output
    assert before.steps[1].output != after.steps[1].output


def test_another_python_file_recompiles_the_binding_alone() -> None:
    before = made()
    after = made(replace(INPUTS, python=(("__init__.py", "torch-ext/my_kernel/__init__.py", "p1"),)))
    assert before.steps[0].output != after.steps[0].output
    assert before.steps[1].output == after.steps[1].output


def test_the_id_changes_with_the_file_that_the_builder_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    before = made().op_id
    monkeypatch.setattr(planning, "OPS_PY", planning.OPS_PY + "# a newer hubkernels\n")
    assert made().op_id != before


def test_only_sources_that_mention_it_are_compiled_with_the_id() -> None:
    binding, kernel, *_ = made().steps
    define = f"-DTORCH_EXTENSION_NAME={made().op_id}"
    assert define in binding.command
    assert define not in kernel.command


def test_only_the_machines_own_folders_have_other_names() -> None:
    """One whose name begins alike, or ends so, is another folder: two commands would be one."""
    words = ["-I/site/torch", "-I/site/torch/include", "-isystem/site/torch", '"/site/torch/x.h"']
    assert [TOOLS.portable(word) for word in words] == [
        *("-I<torch>", "-I<torch>/include", "-isystem<torch>"),
        '"<torch>/x.h"',
    ]
    for other in ("-I/site/torchvision/include", "-I/site/torch-extra", "-I/other/site/torch", "-I/site/torch.old"):
        assert TOOLS.portable(other) == other


def test_debug_information_of_sanitized_objects_names_no_checkout() -> None:
    """They are kept for every checkout."""
    word = f"-ffile-prefix-map={INPUTS.folder}=."
    assert not any(word in step.command for step in made().steps)
    sanitized = made(tools=replace(TOOLS, sanitizers=("address",)))
    assert all(word in step.command for step in sanitized.steps if step.verb == "compile")
    moved = made(replace(INPUTS, folder="/elsewhere"), tools=replace(TOOLS, sanitizers=("address",)))
    assert moved.op_id == sanitized.op_id


def test_a_flag_that_looks_like_a_stand_in_reaches_the_compiler_as_it_is(tmp_path: Path) -> None:
    """They were replaced by the folder of the run, whose name is another every time."""
    object_name = made().steps[0].output
    flags = ('-DQ="$STUBS"', "-D", "$OUTPUT", "-I$STUBS/a", "-include", object_name)
    source = replace(INPUTS.sources[0], source=Source("torch-ext/binding.cpp", flags))
    planned = made(replace(INPUTS, sources=(source,)))
    step, *_, link = planned.steps
    assert step.placed({step.output: "run/a.o"}, "run/stubs") == step.command
    (entry,) = entries(planned, tmp_path)
    shell = shlex.split(read_commands(render([step], "tag", "work", ["measured"]))[0])
    for command in (entry["arguments"], shell):
        at = command.index(flags[0])
        assert tuple(command[at : at + len(flags)]) == flags
    assert step.command[step.target - 1 :] == ("-o", "$OUTPUT")
    placed = link.placed({name: f"run/{name}" for name in link.after}, "run/stubs")
    assert {"run/stubs/libc.so.6", f"run/{step.output}"} <= set(placed)
    assert not any("$STUBS" in word for word in placed)


def read_commands(ninja: str) -> list[str]:
    """The commands of a build.ninja, as the shell gets them."""
    found = [line.partition(" = ")[2] for line in ninja.splitlines() if line.startswith("  command = ")]
    return [command.replace("$$", "$") for command in found if command != "$command"]


def test_the_target_version_is_spelled_as_torch_reads_it() -> None:
    assert stable_abi_macro(Version((2, 10))) == "0x020a000000000000"


def test_make_rules_are_read_with_their_escapes() -> None:
    text = "x.o: src/a\\ b.cpp \\\n /usr/include/stdio.h \\\n inc/c\\#d.h cash$$.h\n"
    assert parse_make_rule(text) == ["src/a b.cpp", "/usr/include/stdio.h", "inc/c#d.h", "cash$.h"]


def test_ninjas_lines_are_told_apart() -> None:
    lines = [
        "\x1f1/3 compile a.cpp (tag)",
        "a.cpp:1:2: warning: careful",
        "FAILED: [code=1] build/x/b.o",
        "g++ -c b.cpp",
        "b.cpp:1:1: error: no",
        "  1 | nonsense",
        "\x1f2/3 compile b.cpp (tag)",
        "FAILED: build/x/c.o",
        "g++ -c c.cpp",
        "c.cpp:9:9: error: neither",
        "ninja: build stopped: cannot make progress due to previous errors.",
    ]
    assert list(read_output(lines)) == [
        Progress(1, 3, "compile a.cpp (tag)"),
        "a.cpp:1:2: warning: careful",
        FailedStep("build/x/b.o", "b.cpp:1:1: error: no\n  1 | nonsense"),
        Progress(2, 3, "compile b.cpp (tag)"),
        FailedStep("build/x/c.o", "c.cpp:9:9: error: neither"),
        "ninja: build stopped: cannot make progress due to previous errors.",
    ]
