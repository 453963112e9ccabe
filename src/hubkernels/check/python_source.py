"""The Python files of an artifact, read but not run: what the client's way of importing them demands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

OLDEST_PYTHON = (3, 9)
"""The Python whose stable ABI the libraries have; the files beside them must parse there."""

_LAYER_METHODS = frozenset({"forward", "extra_repr"})
_LAYER_FLAGS = frozenset({"has_backward", "can_torch_compile"})
_REGISTERS = frozenset({"custom_op", "triton_op", "register_kernel", "register_fake", "register_vmap"})
"""Decorators of torch.library that take the name of an op."""


def check_python(folder: Path, python_name: str) -> Iterator[tuple[str, str]]:
    """Violations as (place, what): syntax, imports of itself by name, layers that kernelize would refuse."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    impure: list[tuple[str, str]] = []
    for path in sorted(path for path in folder.rglob("*.py") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        try:
            tree = ast.parse(path.read_bytes(), filename=name, feature_version=OLDEST_PYTHON)
        except SyntaxError as error:
            yield f"{name}:{error.lineno}", f"does not parse as Python {oldest}: {error.msg}"
            continue
        except (ValueError, RecursionError, MemoryError) as error:  # a zero byte; too deep for the parser
            yield name, f"does not parse as Python {oldest}: {error}"
            continue
        for line, what in (*_own_imports(tree, python_name), *_foreign_ops(tree)):
            yield f"{name}:{line}", what
        impure += ((f"{name}:{line}", what) for line, what in _impure_layers(name, tree))
    yield from _layers(folder, impure)


def _own_imports(tree: ast.Module, python_name: str) -> Iterator[tuple[int, str]]:
    """The client loads the package under its id, so its own name means nothing, or another package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        if any(module.split(".")[0] == python_name for module in modules):
            yield node.lineno, f"imports {python_name} by name; inside a kernel every import of itself is relative"


def _foreign_ops(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Ops under a fixed name: two builds in one process would register it twice."""
    for node in ast.walk(tree):
        for call in getattr(node, "decorator_list", ()):
            if not isinstance(call, ast.Call) or not call.args or _last_name(call.func) not in _REGISTERS:
                continue
            op = call.args[0]
            if isinstance(op, ast.Constant) and isinstance(op.value, str) and "::" in op.value:
                yield (
                    call.lineno,
                    f"registers {op.value} under a fixed name; spell it with _ops.add_op_namespace_prefix",
                )


def _last_name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _impure_layers(name: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """kernelize takes a layer's forward alone, so it refuses constructors and further members."""
    if name != "layers.py" and not name.startswith("layers/"):
        return
    layers = (node for node in tree.body if isinstance(node, ast.ClassDef) and _is_public_module(node))
    for layer in layers:
        for member, line in _members(layer):
            if member not in _LAYER_METHODS | _LAYER_FLAGS:
                allowed = ", ".join(sorted(_LAYER_METHODS | _LAYER_FLAGS))
                yield line, f"layer {layer.name} has a member {member}; kernelize allows {allowed}"


def _is_public_module(node: ast.ClassDef) -> bool:
    bases = [ast.unparse(base).split(".")[-1] for base in node.bases]
    return not node.name.startswith("_") and "Module" in bases


def _members(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield item.name, item.lineno
        elif isinstance(item, ast.Assign):
            yield from ((target.id, item.lineno) for target in item.targets if isinstance(target, ast.Name))
        elif isinstance(item, ast.AnnAssign) and item.value is not None and isinstance(item.target, ast.Name):
            yield item.target.id, item.lineno


def _layers(folder: Path, impure: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Layers that are exported must be pure. A module of that name that is not exported may be about something else."""
    has_layers = (folder / "layers.py").is_file() or (folder / "layers/__init__.py").is_file()
    top = folder / "__init__.py"
    if not top.is_file() or "layers" in top.read_text(encoding="utf-8", errors="replace"):
        yield from impure
    elif has_layers and not impure:
        yield "__init__.py", "does not import layers; the client finds them as an attribute: from . import layers"
