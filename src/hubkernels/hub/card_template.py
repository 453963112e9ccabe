"""A project's own card, ``CARD.md``: a Jinja template, filled as upstream's builder fills it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.hub.card import CardFacts, render
from hubkernels.model.project import Package

TEMPLATE = "CARD.md"

Render = Callable[[CardFacts], str]


def card_of(package: Package) -> Render:
    """How the card of a package is made of facts: by its own template, where it has one.

    Raises InputError for a template that is none, EnvironmentLacksError where Jinja is missing.
    """
    file = template_of(package)
    return _compiled(file) if file.is_file() else render


def template_of(package: Package) -> Path:
    """Beside the build.toml; of a workspace's package, beside the folder of its Python files."""
    return (package.root / package.python_source).parent / TEMPLATE if package.home else package.root / TEMPLATE


def _compiled(file: Path) -> Render:
    try:
        import jinja2  # noqa: PLC0415 - an extra
    except ImportError as error:
        what = f"{TEMPLATE} is a Jinja template, and Jinja2 is not installed"
        raise EnvironmentLacksError(Problem(what, str(file), "pip install 'hubkernels[hub]', or --no-card")) from error
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)  # noqa: S701 - Markdown, and the author's own

    def fill(facts: CardFacts) -> str:
        try:
            return template.render(_variables(facts)).rstrip("\n") + "\n"
        except jinja2.TemplateError as error:
            raise InputError(Problem(f"{TEMPLATE} cannot be filled: {error.message}", str(file))) from error

    try:
        template = environment.from_string(file.read_text(encoding="utf-8"))
    except jinja2.TemplateSyntaxError as error:
        raise InputError(Problem(f"{TEMPLATE} is no template: {error.message}", f"{file}:{error.lineno}")) from error
    return fill


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
