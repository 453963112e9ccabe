"""A project's own card, ``CARD.md``: a Jinja template, filled as upstream's builder fills it."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.host.files import read_regular
from hubkernels.host.links import OWN_FILE, why_foreign
from hubkernels.hub.card import CardFacts, render
from hubkernels.model.project import Package

TEMPLATE = "CARD.md"

_MOST = 1 << 20
"""Bytes of a card: nobody reads more, and a template can make any number."""

_FRONT = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)

Render = Callable[[CardFacts], str]


def card_of(package: Package) -> Render:
    """How the card of a package is made of facts: by its own template, where it has one.

    Raises InputError for a template that is none, EnvironmentLacksError where Jinja is missing. So does what fills it,
    for what it makes and where PyYAML is missing.
    """
    file = template_of(package)
    return _compiled(_read(file, package.root), file) if os.path.lexists(file) else render


def template_of(package: Package) -> Path:
    """Beside the build.toml; of a workspace's package, beside the folder of its Python files."""
    return (package.root / package.python_source).parent / TEMPLATE if package.home else package.root / TEMPLATE


def _read(file: Path, root: Path) -> str:
    """A link out of the project would publish a file that is none of it."""
    if file.exists() and (why := why_foreign(file, root)):
        raise InputError(Problem(f"{TEMPLATE} {why}", str(file), OWN_FILE))
    try:
        content = read_regular(file)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = f"{TEMPLATE} has to be a file; or --no-card"
        raise InputError(Problem(f"{TEMPLATE} cannot be read: {reason}", str(file), hint)) from error
    _refuse_large(len(content), file)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(Problem(f"{TEMPLATE} is not UTF-8", f"{file}:{line}")) from error


def _refuse_large(size: int, file: Path) -> None:
    if size > _MOST:
        raise InputError(Problem(f"{TEMPLATE} makes {size} bytes, and a card has at most {_MOST}", str(file)))


def _compiled(text: str, file: Path) -> Render:
    try:
        from jinja2 import StrictUndefined, TemplateSyntaxError  # noqa: PLC0415 - an extra
        from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415
    except ImportError as error:
        what = f"{TEMPLATE} is a Jinja template, and Jinja2 is not installed"
        raise EnvironmentLacksError(Problem(what, str(file), "pip install 'hubkernels[hub]', or --no-card")) from error
    environment = SandboxedEnvironment(trim_blocks=True, autoescape=False, undefined=StrictUndefined)

    def fill(facts: CardFacts) -> str:
        variables = _variables(facts)
        try:
            filled = template.render(variables).rstrip("\n") + "\n"
            _refuse_large(len(filled.encode()), file)
        except InputError:
            raise
        except Exception as error:  # the template is a program: it may raise what it likes
            raise InputError(_unfilled(error, file, variables)) from error
        _refuse_bad_front_matter(filled, file)
        return filled

    try:
        template = environment.from_string(text)
    except TemplateSyntaxError as error:
        raise InputError(Problem(f"{TEMPLATE} is no template: {error.message}", f"{file}:{error.lineno}")) from error
    except RecursionError as error:
        raise InputError(Problem(f"{TEMPLATE} is no template: it is too deep", str(file))) from error
    return fill


def _unfilled(error: Exception, file: Path, variables: Mapping[str, object]) -> Problem:
    from jinja2 import UndefinedError  # noqa: PLC0415 - an extra

    hint = f"there are {', '.join(variables)}" if isinstance(error, UndefinedError) else None
    if isinstance(error, TypeError) and "no loader" in str(error):
        reason = "include, import and extends have no other file to take"
    else:
        reason = str(error) or type(error).__name__
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == "<template>"]
    return Problem(f"{TEMPLATE} cannot be filled: {reason}", f"{file}:{lines[0]}" if lines else str(file), hint)


def _refuse_bad_front_matter(text: str, file: Path) -> None:
    """The Hub refuses a card whose front matter is no YAML, when all else is sent."""
    found = _FRONT.match(text)
    if found is None:
        return
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with the Hub's client
    except ImportError as error:
        what = f"the front matter of {TEMPLATE} is YAML, and PyYAML is not installed to look at it"
        hint = "pip install 'hubkernels[client]', or --no-card"
        raise EnvironmentLacksError(Problem(what, str(file), hint)) from error
    try:
        value = yaml.safe_load(found[1])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 2 if mark else 1
        what = f"the front matter of {TEMPLATE}, filled, is no YAML: {getattr(error, 'problem', None) or error}"
        raise InputError(Problem(what, f"{file}:{line}")) from error
    if value is not None and not isinstance(value, dict):
        raise InputError(Problem(f"the front matter of {TEMPLATE} is no table of keys and values", f"{file}:1"))


def _variables(facts: CardFacts) -> dict[str, object]:
    """Those of upstream, then ours."""
    return {
        "repo_id": facts.repo_id,
        "version": facts.version,
        "functions": [each.name for each in facts.functions],
        "layers": list(facts.layers),
        "has_benchmark": facts.has_benchmark,
        "upstream": facts.upstream,
        "source": facts.source,
        "license": facts.license.lower(),
        "commit": facts.commit,
        "branch": facts.branch,
        "about": facts.about,
        "dirty": facts.dirty,
        "variants": [asdict(each) for each in facts.variants],
        "parity": [asdict(each) for each in facts.parity],
    }
