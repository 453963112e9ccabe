"""Write the golden files anew: `python -m tests.golden.regenerate`. Read the diff before it goes in."""

from __future__ import annotations

import json
from pathlib import Path

from hubkernels.build.ninja import render
from tests.golden import errors, update_build
from tests.unit.test_plan import VARIANT, made

HERE = Path(__file__).parent

(HERE / "plan.json").write_text(json.dumps(made().to_json(), indent=2) + "\n", encoding="utf-8")
(HERE / "build.ninja").write_text(
    render(made().steps, VARIANT.tag, "build/.hubkernels", ["measured"]), encoding="utf-8"
)
for old in update_build.OLD:
    update_build.golden(old).write_bytes(update_build.migrated(old)[1])
errors.EXPECTED.write_text(errors.found_in(errors.BAD.read_text(encoding="utf-8")), encoding="utf-8")
