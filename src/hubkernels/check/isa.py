"""What the objects of one build really use of the processor, by their disassembly and their symbols.

Flags of an instruction set must reach that tier's code only. Three things let it out: a file that uses more than its
flags say (a ``target`` attribute), a function that is compiled in two files with different flags, of which the linker
keeps one copy, and a static initializer, which runs before anybody asked the processor.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.check.violation import Violation, collect
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.process import run
from hubkernels.model.isa import BEFORE_AVX512, EVERY_MACHINE, WIDE, reach
from hubkernels.model.plan import BuildPlan

_SECTION = "Disassembly of section "
_LABEL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\t?(.*)$")

_LEGACY_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
_REX = range(0x40, 0x50)
_VEX, _EVEX, _REX2, _XOP = (0xC4, 0xC5), 0x62, 0xD5, 0x8F
_BEYOND_SSE2 = (b"\x0f\x38", b"\x0f\x3a")
"""Opcode maps that x86-64 as it began does not have: SSSE3, SSE4, AES, SHA, MOVBE, CRC32."""
_COUNTS = (b"\x0f\xb8", b"\x0f\xbd")
"""After F3: POPCNT, and LZCNT, which older machines take for BSR and so for another number. TZCNT differs for 0 alone,
and compilers write it where that does not matter."""


@dataclass(frozen=True)
class IsaObject:
    """An object file. flags: those of its command that let the compiler use more than the baseline."""

    source: str
    flags: frozenset[str]
    path: Path

    @property
    def machine(self) -> frozenset[str]:
        """The flags whose code runs wherever this object's own does."""
        wide = any(reach(flag) == WIDE for flag in self.flags)
        return self.flags | BEFORE_AVX512 if wide else self.flags

    @property
    def wanted(self) -> str:
        return f"compiled with {' '.join(sorted(self.flags))}" if self.flags else "compiled for every machine"


@dataclass(frozen=True)
class Instruction:
    """One line of a disassembly. section, function: where it stands."""

    section: str
    function: str
    address: int
    raw: bytes
    text: str


@dataclass(frozen=True)
class IsaFinding:
    """fatal: whether a machine without the instructions can meet them; else it is a matter of how others link."""

    source: str
    what: str
    fatal: bool = True


@dataclass(frozen=True)
class IsaReport:
    """objects: how many were read."""

    variant: str
    objects: int
    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...]


def check_isa(
    plan: BuildPlan, compile_to: Callable[[Path], bool], environment: Mapping[str, str]
) -> IsaReport | Problem:
    """Look at the objects of a plan, or tell why there is nothing to look at.

    compile_to: puts them into a folder; tells whether the artifact is up to date, without which it does nothing.
    """
    steps = [step for step in plan.steps if step.verb == "compile"]
    if not plan.variant.endswith("x86_64-linux") or not any(isa_flags(step.command) for step in steps):
        return Problem(f"no source of {plan.variant} has flags of an instruction set of x86-64, whose code is read")
    with tempfile.TemporaryDirectory() as folder:
        if not compile_to(Path(folder)):
            return Problem(f"{plan.variant} is not built as its sources are now", hint="run `kernel-builder build`")
        objects = [IsaObject(s.subject, isa_flags(s.command), Path(folder) / s.output) for s in steps]
        found = list(check_objects(objects, environment))
    wrong, doubtful = ([(f.source, f.what) for f in found if f.fatal == fatal] for fatal in (True, False))
    return IsaReport(plan.variant, len(objects), collect(plan.variant, wrong), collect(plan.variant, doubtful))


def isa_flags(command: Iterable[str]) -> frozenset[str]:
    """The flags of a command that choose instructions."""
    return frozenset(word for word in command if reach(word) > EVERY_MACHINE)


def check_objects(objects: Iterable[IsaObject], environment: Mapping[str, str]) -> Iterator[IsaFinding]:
    """Find what objects of one library, in the order of its link, must not do."""
    made = tuple(objects)
    for each in made:
        yield from _encodings(each, environment)
        yield from _initializers(each, environment)
    yield from _shared(made, environment)


