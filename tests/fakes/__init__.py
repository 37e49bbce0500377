"""Fakes of the ports, each held to the contract tests of the real one."""
