"""The artifact under test: HUBKERNELS_TEST_ARTIFACTS names the folder of artifacts, build/ if it is not set."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType


def load_artifact(package: str) -> ModuleType:
    """The Python package of its variant for CUDA."""
    root = Path(os.environ.get("HUBKERNELS_TEST_ARTIFACTS", "build")) / package
    found = sorted(root.glob("torch-stable-abi*-cu*"))
    variants = [folder for folder in found if folder.is_dir() and not folder.name.endswith(".records")]
    assert len(variants) == 1, f"one variant for CUDA is wanted in {root}: {variants}"
    name = f"{package.replace('-', '_')}_under_test"
    place = variants[0] / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, place, submodule_search_locations=[str(variants[0])])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
