"""What a tier's object says that it needs, and which tier a machine gets: real objects, simulated processors."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hubkernels.model.isa import ISAS
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="a tier beyond scalar needs an x86-64 compiler")

LEAVES = ("leaf1_ecx", "leaf7_ebx", "leaf7_ecx", "leaf7_edx", "leaf7_1_eax", "leaf7_1_edx", "leaf13_1_eax")
WORDS = (*LEAVES, "extended1_ecx", "saved_state")

TIER_CPP = """\
#include "hk/tier.h"
extern const hk::Tier<int> {name};
constinit const hk::Tier<int> {name} = {{"{isa}", hk::kCompiledFor, 0}};
"""

CHOOSE_CPP = """\
// choose: prints what each tier needs. choose LAST LAST_EXTENDED 7_LAST and the words of a processor: prints its tier.
#include <cstdio>
#include "hk/isa.h"
{externs}
static const hk::Tier<int>* const kTable[] = {{{table}}};
static unsigned long words[12];
static bool trapped = false;
static hk::CpuidRegisters cpuid(uint32_t leaf, uint32_t subleaf) {{
  const auto word = [](int n) {{ return static_cast<uint32_t>(words[n]); }};
  const uint32_t junk = 0xffffffff;  // what no machine promises
  if (leaf == 0) return {{word(0), 0, 0, 0}};
  if (leaf == 0x80000000u) return {{word(1), 0, 0, 0}};
  if (leaf > (leaf < 0x80000000u ? word(0) : word(1))) return {{junk, junk, junk, junk}};
  if (leaf == 1) return {{junk, junk, word(3), junk}};
  if (leaf == 7 && subleaf == 0) return {{word(2), word(4), word(5), word(6)}};
  if (leaf == 7) return subleaf > word(2) ? hk::CpuidRegisters{{junk, junk, junk, junk}}
                                          : hk::CpuidRegisters{{word(7), junk, junk, word(8)}};
  if (leaf == 13) return {{word(9), junk, junk, junk}};
  return {{junk, junk, word(10), junk}};
}}
static uint32_t xgetbv() {{
  trapped = !(words[3] >> 27 & 1);
  return static_cast<uint32_t>(words[11]);
}}
int main(int count, char** arguments) {{
  const hk::Features here = hk::machine_features();
  if (count == 1) {{
    for (const auto* tier : kTable) {{
      const hk::Features& n = tier->needs;
      std::printf("%s %u %u %u %u %u %u %u %u %u %d\\n", tier->isa, n.leaf1_ecx, n.leaf7_ebx, n.leaf7_ecx, n.leaf7_edx,
                  n.leaf7_1_eax, n.leaf7_1_edx, n.leaf13_1_eax, n.extended1_ecx, n.saved_state, hk::has(here, n));
    }}
    return 0;
  }}
  for (int i = 0; i < 12; ++i) words[i] = std::strtoul(arguments[i + 1], nullptr, 10);
  std::printf("%s\\n", hk::choose_tier(kTable, hk::features_of({{cpuid, xgetbv}})).isa);
  return trapped;
}}
"""


def compiled(compiler: str, source: Path, *flags: str) -> Path:
    output = source.with_suffix(".o")
    include = ("-I", str(REPOSITORY / "cpu/include"))
    subprocess.run([compiler, "-std=c++20", *include, *flags, "-c", source, "-o", output], check=True)
    return output


@dataclass(frozen=True)
class Tiers:
    """A program with a table of tiers, each compiled with flags of its own."""

    program: Path

    def needs(self) -> dict[str, dict[str, int]]:
        return {name: dict(zip(WORDS, words, strict=True)) for name, (*words, _) in self._lines().items()}

    def usable_here(self) -> set[str]:
        return {name for name, words in self._lines().items() if words[-1]}

    def _lines(self) -> dict[str, list[int]]:
        done = subprocess.run([self.program], capture_output=True, text=True, check=True)
        return {line.split()[0]: [int(word) for word in line.split()[1:]] for line in done.stdout.splitlines()}

    def chosen(self, machine: Machine) -> str:
        done = subprocess.run([self.program, *machine.words()], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"XGETBV ran where it traps, or no tier: {done.stderr}"
        return done.stdout.strip()


def tiers(folder: Path, compiler: str, flags: Mapping[str, Iterable[str]]) -> Tiers:
    """Compile one tier for each name, and the table in that order."""
    names = {isa: f"tier_{index}" for index, isa in enumerate(flags)}
    objects = []
    for isa, name in names.items():
        source = folder / f"{name}.cpp"
        source.write_text(TIER_CPP.format(name=name, isa=isa), encoding="utf-8")
        objects.append(compiled(compiler, source, *flags[isa]))
    externs = "".join(f"extern const hk::Tier<int> {name};\n" for name in names.values())
    table = ", ".join(f"&{name}" for name in names.values())
    (folder / "choose.cpp").write_text(CHOOSE_CPP.format(externs=externs, table=table), encoding="utf-8")
    objects.append(compiled(compiler, folder / "choose.cpp"))
    subprocess.run([compiler, *objects, "-o", folder / "choose"], check=True)
    return Tiers(folder / "choose")


OURS = {
    "avx512-bf16": ISAS["avx512-bf16"].flags,
    "avx512": ISAS["avx512"].flags,
    "avx2": ISAS["avx2"].flags,
    "scalar": (),
}


@pytest.fixture(scope="session")
def ours(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Tiers:
    return tiers(tmp_path_factory.mktemp("tiers"), compiler, OURS)


# Where the processor says that it has a feature: the vendors' manuals, spelled here a second time.
AVX, XSAVE, OSXSAVE, FMA, F16C = 28, 26, 27, 12, 29  # leaf 1, ecx
SSE = 1 << 0 | 1 << 9 | 1 << 19 | 1 << 20 | 1 << 23  # sse3, ssse3, sse4.1, sse4.2, popcnt: avx2 switches them on
AVX2, AVX512F, DQ, BW, VL = 5, 16, 17, 30, 31  # leaf 7, ebx
BF16 = 5  # leaf 7.1, eax
YMM, ZMM = 0x06, 0xE6  # XCR0


@dataclass(frozen=True)
class Machine:
    """A processor under an operating system; at first of the newest kind."""

    last_leaf: int = 0x20
    leaf1_ecx: int = SSE | 1 << XSAVE | 1 << OSXSAVE | 1 << AVX | 1 << FMA | 1 << F16C
    leaf7_last: int = 1
    leaf7_ebx: int = 1 << AVX2 | 1 << AVX512F | 1 << DQ | 1 << BW | 1 << VL
    leaf7_1_eax: int = 1 << BF16
    saved_state: int = ZMM

    def words(self) -> list[str]:
        seven = (self.leaf7_ebx, 0, 0, self.leaf7_1_eax, 0)
        words = (self.last_leaf, 0x80000008, self.leaf7_last, self.leaf1_ecx, *seven, 0, 0, self.saved_state)
        return [str(word) for word in words]


NEWEST = Machine()
MACHINES = {
    "newest": (NEWEST, "avx512-bf16"),
    "no bf16": (replace(NEWEST, leaf7_1_eax=0), "avx512"),
    "leaf 7 has no subleaf 1": (replace(NEWEST, leaf7_last=0), "avx512"),
    "no VL": (replace(NEWEST, leaf7_ebx=NEWEST.leaf7_ebx & ~(1 << VL)), "avx2"),
    "no DQ": (replace(NEWEST, leaf7_ebx=NEWEST.leaf7_ebx & ~(1 << DQ)), "avx2"),
    "the system does not save zmm": (replace(NEWEST, saved_state=YMM), "avx2"),
    "the system saves half of zmm": (replace(NEWEST, saved_state=0x66), "avx2"),
    "the system does not save ymm": (replace(NEWEST, saved_state=0x2), "scalar"),
    "the system does not use XSAVE": (replace(NEWEST, leaf1_ecx=NEWEST.leaf1_ecx & ~(1 << OSXSAVE)), "scalar"),
    "no FMA": (replace(NEWEST, leaf1_ecx=NEWEST.leaf1_ecx & ~(1 << FMA)), "scalar"),
    "no F16C": (replace(NEWEST, leaf1_ecx=NEWEST.leaf1_ecx & ~(1 << F16C)), "scalar"),
    "AVX without AVX2": (replace(NEWEST, leaf7_ebx=0), "scalar"),
    "no leaf 7": (replace(NEWEST, last_leaf=6), "scalar"),
    "no leaf 13": (replace(NEWEST, last_leaf=7), "avx512-bf16"),
    "the first x86-64": (Machine(1, 0, 0, 0, 0, 0), "scalar"),
}


@pytest.mark.parametrize(("machine", "tier"), MACHINES.values(), ids=MACHINES.keys())
def test_a_machine_gets_the_best_tier_that_it_can_run(ours: Tiers, machine: Machine, tier: str) -> None:
    assert ours.chosen(machine) == tier


@pytest.mark.parametrize("isa", ISAS)
def test_a_probe_asks_for_all_that_the_flags_switch_on_and_for_what_the_system_saves(ours: Tiers, isa: str) -> None:
    needs = ours.needs()[isa]
    assert needs["leaf1_ecx"] & (1 << FMA | 1 << F16C | 1 << AVX | SSE) == 1 << FMA | 1 << F16C | 1 << AVX | SSE
    wide = isa != "avx2"
    assert needs["leaf7_ebx"] == 1 << AVX2 | (wide and 1 << AVX512F | 1 << DQ | 1 << BW | 1 << VL)
    assert needs["leaf7_1_eax"] == (1 << BF16 if isa == "avx512-bf16" else 0)
    assert needs["saved_state"] == (ZMM if wide else YMM)


def test_the_scalar_tier_needs_nothing(ours: Tiers) -> None:
    assert set(ours.needs()["scalar"].values()) == {0}


@pytest.mark.parametrize(
    ("flags", "word", "bit"),
    [
        (("-mvaes",), "leaf7_ecx", 9),
        (("-mavx512f",), "leaf7_ebx", AVX512F),
        (("-mavxvnni",), "leaf7_1_eax", 4),
        (("-mamx-tile",), "saved_state", 17),
        (("-march=x86-64-v3",), "leaf7_ebx", 8),  # BMI2, as flags written by hand bring it
    ],
)
def test_a_file_compiled_for_more_than_its_name_says_does_not_run_without_it(
    compiler: str, tmp_path: Path, flags: tuple[str, ...], word: str, bit: int
) -> None:
    made = tiers(tmp_path, compiler, {"avx2": (*ISAS["avx2"].flags, *flags), "scalar": ()})
    assert made.needs()["avx2"][word] >> bit & 1
    assert made.chosen(replace(NEWEST, leaf7_ebx=1 << AVX2, leaf7_1_eax=0, saved_state=YMM)) == "scalar"


def new_macros(compiler: str, *flags: str) -> set[str]:
    """Macros that flags switch on; none where the compiler does not know the flag."""

    def macros(*flags: str) -> set[str]:
        command = [compiler, *flags, "-dM", "-E", "-x", "c++", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return set(re.findall(r"^#define (\w+) 1$", done.stdout, re.MULTILINE)) if done.returncode == 0 else set()

    return macros(*flags) - macros()


FEATURES = re.findall(
    r"\S+",
    """
