"""The ABI policy, `abi.toml`, as a value: what a compiled artifact for Linux may need of the systems that it meets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import tomli

from hubkernels.model.version import Version


@dataclass(frozen=True)
class AbiPolicy:
    """date: the day when the tables were written. name: what auditwheel calls the policy.

    versions: for each CPU and prefix (GLIBC, GLIBCXX, ...) the symbol versions that every such system has.
    needed: libraries that DT_NEEDED may name: "system", "torch", and those of each backend.
    python, torch: names of Python's stable ABI and of torch's C shim, and the release that added each.
    """

    date: str
    name: str
    versions: Mapping[str, Mapping[str, tuple[str, ...]]]
    needed: Mapping[str, tuple[str, ...]]
    python: Mapping[str, Version]
    torch: Mapping[str, Version]

    def newest(self, cpu: str, prefix: str) -> str:
        """The newest version of a prefix, ``2.28`` for GLIBC."""
        numbers = [number for number in self.versions[cpu][prefix] if number[0].isdigit()]
        return max(numbers, key=lambda number: Version.parse(number).parts)


@cache
def load_abi_policy() -> AbiPolicy:
    """The policy that ships with hubkernels."""
    table = tomli.loads(resources.files(__package__).joinpath("abi.toml").read_text(encoding="utf-8"))
    return AbiPolicy(
        date=table["date"],
        name=table["policy"],
        versions={
            cpu: {prefix: tuple(numbers) for prefix, numbers in lists.items()}
            for cpu, lists in table["versions"].items()
        },
        needed={kind: tuple(names) for kind, names in table["needed"].items()},
        python=_by_name(table["python"]),
        torch=_by_name(table["torch"]),
    )


def _by_name(table: Mapping[str, list[str]]) -> dict[str, Version]:
    return {name: Version.parse(added) for added, names in table.items() for name in names}
