"""`python -m hubkernels.cli`, for where the console script is not on PATH."""

import sys

from hubkernels.cli import main

sys.exit(main())
