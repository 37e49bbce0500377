"""Roles of callers over HTTP, and what each may do."""

from enum import StrEnum


class Role(StrEnum):
    """The role of a key; also the name of the right that gives it its name."""

    READ = "read"
    """Look at jobs and batches."""
    SUBMIT = "submit"
    """Also submit, cancel, pause, resume and run again."""
    REVIEW = "review"
    """Look at jobs and batches, and judge answers."""
    METRICS = "metrics"
    """Read the figures of the service for a scraper, and nothing else."""
    ADMIN = "admin"
    """Everything of the tenant."""

    def includes(self, right: "Role") -> bool:
        """Tells whether a caller of this role may do what another role is named for."""
        return right in _RIGHTS[self]


_RIGHTS: dict[Role, frozenset[Role]] = {
    Role.READ: frozenset({Role.READ}),
    Role.SUBMIT: frozenset({Role.READ, Role.SUBMIT}),
    Role.REVIEW: frozenset({Role.READ, Role.REVIEW}),
    Role.METRICS: frozenset({Role.METRICS}),
    Role.ADMIN: frozenset(Role),
}
