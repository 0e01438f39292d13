"""Trials of real PHP applications: what a user does in a browser, and what an attacker tries."""
