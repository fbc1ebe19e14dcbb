"""The doctor: every file looked at once, what that says of a scenario, and a list of what to leave out."""
