"""`--since`: the packages that a change affects, and what is said about the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubkernels.cli.console import report

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.model.project import Package, Unreadable


def only_affected(builder: Builder, packages: tuple[Package, ...], ref: str | None) -> tuple[Package, ...]:
    """The packages that a change since the ref affects, all without a ref; tells why each is in or out."""
    if ref is None:
        return packages
    from hubkernels.build.since import affected  # noqa: PLC0415 - only where it is asked for

    reasons = affected(builder, packages, ref)
    for name, why in reasons.items():
        report(f"{name}: {why}")
    left_out = [package.name for package in packages if package.name not in reasons]
    if left_out:
        report(f"left out, since nothing that they read changed since {ref}: {', '.join(left_out)}")
    return tuple(package for package in packages if package.name in reasons)


def unreadable_since(builder: Builder, ref: str | None) -> tuple[Unreadable, ...]:
    """Members that cannot be read, and of them those with a change since the ref."""
    if ref is None or not builder.project.unreadable:
        return builder.project.unreadable
    from hubkernels.build.since import changes_since  # noqa: PLC0415

    _, changes = changes_since(builder, ref)
    return tuple(member for member in builder.project.unreadable if changes.below(member.root))
