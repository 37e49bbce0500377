"""Providers and checkers for tests, selected by their import path like an operator's own."""

import os
import signal

from schemas.failure import FailureKind
from schemas.grounding import Evidence, Verdict
from tasks.errors import ProviderError
from tasks.grounding.checkers import CheckInput, ClaimFinding
from worker.providers.plugin import ModelCall, Reply


class Moody:
    """A provider that does what the question says."""

    def __init__(self, api_key: str | None = None, mood: str = "") -> None:
        if mood == "grumpy":
            raise ValueError(f"no {api_key} today")

    async def complete(self, call: ModelCall) -> Reply:
        """Answer, or break."""
        question = call.messages[-1]["content"]
        if "overloaded" in question:
            raise ProviderError(FailureKind.OVERLOADED, "is busy")
        if "exit" in question:
            raise SystemExit(3)
        if "divide" in question:
            raise ZeroDivisionError("by nought")
        return None if "nothing" in question else Reply("Fine. [1]")  # type: ignore[return-value]


class Blocking:
    """A provider whose call would stop the loop."""

    def complete(self, call: ModelCall) -> Reply:
        """Wait for nobody."""
        return Reply("Fine.")


class MoodyChecker:
    """A checker that does what the answer says."""

    version = "2"

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """Give findings, or break."""
        text = answer.claims[0].text
        if "breaks" in text:
            raise KeyError("lost")
        if "exits" in text:
            raise SystemExit(3)
        if "tells" in text:
            raise PermissionError(f"{os.environ['CHARM_OF_MINE']} may not read {os.environ['REPORTS']}")
        if "shortens" in text:
            return []
        if "invents" in text:
            return [ClaimFinding(Verdict.SUPPORTED, evidence=(Evidence(source_index=9, start=0, end=5),))]
        return [ClaimFinding(Verdict.SUPPORTED, reason="it says so")] * len(answer.claims)


class Versionless:
    """No checker: it has no version."""

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """Give none."""
        return []


class DangerousChecker:
    """A checker that does not end, or ends its process, where an answer says so."""

    version = "1"

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """Give findings, or none any more."""
        text = " ".join(claim.text for claim in answer.claims)
        while "endless" in text:
            pass
        if "fatal" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return [ClaimFinding(Verdict.SUPPORTED, reason="it says so")] * len(answer.claims)
