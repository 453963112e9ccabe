"""Values that someone else has rules for: the client, the Hub, git, the compilers of devices."""

from __future__ import annotations

from hubkernels.config.reader import Reader
from hubkernels.errors import did_you_mean, nearest
from hubkernels.model.arch import FAMILIES, TABLE_DATE, Family
from hubkernels.model.backend import Backend
from hubkernels.model.client import COMMIT, GIT_URL, LICENSES, PYTHON_DEPENDS, REPO_ID, REPO_RULE, is_branch
from hubkernels.model.project import PYTHON_SUFFIXES, KernelDependency


def read_license(general: Reader) -> str:
    """An SPDX id, or one of the Hub's own. Upstream takes any text, and the Hub then refuses the card."""
    found = general.required_text("license")
    if "license" in general.table and not found.strip() and isinstance(general.table["license"], str):
        general.complain("license is empty", "license", hint="an SPDX id: Apache-2.0, MIT; or other")
    elif found and found.lower() not in LICENSES:
        hint = nearest(found.lower(), LICENSES) or 'say "other", and ship the text as LICENSE'
        general.warn(f"the Hub knows no license {found}", "license", hint=hint)
    return found


def read_git_url(general: Reader, key: str) -> str | None:
    found = general.text(key)
    if found is not None and not GIT_URL.fullmatch(found):
        hint = "https://host/owner/repository.git or git@host:owner/repository.git"
        general.complain(f'{key} is not the address of a git repository: "{found}"', key, hint=hint)
    return found


def read_repo_id(reader: Reader, *, required: bool = False) -> str | None:
    found = reader.required_text("repo-id") if required else reader.text("repo-id")
    if found is not None and "repo-id" in reader.table and not REPO_ID.fullmatch(found):
        reader.complain(f'"{found}" is not a repository of the Hub', "repo-id", hint=REPO_RULE)
    return found


def read_branch(hub: Reader) -> str | None:
    found = hub.text("branch")
    if found is not None and not is_branch(found):
        hub.complain(f'"{found}" is not the name of a git branch', "branch", hint="such as v1 or main")
    return found


def read_python_depends(reader: Reader, backend: str = "") -> tuple[str, ...]:
    """Python packages of every backend, or of one. The client fails to load a kernel that names another."""
    key = "python-depends"
    allowed = PYTHON_DEPENDS.get(backend, {})
    named = reader.numbered_texts(key)
    for index, name in named:
        if name not in allowed:
            at = next((other for other, names in PYTHON_DEPENDS.items() if name in names), None)
            place = f"general.{at}.{key}".replace("..", ".")
            whose = f"for {backend}" if backend else "for every backend"
            hint = did_you_mean(name, allowed) if at is None else f"name it under {place}"
            reader.complain(f"the client knows no Python package {name} {whose}", key, index, hint=hint)
    return tuple(name for _, name in named)


def read_kernel_depends(reader: Reader) -> tuple[KernelDependency, ...]:
    found = []
    for index, item in reader.tables("kernel-depends"):
        path = (*reader.path, "kernel-depends", index)
        entry = Reader(item, path, reader.problems, ("repo-id", "version", "revision"))
        if ("version" in item) == ("revision" in item):
            entry.complain("exactly one of version and revision is needed")
        repo_id, revision = read_repo_id(entry, required=True) or "", entry.text("revision")
        if revision is not None and not COMMIT.fullmatch(revision):
            hint = "a branch moves, and `kernels lock` refuses it"
            entry.warn(f"revision is not a full commit hash: {revision}", "revision", hint=hint)
        found.append(KernelDependency(repo_id, entry.count("version"), revision))
    return tuple(found)


def read_python_suffixes(reader: Reader) -> tuple[str, ...]:
    """Suffixes of the files that ship, without their dots."""
    named = reader.numbered_texts("pyext")
    for index, suffix in named:
        if not suffix or suffix.startswith((".", "*")) or "/" in suffix:
            hint = f"write {suffix.lstrip('*.')}" if suffix.strip("*./") else "such as json"
            reader.complain(f'pyext has "{suffix}", which no file name ends in', "pyext", index, hint=hint)
    return tuple(dict.fromkeys((*PYTHON_SUFFIXES, *(suffix for _, suffix in named))))


def read_archs(reader: Reader, backend: Backend, key: str) -> tuple[str, ...]:
    """Names of devices; whether a release of the toolkit compiles for them is each variant's own question.

    One that does not exist is an error. Upstream drops it without a word where others stay; so it is a warning if it
    may be a newer one than the table, of a generation that the table has.
    """
    family = FAMILIES[backend.name]
    named = reader.numbered_texts(key)
    others_stay = any(family.knows(entry) for _, entry in named)
    for index, entry in named:
        if not family.knows(entry):
            _refuse_arch(reader, family, (key, index), entry, newer=others_stay and family.has_kin(entry))
    return tuple(entry for _, entry in named)


def _refuse_arch(reader: Reader, family: Family, keys: tuple[str, int], entry: str, *, newer: bool) -> None:
    name = family.name(entry)
    if name is None:
        reader.complain(f'"{entry}" is not a {family.noun}', *keys, hint=_spelling(family, entry))
        return
    what = f"there is no {family.noun} {name}, as of {TABLE_DATE}"
    near = nearest(name, family.archs)
    if newer:
        reader.warn(f"{what}: it is left out", *keys, hint=near)
    else:
        current = (arch.name for arch in family.archs.values() if arch.until is None)
        reader.complain(what, *keys, hint=near or f"there are {', '.join(current)}")


def _spelling(family: Family, entry: str) -> str:
    """A hint for an entry that is no name of an architecture; where it begins with one, that one is not in doubt."""
    respelled = entry.lower().replace("+ptx", "+PTX")
    if family.knows(respelled):
        return f"did you mean {respelled}?"
    begins = any(entry.startswith(arch) for arch in family.archs)
    return (None if begins else nearest(entry, family.archs)) or f"spelled as {family.examples}"
