"""``python -m course.cli``: the command where nothing is installed on the path."""

import sys

from course.cli import main

sys.exit(main())
