"""What one source reads, asked of the compiler and of the texts that it lists."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hubkernels.build.asks import asked
from hubkernels.build.includes import Headers, Includes, Listing
from hubkernels.build.names import named_in
from hubkernels.build.once import depends_on_times
from hubkernels.build.search import PRECOMPILED, Around, Search, search_folders
from hubkernels.build.sources import Source
from hubkernels.build.text import code
from hubkernels.build.unseen import unseen
from hubkernels.host.files import came_since, changed_since, read_errors, read_regular
from hubkernels.host.process import run
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.device import DeviceCompiler

ID_MACRO = b"TORCH_EXTENSION_NAME"
TORCH_MACROS = re.compile(rb"\b(?:TORCH_TARGET_VERSION|Py_LIMITED_API)\b")
_WORD = re.compile(r"(?:\\.|[^\\\s])+")


class RefusedError(Exception):
    """Why a source cannot be scanned, in words."""


@dataclass(frozen=True)
class Answer:
    """What a source reads. lists: those of the toolchain's headers, which ``found`` has by their hashes.

    holds: whether that is so for the next build too. Else a file or a folder of the search changed meanwhile, the
    texts do not tell what is asked for, or times of files take part.
    """

    found: Includes
    lists: tuple[Listing, Listing]
    holds: bool


@dataclass(frozen=True)
class Inquiry:
    """One source to be asked for. root: where the compiler runs. flags: all of them, the source's own among them.

    folders: where headers outside the project are looked for, in order.
    """

    source: Source
    root: Path
    flags: tuple[str, ...]
    folders: tuple[str, ...]
    tools: Toolchain
    environment: Mapping[str, str]
    headers: Headers

    def answer(self) -> Answer:
        """Raises RefusedError where the compiler cannot read it, or where what it lists is not all that counts."""
        started = time.time_ns()
        paths = self._listed()
        texts = {path: self._text(path) for path in paths if not self.headers.owns(path)}
        codes = {path: code(text) for path, text in texts.items()}
        self._refuse_unseen(texts, codes)
        search = Search(self.root, self.source.flags, self.folders)
        roots = search.roots(texts)
        near = search.near(roots, search.names(paths, roots))
        _refuse_precompiled(near)
        others = [path for path in paths if path not in texts]
        wanted = asked(codes, others, self._text, self.flags, self.headers.silent)
        self.headers.silent.update(wanted.silent)
        asked_for = search.asked(roots, wanted.names, wanted.nearby)
        torch = any(path.startswith(f"{self.tools.torch.root}/") for path in paths)
        torch |= any(map(TORCH_MACROS.search, (*codes.values(), *map(str.encode, self.source.flags))))
        names = {(name, path) for path, text in codes.items() for name in named_in(text) if _is_name(name)}
        named_at = search.named(names, every=any(b"include_next" in text for text in codes.values()))
        named = self._own(named_at.there.difference(texts))
        clear = wanted.clear and not depends_on_times(codes, named, self.root, self._sha256)
        around = near | search.far(paths) | asked_for | named_at
        own = (*texts, *self._own(asked_for.there.difference(texts)))
        listed = self.headers.listed(path for path in {*paths, *asked_for.there} if self.headers.owns(path))
        shadows = self.headers.listed_absent(path for path in around.absent if self.headers.owns(path))
        reads_id = any(ID_MACRO in text for text in codes.values())
        found = Includes(
            {path: self._sha256(path) or "" for path in own},
            {path: self._sha256(path) or "" for path in named if path not in own},
            listed.digest,
            tuple(self._own(around.absent)),
            shadows.digest,
            reads_id or any(ID_MACRO.decode() in flag for flag in self.source.flags),
            torch,
            "" if clear else hashlib.sha256(self._preprocessed.encode()).hexdigest(),
        )
        moved = self._moved({*paths, *asked_for.there, *named}, around.folders, started)
        return Answer(found, (listed, shadows), holds=clear and not moved)

    def _moved(self, files: set[str], folders: frozenset[str], started: int) -> bool:
        """Whether one of these changed since then."""
        read = set(map(self._full, files))
        places = read | set(map(self._full, folders))
        if self.headers.hashes.written(read) or any(changed_since(path, started) for path in places):
            return True
        return came_since(places, str(self.root.absolute()), started)

    def _listed(self) -> list[str]:
        """What the compiler says that it reads, the source first."""
        rules = (parse_make_rule(text) for text in self._texts("-M"))
        paths = list(dict.fromkeys(self._plain(path) for rule in rules for path in rule))
        if not paths or os.path.normpath(paths[0]) != os.path.normpath(self.source.path):
            flags = " ".join(self.source.flags)
            raise RefusedError(f"the compiler does not list what it reads, with these flags: {flags}")
        return paths

    def _plain(self, path: str) -> str:
        """One spelling of a header of the toolkit, which nvcc reaches by way of the folder of its programs."""
        cuda = self.tools.cuda
        return os.path.normpath(path) if cuda and path.startswith(f"{cuda.root}/") else path

    @cached_property
    def _preprocessed(self) -> str:
        """The text that is compiled, in words that every machine shares."""
        maps = self.tools.prefix_maps()
        return self.tools.portable("".join(self._texts(*maps, "-E")))

    def _texts(self, *words: str) -> list[str]:
        """What the compiler answers to these words: once, or for the host and for each device in turn."""
        # A stand-in for the id: whether the macro is there can decide what is included, its value does not.
        own = (*self.flags, f"-D{ID_MACRO.decode()}=_id")
        if self.source.of_device:
            return [self._run((*command, *words)) for command in self._passes(self.tools.device, own)]
        return [self._run((*self.tools.compiler.command, *own, *words, self.source.path))]

    def _passes(self, device: DeviceCompiler, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """What the device's compiler would start to preprocess the source."""
        path = self.source.path
        if why := device.why_unspeakable(path, search_folders(flags)):
            raise RefusedError(why)
        host = self.tools.compiler.command[-1]
        found = device.passes(host, flags, path, self.source.archs, self._say)
        if not found:
            raise RefusedError(f"{device.name} does not say how it preprocesses it")
        return found

    def _say(self, command: tuple[str, ...]) -> str:
        done = run(command, cwd=self.root, env=self.environment)
        if done.status:
            raise RefusedError(done.errors or f"{command[0]} does not say how it preprocesses it")
        return done.errors

    def _run(self, command: tuple[str, ...]) -> str:
        done = run(command, cwd=self.root, env=self.environment)
        if done.status:
            raise RefusedError(done.errors or "the compiler does not preprocess it, and does not say why")
        return done.output

    def _refuse_unseen(self, texts: Mapping[str, bytes], codes: Mapping[str, bytes]) -> None:
        whole = (f"{self.source.path}, preprocessed,", lambda: self._preprocessed)
        if why := unseen(texts, codes, self.source.flags, self.tools.compiler, whole):
            raise RefusedError(why)

    def _own(self, paths: Iterable[str]) -> list[str]:
        return sorted(path for path in paths if not self.headers.owns(path))

    def _full(self, path: str) -> str:
        return os.path.join(self.root, path)  # noqa: PTH118 - thousands a build

    def _text(self, path: str) -> bytes:
        """Raises EnvironmentLacksError for a file that went since it was listed, or whose name is no text."""
        full = Path(self._full(path))
        if full.is_char_device():  # /dev/null
            return b""
        with read_errors(full):
            return read_regular(full)

    def _sha256(self, path: str) -> str | None:
        return self.headers.hashes.sha256(self._full(path))


def _is_name(name: str) -> bool:
    """Whether a file may be looked for under it in folders."""
    return bool(name) and not name.startswith("/") and "\0" not in name


def _refuse_precompiled(near: Around) -> None:
    folders = (path.removesuffix("/") for path in near.absent if path.endswith("/"))  # of which any file will do
    if made := sorted(path for path in (*near.there, *folders) if path.endswith(PRECOMPILED)):
        why = "the compiler would read it in the header's stead, and does not list it; delete it"
        raise RefusedError(f"{made[0]} is a precompiled header: {why}")


def parse_make_rule(text: str) -> list[str]:
    """The prerequisites of one rule of ``-M``: spaces and hashes are escaped, dollars doubled, lines continued."""
    _, _, rest = text.replace("\\\n", " ").partition(": ")
    return [re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$") for word in _WORD.findall(rest)]
