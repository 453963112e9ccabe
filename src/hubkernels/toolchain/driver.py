"""What a compiler does of its own accord: the commands that its driver would start, and the files behind them.

A driver adds flags from its configuration, from specs files, from the environment, or is a script that adds its own;
``-###`` shows what becomes of all that, and starts nothing.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.host.process import run
from hubkernels.toolchain.needed import needed_libraries

_TEMPORARY = re.compile(r"\bcc\w{6}\.(?=(?:s|o|res)\b)|\bnull-\w{6,}\.(?=o\b)")
_FOLDER = re.compile(r"/(?:[^/\s:,=\"]+/+)*")
_PATH = re.compile(r"(?:>>?\s*)?/[^\s'\"=:;,()<>|&$`\\]+")
_SEARCHED = re.compile(r"^COMPILER_PATH=(.*)$", re.MULTILINE)
_LINKERS = ("collect2", "ld")
_LTO = ("lto1", "lto-wrapper")
_OWN_LIBRARY = re.compile(r"lib(LLVM|clang|lld|bfd|opcodes)")
"""Libraries that are part of a compiler, beside those of the system: they generate the code where it is built so."""


@dataclass(frozen=True)
class Driver:
    """commands: what would be started to make a library of one source. search: where programs are looked for."""

    commands: tuple[tuple[str, ...], ...]
    search: str

    def words(self) -> list[list[str]]:
        """The commands without what differs between two machines with this compiler: folders, temporary names."""
        return [[_FOLDER.sub("", _TEMPORARY.sub("", word)) for word in command] for command in self.commands]

    def files(self) -> list[str]:
        """Programs that make an object or a library, their own libraries, and files that flags name, in one order."""
        found: list[str] = []
        for program in self._programs():
            if path := shutil.which(program, path=self.search):
                found += (path, *needed_libraries(path, _OWN_LIBRARY))
        return list(dict.fromkeys((*found, *self._named())))

    def library(self, name: str) -> Path | None:
        """A file that a link would take: one that is named, else the first in a folder of libraries."""
        words = self.commands[-1] if self.commands else ()
        named = (Path(word) for word in words if word.endswith(f"/{name}"))
        folders = (Path(word[2:]) / name for word in words if word.startswith("-L"))
        return next((path.resolve() for path in (*named, *folders) if path.is_file()), None)

    def _programs(self) -> Iterator[str]:
        for command in self.commands:
            yield command[0]
            if Path(command[0]).name == "collect2":  # it starts the linker, and that what optimizes at link time
                chosen = next((word.partition("=")[2] for word in command if word.startswith("-fuse-ld=")), "")
                yield f"ld.{chosen}" if chosen else "ld"
                yield from (str(Path(command[0]).with_name(name)) for name in _LTO)

    def _named(self) -> Iterator[str]:
        """Files among the words of the compiler's commands, and the linker's plugin."""
        for command in self.commands:
            linker = Path(command[0]).name.startswith(_LINKERS)
            for word in command[1:]:
                path = word.partition("=")[2] if word.startswith("-") else word
                if path.startswith("/") and Path(path).is_file() and (not linker or Path(path).suffix == ".so"):
                    yield path


def ask_driver(command: tuple[str, ...], environment: Mapping[str, str]) -> Driver:
    """What the driver would start. command: with its launcher, as in a build."""
    around = {**environment, "TMPDIR": "/tmp"}  # noqa: S108 - it is named in the commands, and nothing is written there
    said = run((*command, "-###", "-shared", "-x", "c++", "/dev/null", "-o", "x"), env=around, cwd=Path("/")).errors
    commands = tuple(words for line in said.splitlines() if line.startswith(" ") and len(words := _split(line)) > 1)
    searched = _SEARCHED.search(said)
    return Driver(commands, ":".join(([searched[1]] if searched else []) + [environment.get("PATH", "")]))


def script_text(program: str, sha256: Callable[[str], str | None]) -> str | None:
    """The text of a script, with the content of files instead of their paths, and no folders; None for a program.

    What lies in a folder is known by what it is read for; what a script writes to, as in ``>> log``, is no part of it.
    """
    try:
        with Path(program).open("rb") as file:
            start = file.read(4)
            text = None if start == b"\x7fELF" else (start + file.read()).decode(errors="replace")
    except OSError:
        return None

    def named(path: re.Match[str]) -> str:
        if path[0].startswith(">"):
            return path[0]
        return sha256(path[0]) or ("" if Path(path[0]).is_dir() else path[0])

    return text and _PATH.sub(named, text)


def _split(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError:
        return ()
