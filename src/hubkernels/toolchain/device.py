"""What differs between the compilers of device code: words of commands, what they read, what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

Command = tuple[str, ...]


class DeviceCompiler(Protocol):
    """One compiler of device code and of the host's code around it; `cuda` has nvcc, `clang` the other.

    name: for people who know it. program: what is started. fixed: flags of every source. parallel: whether it compiles
    for several devices at a time. system: where it looks for headers of its own accord, unless its toolkit tells.
    """

    @property
    def name(self) -> str: ...
    @property
    def program(self) -> str: ...
    @property
    def fixed(self) -> tuple[str, ...]: ...
    @property
    def parallel(self) -> bool: ...
    @property
    def system(self) -> tuple[str, ...]: ...

    def begin(self, host: str) -> Command:
        """The command before its flags. host: the C++ compiler of the build."""
        ...

    def end(self, source: str, threads: int) -> Command:
        """Flags that make one object, in equal bytes everywhere, and tell what its kernels take; not in its key."""
        ...

    def archs(self, archs: Iterable[str]) -> tuple[str, ...]:
        """Flags for capabilities as a build.toml spells them."""
        ...

    def for_host(self, words: Sequence[str]) -> tuple[str, ...]:
        """Flags of a C++ compiler, as this one takes them."""
        ...

    def from_nvcc(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The flags of a build.toml, which are nvcc's, in its own words."""
        ...

    def folders(self, named: Sequence[str], system: Sequence[str], toolkit: Sequence[Path]) -> tuple[str, ...]:
        """Where headers outside the project are looked for, in order.

        named: the folders that a C++ source is compiled with. system: those of the C++ compiler's own.
        """
        ...

    def why_unspeakable(self, source: str, folders: Iterable[str]) -> str | None:
        """Why it cannot be told one of these paths, in words."""
        ...

    def passes(
        self, host: str, flags: Sequence[str], source: str, archs: Sequence[str], ask: Callable[[Command], str]
    ) -> tuple[Command, ...]:
        """The commands that preprocess a source, for the host and for each device, but for what becomes of the text.

        ask: what a command says on its error output.
        """
        ...
