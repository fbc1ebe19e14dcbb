"""Write which images train which step to a file (a manifest), or import such lists."""

from segue.cli._stories import STUDY

STORY, PLACE = STUDY, 4