def encoding(raw: bytes) -> str | None:
    """The kind of an instruction beyond the baseline of x86-64, by its bytes; None where there is none that we know.

    SSE3, which every machine with AVX2 has, is not told apart.
    """
    rest = raw.lstrip(bytes(_LEGACY_PREFIXES))
    first = rest[0] if rest else 0
    if first in _VEX:
        return "VEX"
    if first in {_EVEX, _REX2}:
        return "EVEX" if first == _EVEX else "APX"
    if first == _XOP and len(rest) > 1 and rest[1] & 0x1F >= 8:  # noqa: PLR2004 - below that it is POP
        return "XOP"
    opcode = rest[1:] if first in _REX else rest
    if opcode[:2] in _BEYOND_SSE2 or (opcode[:2] in _COUNTS and b"\xf3" in raw[: -len(rest)]):
        return "SSE4"
    return None


def instructions(path: Path, environment: Mapping[str, str]) -> Iterator[Instruction]:
    """The code of an object or a library."""
    section = function = ""
    for line in _binutils("objdump", environment, "-d", "-w", path).splitlines():
        if line.startswith(_SECTION):
            section = line.removeprefix(_SECTION).rstrip(":")
        elif label := _LABEL.match(line):
            function = label[1]
        elif found := _INSTRUCTION.match(line):
            yield Instruction(section, function, int(found[1], 16), bytes.fromhex(found[2]), " ".join(found[3].split()))


def _encodings(made: IsaObject, environment: Mapping[str, str]) -> Iterator[IsaFinding]:
    allowed = {None} if not made.flags else {None, "SSE4", "VEX", "XOP"}
    if any(reach(flag) == WIDE for flag in made.flags):
        return
    wrong = [found for found in instructions(made.path, environment) if encoding(found.raw) not in allowed]
    for function in dict.fromkeys(found.function for found in wrong):
        first = next(found for found in wrong if found.function == function)
        yield IsaFinding(made.source, f"{function} has `{first.text}` ({encoding(first.raw)}), {made.wanted}")


def _initializers(made: IsaObject, environment: Mapping[str, str]) -> Iterator[IsaFinding]:
    """What runs when the library is loaded. Headers such as <iostream> bring a harmless one."""
    if made.flags and ".init_array" in _binutils("objdump", environment, "-h", made.path):
        code = (found for found in instructions(made.path, environment) if found.section.startswith(".text.startup"))
        wide = any(encoding(found.raw) for found in code)
        what = f"has a static initializer, {made.wanted}: it runs before the processor is asked"
        yield IsaFinding(made.source, what, fatal=wide)


def _shared(objects: tuple[IsaObject, ...], environment: Mapping[str, str]) -> Iterator[IsaFinding]:
    """Functions that the linker merges over files with different flags: it keeps one that is not weak, else the first.

    Where that one asks for more than another file does, machines meet it that lack it. Where it does not, another
    builder may link in another order.
    """
    defined: dict[str, list[tuple[IsaObject, str]]] = {}
    for made in objects:
        for kind, names in _functions(made, environment).items():
            for name in names:
                defined.setdefault(name, []).append((made, kind))
    for name, copies in sorted(defined.items()):
        kept = next((made for made, kind in copies if kind == "T"), copies[0][0])
        for made, _ in copies:
            others = [other for other, _ in copies if not made.flags <= other.machine]
            if others:
                what = f"{name} is also in {others[0].source}, {others[0].wanted}: the linker keeps one copy"
                if made is kept:
                    yield IsaFinding(made.source, f"{what}, this one, {made.wanted}; give it internal linkage")
                else:
                    what += f", here that of {kept.source}, but another builder may keep this one, {made.wanted}"
                    yield IsaFinding(made.source, f"{what}; give it internal linkage", fatal=False)


def _functions(made: IsaObject, environment: Mapping[str, str]) -> dict[str, set[str]]:
    """Names of functions that other files see, by kind: T, or W for those that are merged."""
    found: dict[str, set[str]] = {}
    for line in _binutils("nm", environment, "--defined-only", "-P", made.path).splitlines():
        name, kind, *_ = line.split()
        if kind in {"T", "W"}:
            found.setdefault(kind, set()).add(name)
    return found


def _binutils(program: str, environment: Mapping[str, str], *arguments: str | Path) -> str:
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        raise EnvironmentLacksError(Problem(f"{program} is not installed", hint="apt-get install binutils"))
    done = run((path, *arguments), env={**environment, "LC_ALL": "C.UTF-8"})
    if done.status:
        raise EnvironmentLacksError(Problem(f"{program} cannot read {arguments[-1]}: {done.errors.strip()}"))
    return done.output
