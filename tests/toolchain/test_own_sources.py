"""Our own C++, by each compiler: no warning, and no code of a tier outside the tier's own object."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from hubkernels.build.pipeline import Builder
from hubkernels.build.select import choose
from hubkernels.build.settings import Settings
from hubkernels.build.sources import compiled_sources
from hubkernels.check.isa import IsaObject, check_objects, encoding, instructions, isa_flags
from hubkernels.config import load_project
from hubkernels.model.backend import CPU
from hubkernels.model.isa import ISAS
from hubkernels.model.plan import BuildPlan, Step
from hubkernels.model.variant import Variant
from tests.conftest import REPOSITORY, kept_name

pytest.importorskip("torch", reason="builds take the headers of an installed torch")

HERE = Builder(load_project(REPOSITORY), os.environ, Settings(jobs=2, system=True))
TARGETS = [
    (package, variant)
    for package in HERE.project.packages
    for variant in choose(HERE.decide(package), package)
    if isinstance(variant, Variant) and variant.backend == CPU
]
SOURCES = [source.path for package, variant in TARGETS for source in compiled_sources(package, variant, "g++")]
WARNINGS = ("-Wall", "-Wextra", "-Werror")
TIERS = [source for source in SOURCES if Path(source).name.startswith("avx")]


@dataclass(frozen=True)
class Compiled:
    """Every source of our packages by one compiler, with all warnings on, and what it said."""

    builder: Builder
    plans: tuple[BuildPlan, ...]
    folder: Path
    said: dict[str, str]

    def steps(self, plan: BuildPlan) -> list[Step]:
        return [step for step in plan.steps if step.verb == "compile"]

    def object(self, step: Step) -> Path:
        return self.folder / Path(step.output).name

    def objects(self, plan: BuildPlan) -> list[IsaObject]:
        return [IsaObject(step.subject, isa_flags(step.command), self.object(step)) for step in self.steps(plan)]


@pytest.fixture(scope="session")
def compiled(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    builder = Builder(HERE.project, {**os.environ, "CXX": compiler}, Settings(jobs=2, system=True))
    plans = tuple(builder.plan(package, variant) for package, variant in TARGETS)
    made, kept = Compiled(builder, plans, tmp_path_factory.mktemp("objects"), {}), HERE.cache.store

    def compile_one(step: Step) -> tuple[str, str]:
        name = kept_name(step.output, *WARNINGS)
        if kept.take(name, made.object(step)):
            return step.subject, ""
        command = [str(made.object(step)) if word == Step.OUTPUT else word for word in step.command]
        done = subprocess.run([*command, *WARNINGS], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if done.returncode:
            return step.subject, done.stderr
        kept.put(name, made.object(step).read_bytes())
        return step.subject, ""

    with ThreadPoolExecutor(2) as pool:
        made.said.update(pool.map(compile_one, [step for plan in plans for step in made.steps(plan)]))
    HERE.cache.trim()
    return made


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_compiles_without_a_warning(compiled: Compiled, source: str) -> None:
    assert compiled.said[source] == ""


def test_no_object_uses_more_than_its_flags_say_nor_shares_a_function_of_a_tier(compiled: Compiled) -> None:
    for plan in compiled.plans:
        objects = compiled.objects(plan)
        assert {made.source for made in objects if made.flags} == set(TIERS) & {made.source for made in objects}
        assert list(check_objects(objects, os.environ)) == []


@pytest.mark.parametrize("source", TIERS)
def test_a_tiers_object_has_nothing_that_the_linker_merges(compiled: Compiled, source: str) -> None:
    """Stricter than what is asked of other projects: no weak symbol at all, function or data."""
    (path,) = (made.path for plan in compiled.plans for made in compiled.objects(plan) if made.source == source)
    done = subprocess.run(["nm", path], capture_output=True, text=True, check=True)
    kinds = {line.split()[-1]: line.split()[-2] for line in done.stdout.splitlines()}
    assert kinds
    assert {name for name, kind in kinds.items() if kind in "WwVvu"} == set()


def linked(compiled: Compiled, plan: BuildPlan, folder: Path) -> tuple[Path, str]:
    """The library of a plan and the linker's map of it, which changes no byte."""
    folder = folder / Path(plan.library_name).stem
    folder.mkdir()
    library, link_map = folder / "library.so", folder / "library.map"
    HERE.tools().write_stubs(folder / "stubs")
    made = {Step.OUTPUT: str(library)} | {step.output: str(compiled.object(step)) for step in compiled.steps(plan)}
    command = (word.replace(Step.STUBS, str(folder / "stubs")) for word in plan.steps[-1].command)
    subprocess.run([*(made.get(word, word) for word in command), f"-Wl,-Map={link_map}"], cwd=REPOSITORY, check=True)
    return library, link_map.read_text(encoding="utf-8")


def places_of(link_map: str, names: dict[str, str]) -> Iterator[tuple[range, str]]:
    """Where a map puts the code of each object. names: sources by the names of their objects."""
    for start, size, path in re.findall(r"^ \.text\S*\s+0x(\w+)\s+0x(\w+)\s(.+)$", link_map, re.MULTILINE):
        if int(start, 16) and int(size, 16) and Path(path).name in names:  # what was left out stands at 0
            yield range(int(start, 16), int(start, 16) + int(size, 16)), names[Path(path).name]


