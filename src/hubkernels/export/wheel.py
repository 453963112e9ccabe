"""An artifact as a plain pip wheel, for people without a Hub: the same files, importable by the package's name."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from hubkernels import __version__
from hubkernels.check.abi import check_abi, names_in
from hubkernels.check.builds import check_artifact
from hubkernels.check.violation import Violation
from hubkernels.config.abi_policy import load_abi_policy
from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.host.files import read_errors, write_atomically
from hubkernels.host.machine import find_torch
from hubkernels.model.artifact import LIMITED_API
from hubkernels.model.digest import METADATA, hashed_files
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, Variant

FIRST_ZIP_TIME, LAST_ZIP_TIME = 315532800, 4354819199  # a zip file's clock begins with 1980 and ends with 2107

_DISTRIBUTIONS = {"tvm-ffi": "apache-tvm-ffi", "onednn": "onednn-devel"}
"""What pip calls a dependency, where the client has another name for it."""


@dataclass(frozen=True)
class Wheel:
    """tag: what it runs on. files: of the package, by their path in the wheel. licences: files by name."""

    package: Package
    version: str
    tag: str
    requires: tuple[str, ...]
    files: Mapping[str, Path]
    licences: Mapping[str, Path]

    @property
    def distribution(self) -> str:
        return re.sub("-+", "_", self.package.name)

    @property
    def stem(self) -> str:
        return f"{self.distribution}-{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.stem}-{self.tag}.whl"


def plan_wheel(package: Package, variant: AnyVariant, artifact: Path, licences: Mapping[str, Path]) -> Wheel:
    """What the wheel of one artifact consists of.

    Raises CheckFailedError for an artifact that the client would refuse, or that no tag is true of.
    """
    if violations := check_artifact(artifact):
        raise CheckFailedError(*map(_problem, violations))
    _refuse_kernel_depends(package, variant)
    names = sorted((*hashed_files(artifact), METADATA))
    tag = (
        f"cp{LIMITED_API.digits}-abi3-{_platform_tag(variant, artifact)}"
        if isinstance(variant, Variant)
        else "py3-none-any"
    )
    return Wheel(
        package=package,
        version=_version(package, variant, artifact.name),
        tag=tag,
        requires=(_torch(variant), *_python_depends(package, variant)),
        files={f"{package.python_name}/{name}": artifact / name for name in names},
        licences=licences,
    )


def _platform_tag(variant: Variant, artifact: Path) -> str:
    """The tag of a variant's libraries: a promise, since pip installs the wheel wherever it holds, and nowhere else."""
    platform, policy = variant.platform, load_abi_policy()
    if platform.os != "linux":
        raise InputError(Problem(f"no wheel tag for {platform}", hint="wheels are written for linux and for noarch"))
    if violations := check_abi(artifact, {artifact.name: variant}, policy, partial(names_in, find_torch())).violations:
        raise CheckFailedError(*map(_problem, violations))
    return f"{policy.name}_{platform.cpu}"


def _problem(violation: Violation) -> Problem:
    problem = violation.problem()
    return replace(problem, hint=problem.hint or "build it again")


def write_wheel(wheel: Wheel, folder: Path, epoch: int | None) -> Path:
    """Write the wheel; the same inputs give the same bytes. epoch: SOURCE_DATE_EPOCH, the time of every file in it.

    Raises InputError for a time that a zip file cannot hold.
    """
    if epoch is not None and epoch > LAST_ZIP_TIME:
        what = f"a wheel is a zip file, whose clock ends with 2107, before {epoch}"
        raise InputError(
            Problem(what, where="environment: SOURCE_DATE_EPOCH", hint="unset it, or give an earlier time")
        )
    contents = _contents(wheel)
    moment = datetime.fromtimestamp(max(epoch or 0, FIRST_ZIP_TIME), tz=timezone.utc)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, moment.timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, also on other systems: it says how to read the next field
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, content)
    path = folder / wheel.file_name
    write_atomically(path, buffer.getvalue())
    return path


def _contents(wheel: Wheel) -> dict[str, bytes]:
    """Every file of the archive in its order: RECORD lists the others, and comes last."""
    info = f"{wheel.stem}.dist-info"
    found = {name: _read(path) for name, path in wheel.files.items()}
    found |= {f"{info}/licenses/{name}": _read(path) for name, path in sorted(wheel.licences.items())}
    found[f"{info}/METADATA"] = _metadata(wheel).encode()
    found[f"{info}/WHEEL"] = _wheel(wheel).encode()
    found[f"{info}/top_level.txt"] = f"{wheel.package.python_name}\n".encode()
    return {**found, f"{info}/RECORD": _record(found, f"{info}/RECORD").encode()}


def _read(path: Path) -> bytes:
    with read_errors(path):
        return path.read_bytes()


def _record(contents: Mapping[str, bytes], own: str) -> str:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", len(content)))
    writer.writerow((own, "", ""))
    return rows.getvalue()


def _wheel(wheel: Wheel) -> str:
    pure = str(wheel.tag == "py3-none-any").lower()
    return _fields(
        (
            ("Wheel-Version", "1.0"),
            ("Generator", f"hubkernels {__version__}"),
            ("Root-Is-Purelib", pure),
            ("Tag", wheel.tag),
        )
    )


def _metadata(wheel: Wheel) -> str:
    package = wheel.package
    links = {"Upstream": package.upstream, "Source": package.source}
    return _fields(
        (
            ("Metadata-Version", "2.4"),
            ("Name", package.name),
            ("Version", wheel.version),
            ("Summary", f"The PyTorch kernel {package.name}"),
            _license(package.license),
            *(("License-File", name) for name in sorted(wheel.licences)),
            *(("Project-URL", f"{name}, {link}") for name, link in links.items() if link and link.startswith("http")),
            ("Requires-Python", f">={LIMITED_API}"),
            *(("Requires-Dist", requirement) for requirement in wheel.requires),
        )
    )


def _license(text: str) -> tuple[str, str]:
    """The field for a licence: an SPDX expression in its canonical spelling, or the words of build.toml."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression  # noqa: PLC0415

    try:
        return "License-Expression", canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return "License", " ".join(text.split())


def _fields(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in pairs)


def _version(package: Package, variant: AnyVariant, tag: str) -> str:
    """The version of build.toml, and what tells two wheels of it apart: the backend, and a torch it is bound to."""
    if not isinstance(variant, Variant):
        return f"{package.version}+{tag.removeprefix('torch-')}"
    bound = "" if variant.stable_abi else f"torch{variant.torch.digits}."
    digits = variant.backend_version.digits if variant.backend_version else ""
    return f"{package.version}+{bound}{variant.backend.tag}{digits}"


def _torch(variant: AnyVariant) -> str:
    if not isinstance(variant, Variant):
        return "torch"
    return f"torch>={variant.torch}" if variant.stable_abi else f"torch=={variant.torch}.*"


def _python_depends(package: Package, variant: AnyVariant) -> list[str]:
    own = package.requirements.get(variant.backend.name)
    names = {*package.python_depends, *(own.python_depends if own else ())}
    return sorted(_DISTRIBUTIONS.get(name, name) for name in names)


def _refuse_kernel_depends(package: Package, variant: AnyVariant) -> None:
    own = package.requirements.get(variant.backend.name)
    needed = (*package.kernel_depends, *(own.kernel_depends if own else ()))
    if needed:
        names = ", ".join(kernel.repo_id for kernel in needed)
        what = f"{package.name} loads kernels from the Hub, which a wheel for people without one cannot: {names}"
        raise InputError(Problem(what, hint="publish it, or copy what it needs of them into the package"))
