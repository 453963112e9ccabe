"""Whose signatures are good: keys and workflows, from a TOML file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli

from hubkernels.errors import InputError, Problem, did_you_mean
from hubkernels.host.files import read_errors, read_regular
from hubkernels.hub.sign_key import PublicKey, read_public
from hubkernels.hub.sign_trust import GITHUB, Workflow, server_of

_DEFAULT = Path(__file__).with_name("sign_policy.toml")
_TABLES: Mapping[str, frozenset[str]] = {
    "key": frozenset({"name", "file", "pem"}),
    "workflow": frozenset({"repository", "workflow", "issuer"}),
    "sigstore": frozenset({"trust-root"}),
}


@dataclass(frozen=True)
class Policy:
    """keys: by the name that the policy gives them. trust_root: None is that of the installed sigstore."""

    keys: Mapping[str, PublicKey]
    workflows: tuple[Workflow, ...]
    trust_root: Path | None = None


def read_policy(file: Path | None = None) -> Policy:
    """The policy of a file; without one, what the stock client trusts. Raises InputError with all that is wrong."""
    file = file or _DEFAULT
    with read_errors(file):
        content = read_regular(file)
    try:
        table = tomli.loads(content.decode())
    except ValueError as error:
        raise InputError(Problem(f"the policy is no TOML: {error}", str(file))) from error
    problems = [Problem(what, str(file), hint) for what, hint in _shape(table)]
    if problems:
        raise InputError(*problems)
    keys = {_name(entry): _key(entry, file) for entry in table.get("key", ())}
    workflows = tuple(found for entry in table.get("workflow", ()) for found in _workflows(entry, file))
    if not keys and not workflows:
        hint = "a [[key]] with its file, or a [[workflow]] with its repository: docs/signing.md"
        raise InputError(Problem("the policy allows nobody", str(file), hint))
    root = table.get("sigstore", {}).get("trust-root")
    return Policy(keys, workflows, file.parent / root if root else None)


def _shape(table: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """What does not belong there: a rule that is misspelled must not be a rule less."""
    for name, value in table.items():
        if name not in _TABLES:
            yield f"unknown table {name}", did_you_mean(name, _TABLES)
            continue
        entries = [value] if name == "sigstore" else value
        form = f"[{name}]" if name == "sigstore" else f"[[{name}]]"
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            yield f"{name} has to be written {form}", None
            continue
        yield from _keys(name, form, entries)
    yield from _twins(table.get("key"))


def _twins(entries: object) -> Iterator[tuple[str, str | None]]:
    """Of two keys by one name the latter would stand for both."""
    listed = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    for name, count in Counter(map(_name, listed)).items():
        if count > 1:
            yield f"{count} keys are called {name}", "give each [[key]] a name of its own"


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name", entry.get("file", "key")))


def _keys(name: str, form: str, entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str | None]]:
    for entry in entries:
        for key, value in entry.items():
            if key not in _TABLES[name]:
                yield f"unknown key {key} in {form}", did_you_mean(key, _TABLES[name])
            elif not (isinstance(value, str) or (key == "workflow" and _is_texts(value))):
                yield f"{key} in {form} has to be a text", None
        if name == "key" and len({"file", "pem"} & set(entry)) != 1:
            yield f"a {form} needs either file or pem", None
        if name == "workflow" and not {"repository", "workflow"} <= set(entry):
            yield (
                f"a {form} needs repository and workflow",
                'repository = "org/name", workflow = "x.yaml@refs/heads/main"',
            )


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _key(entry: Mapping[str, str], file: Path) -> PublicKey:
    path = file.parent / entry["file"] if "file" in entry else file
    with read_errors(path):
        pem = entry["pem"].encode() if "pem" in entry else read_regular(path)
    try:
        return read_public(pem)
    except ValueError as error:
        hint = "an ECDSA key on P-256 or an Ed25519 key, in PEM: the .pub that `kernel-builder keygen` writes"
        raise InputError(Problem("the policy names what is no public key", str(path), hint)) from error


def _workflows(entry: Mapping[str, Any], file: Path) -> Iterator[Workflow]:
    issuer = entry.get("issuer", GITHUB)
    repository = _address(entry["repository"], issuer, file)
    named = entry["workflow"]
    for name in [named] if isinstance(named, str) else named:
        if "@" not in name:
            hint = f"{name}@refs/heads/main: whoever may push another branch could sign from it"
            raise InputError(Problem(f"the workflow {name} has no ref", str(file), hint))
        place = name if "/" in name.partition("@")[0] else f".github/workflows/{name}"
        signer = name if name.startswith("https://") else f"{repository}/{place}"
        yield Workflow(repository, signer, issuer)


def _address(repository: str, issuer: str, file: Path) -> str:
    if repository.startswith("https://"):
        return repository
    server = server_of(issuer)
    if server is None:
        what = f"the issuer {issuer} does not tell where {repository} is"
        raise InputError(Problem(what, str(file), f'its address: repository = "https://HOST/{repository}"'))
    return f"{server}/{repository}"