adx aes amx-bf16 amx-int8 amx-tile avx avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512er avx512f
avx512fp16 avx512ifma avx512pf avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vp2intersect avx512vpopcntdq
avxifma avxneconvert avxvnni avxvnniint8 bmi bmi2 cldemote clflushopt clwb crc32 cx16 enqcmd f16c fma fma4 fsgsbase
gfni hreset lwp lzcnt movbe movdir64b movdiri mwaitx pclmul pku popcnt prefetchwt1 prfchw rdpid rdrnd rdseed rtm
sahf serialize sha shstk sse3 sse4.1 sse4.2 sse4a ssse3 tbm tsxldtrk uintr vaes vpclmulqdq waitpkg xop xsave xsavec
xsaveopt xsaves
""",
)
"""Spelled as ``-m`` has them."""

NO_INSTRUCTIONS = re.compile(
    r"_*(tune_|k8|amd|znver|bdver|core|corei7|nocona|haswell|[a-z]+lake|knm|[a-z]+rapids|FP_FAST|FLT)"
)
NO_QUESTION = {
    "__INVPCID__",
    "__SGX__",
    "__CLZERO__",
    "__WBNOINVD__",
    "__PTWRITE__",
    "__KL__",
    "__WIDEKL__",
    "__EVEX512__",
    "__EVEX256__",
}
"""Not asked for: system instructions that only their own intrinsics emit, or (KL) refused by the header."""

PROCESSORS = (
    "x86-64-v2",
    "x86-64-v3",
    "x86-64-v4",
    "sapphirerapids",
    "icelake-server",
    "knm",
    "znver3",
    "bdver4",
    "native",
)


def test_every_feature_of_a_processor_has_a_question(compiler: str) -> None:
    asked = set(re.findall(r"HK_BIT\((\w+),", (REPOSITORY / "cpu/include/hk/tier.h").read_text(encoding="utf-8")))
    found = {name for cpu in PROCESSORS for name in new_macros(compiler, f"-march={cpu}")}
    assert "__AVX512F__" in found
    assert {name for name in found - asked - NO_QUESTION if not NO_INSTRUCTIONS.match(name)} == set()


def test_a_feature_is_asked_for_where_the_flags_switch_it_on_and_found_where_the_machine_has_it(
    compiler: str, tmp_path: Path
) -> None:
    """The compiler asks this machine its own way for ``-march=native``: a wrong bit here would contradict it."""
    switched_on = {name: new_macros(compiler, f"-m{name}") for name in FEATURES}
    known = {name: (f"-m{name}",) for name, macros in switched_on.items() if macros}
    assert len(known) > 60
    made = tiers(tmp_path, compiler, {**known, "native": ("-march=native",)})
    assert [name for name, needs in made.needs().items() if not any(needs.values())] == []
    native = new_macros(compiler, "-march=native")
    here = {name for name in known if switched_on[name] <= native}
    assert {*here, "native"} <= made.usable_here()


@pytest.mark.parametrize("optimized", ["-O0", "-O3"])
def test_what_a_tier_says_of_itself_is_data_alone(compiler: str, tmp_path: Path, optimized: str) -> None:
    """Code of an ISA file, a static initializer say, would run before the processor was asked."""
    source = tmp_path / "tier.cpp"
    source.write_text(TIER_CPP.format(name="tier", isa="avx512"), encoding="utf-8")
    made = compiled(compiler, source, optimized, *ISAS["avx512"].flags)
    listed = subprocess.run(["objdump", "-d", "-h", made], capture_output=True, text=True, check=True).stdout
    assert "init_array" not in listed
    assert not re.search(r"^\s+[0-9a-f]+:\t", listed, re.MULTILINE), "there are instructions"


def test_on_another_processor_there_is_the_scalar_tier_alone(compiler: str, tmp_path: Path) -> None:
    source = tmp_path / "other.cpp"
    standard = "".join(f"#include <{name}>\n" for name in ("cstdlib", "cstring", "stdexcept", "string"))
    source.write_text(f"{standard}#undef __x86_64__\n#include <rms_norm/dispatch.cpp>\n", encoding="utf-8")
    made = compiled(compiler, source, "-O2", "-I", str(REPOSITORY / "cpu"), "-I", str(REPOSITORY / "cpu/rms_norm"))
    symbols = subprocess.run(["nm", "-C", made], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"U hk::(\w+)::", symbols)) == {"scalar"}
    code = subprocess.run(["objdump", "-d", made], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"\b(cpuid|xgetbv)\b", code)
