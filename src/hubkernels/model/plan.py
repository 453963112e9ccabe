"""Every command of one build, as data: it prints, hashes and diffs, and planning it starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """One command. It runs in the package's folder and makes ``output``, a name that is the hash of what it is made of.

    The command writes to OUTPUT, a stand-in, and reads outputs of other steps by their names: the runner puts paths
    there, of its own choice, and renames when the command has succeeded, so a file under its name is always whole.
    STUBS stands for the folder of the link stubs. A flag of a user's may look like either: see `placed`.
    subject: what is made something of: a source, or the library. after: outputs of the steps that come before.
    told: the name under which what the command prints about its output is kept beside it; empty where nothing is.
    """

    OUTPUT = "$OUTPUT"
    STUBS = "$STUBS"

    verb: str
    subject: str
    command: tuple[str, ...]
    output: str
    after: tuple[str, ...] = ()
    told: str = ""

    @property
    def target(self) -> int:
        """Where in the command the output stands: behind all that a user wrote."""
        return len(self.command) - 1 - self.command[::-1].index(Step.OUTPUT)

    def placed(self, places: Mapping[str, str], stubs: str) -> tuple[str, ...]:
        """The command with paths for what it takes from other steps, and for STUBS; not for its output.

        A step that takes nothing is as it is: flags of a user's are in those alone.
        """
        if not self.after:
            return self.command
        begin = f"{Step.STUBS}/"
        own = (f"{stubs}/{word.removeprefix(begin)}" if word.startswith(begin) else word for word in self.command)
        return tuple(places[word] if word in self.after else word for word in own)


@dataclass(frozen=True)
class ShippedFile:
    """A file of the artifact: its path there, and its path in the project or its text."""

    target: str
    source: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class BuildPlan:
    """One variant of one package.

    op_id: module name, op namespace and library name: ``_<python_name>_<backend>_<hash of everything below>``.
    library: output of the last step, which ships as ``<op_id>.abi3.so``; None where nothing is compiled.
    metadata: metadata.json but for the digest.
    """

    package: str
    variant: str
    op_id: str
    steps: tuple[Step, ...]
    library: str | None
    files: tuple[ShippedFile, ...]
    metadata: Mapping[str, Any]

    @property
    def library_name(self) -> str:
        return f"{self.op_id}.abi3.so"

    @property
    def file_names(self) -> frozenset[str]:
        """Every file of the artifact but its metadata."""
        return frozenset({*(file.target for file in self.files), *([self.library_name] if self.library else [])})

    def to_json(self) -> dict[str, Any]:
        return {
            "package": self.package,
            "variant": self.variant,
            "op-id": self.op_id,
            "steps": [
                {"verb": s.verb, "subject": s.subject, "command": list(s.command), "output": s.output}
                for s in self.steps
            ],
            "files": {f.target: f.source for f in self.files}
            | ({self.library_name: self.library} if self.library else {}),
            "metadata": dict(self.metadata),
        }
