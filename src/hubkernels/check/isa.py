"""What the objects of one build really use of the processor, by their disassembly and their symbols.

Flags of an instruction set must reach that tier's code only. Three things let it out: a file that uses more than its
flags say (a ``target`` attribute), a function that is compiled in two files with different flags, of which the linker
keeps one copy, and a static initializer, which runs before anybody asked the processor.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.check.violation import Violation, collect
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.process import run
from hubkernels.model.isa import EVERY_MACHINE, WIDE, reach
from hubkernels.model.plan import BuildPlan, Step

_LABEL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\t?(.*)$")

_LEGACY_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
_REX = range(0x40, 0x50)
_VEX, _EVEX, _REX2, _XOP = (0xC4, 0xC5), 0x62, 0xD5, 0x8F
_BEYOND_SSE2 = (b"\x0f\x38", b"\x0f\x3a")
"""Opcode maps that x86-64 as it began does not have: SSSE3, SSE4, AES, SHA, MOVBE, CRC32."""
_POPCNT = b"\x0f\xb8"


@dataclass(frozen=True)
class IsaObject:
    """An object file. flags: those of its command that let the compiler use more than the baseline."""

    source: str
    flags: frozenset[str]
    path: Path

    @property
    def wanted(self) -> str:
        return f"compiled with {' '.join(sorted(self.flags))}" if self.flags else "compiled for every machine"


@dataclass(frozen=True)
class Instruction:
    """One line of a disassembly. function: where it stands."""

    function: str
    address: int
    raw: bytes
    text: str


def check_isa(
    plan: BuildPlan, object_of: Callable[[Step], Path], environment: Mapping[str, str]
) -> tuple[Violation, ...]:
    """Every violation in the objects of a plan that has been built. object_of: where a step's output is.

    Nothing where no source has flags of an instruction set of x86-64, the one whose code is read.
    """
    objects = tuple(
        IsaObject(step.subject, isa_flags(step.command), object_of(step))
        for step in plan.steps
        if step.verb == "compile"
    )
    if "x86_64" not in plan.variant or not any(made.flags for made in objects):
        return ()
    return collect(plan.variant, check_objects(objects, environment))


def isa_flags(command: Iterable[str]) -> frozenset[str]:
    """The flags of a command that choose instructions."""
    return frozenset(word for word in command if reach(word) > EVERY_MACHINE)


def check_objects(objects: Iterable[IsaObject], environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Find what objects of one library must not do, as pairs of source and what is wrong."""
    made = tuple(objects)
    for each in made:
        yield from _encodings(each, environment)
        if each.flags and _has_initializer(each, environment):
            yield each.source, f"has a static initializer, {each.wanted}: it runs before the processor is asked"
    yield from _shared(made, environment)


def encoding(raw: bytes) -> str | None:
    """The kind of an instruction beyond the baseline of x86-64, by its bytes; None for one that every machine has."""
    rest = raw.lstrip(bytes(_LEGACY_PREFIXES))
    first = rest[0] if rest else 0
    if first in _VEX:
        return "VEX"
    if first in {_EVEX, _REX2}:
        return "EVEX" if first == _EVEX else "APX"
    if first == _XOP and len(rest) > 1 and rest[1] & 0x1F >= 8:  # noqa: PLR2004 - below that it is POP
        return "XOP"
    opcode = rest[1:] if first in _REX else rest
    if opcode[:2] in _BEYOND_SSE2 or (opcode[:2] == _POPCNT and b"\xf3" in raw[: -len(rest)]):
        return "SSE4"
    return None


def instructions(path: Path, environment: Mapping[str, str]) -> Iterator[Instruction]:
    """The code of an object or a library."""
    function = ""
    for line in _binutils("objdump", environment, "-d", "-w", path).splitlines():
        if label := _LABEL.match(line):
            function = label[1]
        elif found := _INSTRUCTION.match(line):
            yield Instruction(function, int(found[1], 16), bytes.fromhex(found[2]), " ".join(found[3].split()))


def _encodings(made: IsaObject, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    allowed = {None} if not made.flags else {None, "SSE4", "VEX", "XOP"}
    if any(reach(flag) == WIDE for flag in made.flags):
        return
    wrong = [found for found in instructions(made.path, environment) if encoding(found.raw) not in allowed]
    for function in dict.fromkeys(found.function for found in wrong):
        first = next(found for found in wrong if found.function == function)
        yield made.source, f"{function} has `{first.text}` ({encoding(first.raw)}), {made.wanted}"


def _has_initializer(made: IsaObject, environment: Mapping[str, str]) -> bool:
    return ".init_array" in _binutils("objdump", environment, "-h", made.path)


def _shared(objects: tuple[IsaObject, ...], environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Functions that the linker merges over files with different flags: which copy it keeps is the order's choice."""
    symbols = {made: _functions(made, environment) for made in objects}
    for made in objects:
        for other in objects:
            if not made.flags or made.flags == other.flags:
                continue
            for name in sorted(symbols[made].get("W", set()) & set().union(*symbols[other].values())):
                what = f"{name} is also in {other.source}, {other.wanted}: the linker keeps one copy, and this one is"
                yield made.source, f"{what} {made.wanted}; give it internal linkage"


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
