"""What every source really reads: the compiler's own list of headers, by content, remembered between runs.

The id of an artifact is the hash of all its inputs, and the binding is compiled with that id; so the inputs must be
known before the first object exists. The compiler lists them (``-M``); the list is kept until one of the files in
it, or a folder that was searched for them, changes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels.build.failure import CompileError, Failure
from hubkernels.build.sources import Source
from hubkernels.host.files import FileHashes, read_memory, write_memory
from hubkernels.host.process import run
from hubkernels.model.variant import Variant
from hubkernels.toolchain.cpu import Toolchain

ID_MACRO = b"TORCH_EXTENSION_NAME"
_FORM = 1  # of the remembered lists; another form is forgotten
_WORD = re.compile(r"(?:\\.|[^\\\s])+")


@dataclass(frozen=True)
class ScannedSource:
    """A source and everything it includes.

    inputs: (name that is the same on every machine, SHA-256), the source first.
    reads_id: whether the op id takes part in compiling it.
    """

    source: Source
    inputs: tuple[tuple[str, str], ...]
    reads_id: bool


class Scanner:
    """Scans the sources of one project; ``memory`` is the file that keeps the lists between runs."""

    def __init__(self, root: Path, memory: Path, hashes: FileHashes) -> None:
        self.root = root
        self.memory = memory
        self.hashes = hashes
        self._known = read_memory(memory, _FORM)

    def scan(
        self, sources: Sequence[Source], variant: Variant, tools: Toolchain, jobs: int
    ) -> tuple[ScannedSource, ...]:
        """List the inputs of each source. Raises CompileError for those that the compiler cannot read."""
        stale = [source for source in sources if not self._is_current(self._key(source, variant, tools))]
        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            failures = [f for f in pool.map(lambda s: self._ask_compiler(s, variant, tools), stale) if f]
        if failures:
            raise CompileError(failures)
        if stale:
            self._save(variant, {self._key(source, variant, tools) for source in sources})
        return tuple(self._scanned(source, variant, tools) for source in sources)

    def _key(self, source: Source, variant: Variant, tools: Toolchain) -> str:
        words = (source.path, *source.flags, *tools.compile_flags(variant), *tools.search_path())
        return hashlib.sha256("\0".join((*words, tools.compiler.fingerprint)).encode()).hexdigest()

    def _is_current(self, key: str) -> bool:
        known = self._known.get(key)
        if known is None:
            return False
        files = all(self._sha256(path) == digest for path, digest in known["files"].items())
        return files and all(self._folder_stamp(folder) == mtime for folder, mtime in known["folders"].items())

    def _ask_compiler(self, source: Source, variant: Variant, tools: Toolchain) -> Failure | None:
        flags = (*tools.compile_flags(variant), *source.flags, *tools.search_path())
        # A stand-in for the id: whether the macro is there can decide what is included, its value does not.
        command = (*tools.compiler.command, *flags, f"-D{ID_MACRO.decode()}=_id", "-M", source.path)
        done = run(command, cwd=self.root)
        if done.status:
            return Failure(source.path, variant.tag, done.errors)
        paths = list(dict.fromkeys(os.path.normpath(path) for path in parse_make_rule(done.output)))
        paths.remove(os.path.normpath(source.path))
        self._known[self._key(source, variant, tools)] = {
            "variant": variant.tag,
            **self._facts(source, [source.path, *paths]),
        }
        return None

    def _facts(self, source: Source, paths: list[str]) -> dict[str, Any]:
        own = [path for path in paths if not Path(path).is_absolute()]
        searched = {str(Path(path).parent) for path in own}
        searched |= {flag.removeprefix("-I") for flag in source.flags if flag.startswith("-I")}
        return {
            "files": {path: self._sha256(path) for path in paths},
            "folders": {folder: self._folder_stamp(folder) for folder in sorted(searched)},
            "reads_id": any(ID_MACRO in (self.root / path).read_bytes() for path in _may_mention_id(paths)),
        }

    def _scanned(self, source: Source, variant: Variant, tools: Toolchain) -> ScannedSource:
        known = self._known[self._key(source, variant, tools)]
        inputs = tuple((tools.portable(path), digest) for path, digest in known["files"].items())
        return ScannedSource(source, inputs, known["reads_id"])

    def _sha256(self, path: str) -> str | None:
        return self.hashes.sha256(os.path.join(self.root, path))  # noqa: PTH118 - thousands a build

    def _folder_stamp(self, folder: str) -> int | None:
        """Changes when a file appears in or leaves the folder, and so may come before another of its name."""
        try:
            return (self.root / folder).stat().st_mtime_ns
        except OSError:
            return None

    def _save(self, variant: Variant, current: set[str]) -> None:
        """Keep what is current for this variant, and what belongs to others."""
        kept = {key: known for key, known in self._known.items() if key in current or known["variant"] != variant.tag}
        write_memory(self.memory, _FORM, kept)


def _may_mention_id(paths: Iterable[str]) -> Iterable[str]:
    """The project's own files, and torch's one header that uses the macro."""
    return (path for path in paths if not Path(path).is_absolute() or path.endswith("/torch/extension.h"))


def parse_make_rule(text: str) -> list[str]:
    """The prerequisites of one rule of ``-M``: spaces and hashes are escaped, dollars doubled, lines continued."""
    _, _, rest = text.replace("\\\n", " ").partition(": ")
    return [re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$") for word in _WORD.findall(rest)]