def test_in_the_library_itself_wide_code_stands_in_the_tiers_alone(compiled: Compiled, tmp_path: Path) -> None:
    for plan in compiled.plans:
        library, link_map = linked(compiled, plan, tmp_path)
        names = {compiled.object(step).name: step.subject for step in compiled.steps(plan)}
        places = list(places_of(link_map, names))
        assert {source for _, source in places} >= {made.source for made in compiled.objects(plan)} & set(SOURCES)
        wide = [found for found in instructions(library, os.environ) if encoding(found.raw)]
        owners = {next((s for where, s in places if found.address in where), "nobody") for found in wide}
        assert owners == {made.source for made in compiled.objects(plan) if made.flags}


def test_the_library_that_was_read_is_the_one_that_ships(compiled: Compiled, tmp_path: Path) -> None:
    """Byte for byte."""
    if compiled.builder.tools().compiler != HERE.tools().compiler:
        pytest.skip("what ships is compiled by another compiler here")
    for (package, variant), plan in zip(TARGETS, compiled.plans, strict=True):
        artifact = HERE.build(package, variant, lambda _: None)
        assert artifact.op_id == plan.op_id
        assert linked(compiled, plan, tmp_path)[0].read_bytes() == (artifact.folder / plan.library_name).read_bytes()


# What the check must see

SUM = "{ float s = 0; for (int i = 0; i < 64; ++i) s += x[i]; return s; }"
Pair = Callable[..., list[str]]


@pytest.fixture
def pair(tmp_path: Path, compiler: str) -> Pair:
    """A baseline file and one with AVX-512 flags that include one header; what is wrong with them."""

    def make(header: str, baseline: str = "", tier: str = "") -> list[str]:
        (tmp_path / "shared.h").write_text(header, encoding="utf-8")
        objects = []
        for name, text, flags in (("baseline", baseline, ()), ("tier", tier, ISAS["avx512"].flags)):
            path = tmp_path / f"{name}.cpp"
            path.write_text(f'#include "shared.h"\nfloat {name}(const float* x) {{ return sum(x); }}\n{text}\n')
            subprocess.run([compiler, "-O3", *flags, "-c", path, "-o", path.with_suffix(".o")], check=True)
            objects.append(IsaObject(path.name, frozenset(flags), path.with_suffix(".o")))
        return [f"{found.source}: {found.what}" for found in check_objects(objects, os.environ)]

    return make


def test_an_inline_function_of_both_files_is_seen(pair: Pair) -> None:
    (found,) = pair(f"[[gnu::noinline]] inline float sum(const float* x) {SUM}")
    assert found.startswith("tier.cpp: _Z3sumPKf is also in baseline.cpp, compiled for every machine")


def test_with_internal_linkage_nothing_is_shared(pair: Pair) -> None:
    assert pair(f"namespace {{ [[gnu::noinline]] float sum(const float* x) {SUM} }}") == []


def test_a_template_that_one_file_instantiates_for_the_other_is_seen(pair: Pair) -> None:
    header = f"template <typename T> [[gnu::noinline]] float sum(const T* x) {SUM}"
    (found,) = pair(header, baseline="template float sum(const float*);")
    assert "_Z3sumIfEfPKT_ is also in baseline.cpp" in found


def test_wide_code_in_a_baseline_file_is_seen(pair: Pair) -> None:
    baseline = f'__attribute__((target("avx2"))) float wide(const float* x) {SUM}'
    wide = '__attribute__((target("avx512f"))) void copy(double* to) { for (int i = 0; i < 64; ++i) to[i] *= 2; }'
    (vex, other) = pair(f"static inline float sum(const float* x) {SUM}", baseline=f"{baseline}\n{wide}")
    assert re.fullmatch(r"baseline\.cpp: \S*wide\S* has `.*` \(VEX\), compiled for every machine", vex)
    assert "copy" in other


def test_a_static_initializer_of_a_tier_is_seen(pair: Pair) -> None:
    header = "float sum(const float* x);"
    (found,) = pair(header, tier="float first(); float table = first();")
    assert found.startswith("tier.cpp: has a static initializer, compiled with -mavx2 -mavx512bw")


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("0f 58 c1", None),  # addps
        ("f3 0f 1e fa", None),  # endbr64
        ("66 2e 0f 1f 84 00 00 00 00 00", None),  # a long nop
        ("8f c0", None),  # pop
        ("f3 48 0f b8 c1", "SSE4"),  # popcnt
        ("f3 48 0f bd c1", "SSE4"),  # lzcnt
        ("48 0f bd c1", None),  # bsr
        ("f3 0f bc c1", None),  # bsf, or tzcnt
        ("66 0f 38 00 c1", "SSE4"),  # pshufb
        ("66 48 0f 3a 16 c0 01", "SSE4"),  # pextrq
        ("c5 f8 77", "VEX"),  # vzeroupper
        ("c5 f8 92 c8", "VEX"),  # kmovw: an opmask
        ("c4 e2 f0 f3 c8", "VEX"),  # a blsr of BMI
        ("62 f1 7c 48 58 c1", "EVEX"),  # vaddps zmm
        ("64 c5 fc 10 00", "VEX"),  # a load relative to fs
        ("8f e9 78 81 c0", "XOP"),
        ("d5 00 01 c0", "APX"),
    ],
)
def test_an_instruction_is_known_by_its_bytes(raw: str, kind: str | None) -> None:
    assert encoding(bytes.fromhex(raw)) == kind
