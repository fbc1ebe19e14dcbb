"""Attacks that can be repeated: strange input, failing disks, hostile requests. `make campaign`."""
