"""Get data and look at it before training: fetch, convert, check, show."""

from segue.cli._stories import USE

STORY, PLACE = USE, 1
