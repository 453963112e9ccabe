"""`kernel-builder explain`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubkernels.cli.console import columns, say, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, Variants, open_target, with_variants

if TYPE_CHECKING:
    from hubkernels.build.explain import Explanation, Target


def explain(
    packages: Packages = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    config: Annotated[
        bool,
        typer.Option("--config", help="Print each package as an edition-5 build.toml, with the origin of each line."),
    ] = False,
    json: Json = False,
) -> None:
    """Tell what a build would make and why: variants, reasons, toolchain, flags, id, state of the artifact."""
    builder, target = open_target(project, packages)
    if config:
        from hubkernels.config.explain import edition5_text  # noqa: PLC0415 - `--help` does without

        texts = {package.name: edition5_text(package, builder.project.root) for package in target.packages}
        say_json(texts) if json else say("\n".join(texts.values()).rstrip("\n"))
        return
    from hubkernels.build.explain import explain  # noqa: PLC0415

    chosen = with_variants(target, variant or (), lambda package: builder.decide(package).tags)
    explained = [explain(builder, package, tags) for package, tags in chosen]
    if json:
        say_json([_as_json(item) for item in explained])
        return
    for item in explained:
        say(f"{item.package}:")
        columns([(f"  {name}", text) for name, text in _rows(item)])


def _rows(item: Explanation) -> Iterator[tuple[str, str]]:
    if item.toolchain:
        yield "toolchain", "{compiler} ({path}), torch {torch}".format_map(item.toolchain)
        yield "fingerprint", item.toolchain["fingerprint"]
        if "cuda" in item.toolchain:
            yield "device code", item.toolchain["cuda"]
    for target in item.targets:
        yield "build", target.variant
        yield "  id", target.op_id
        yield "  artifact", f"{os.path.relpath(target.folder)}: {target.state}"
        if target.flags:
            yield "  flags", " ".join(target.flags)
        for section in target.sections:
            yield f"  {section.name}", f"{' '.join(section.sources)}: {' '.join(section.flags)}"
    for rejection in item.rejected:
        if rejection.variant.backend.name not in item.undeclared:
            yield "not built", f"{rejection.variant.tag}: {'; '.join(rejection.reasons)}"
    if item.undeclared:
        yield "not declared", ", ".join(item.undeclared)
    for line in item.left_out:
        yield "note", line


def _as_json(item: Explanation) -> dict[str, Any]:
    return {
        "package": item.package,
        "toolchain": item.toolchain,
        "targets": [_target_as_json(target) for target in item.targets],
        "rejected": {rejection.variant.tag: list(rejection.reasons) for rejection in item.rejected},
        "left-out": list(item.left_out),
    }


def _target_as_json(target: Target) -> dict[str, Any]:
    return {
        "variant": target.variant,
        "id": target.op_id,
        "folder": str(target.folder),
        "state": target.state,
        "flags": list(target.flags),
        "sections": {s.name: {"sources": list(s.sources), "flags": list(s.flags)} for s in target.sections},
    }
