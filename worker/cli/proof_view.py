"""Shows what a prompt rendered again proves, in 80 columns."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding

from worker.cli.console import safe
from worker.operations.counts import count_of
from worker.operations.replay import Finding, PromptProof

MOST_LISTED = 20
"""Jobs that are not proven, or whose body differs, listed for people."""

_FINDINGS = {
    Finding.IDENTICAL: "identical: rendered again it is what was sent, byte for byte",
    Finding.STORED: "as stored: a replay sent the messages of another record, and they give their hash",
    Finding.DIFFERENT: "DIFFERENT from what was sent",
    Finding.UNKNOWN: "not compared",
}


def show_proofs(out: Console, proofs: Sequence[PromptProof]) -> None:
    """Writes the proof of one job in full, or the counts of many and those that are not proven."""
    if len(proofs) == 1:
        _show_proof(out, proofs[0])
        return
    messages, bodies = Counter(proof.messages for proof in proofs), Counter(proof.body for proof in proofs)
    for title, findings in (("messages", messages), ("bodies", bodies)):
        for finding, count in findings.most_common():
            out.print(safe(f"{count:,} {title} {_FINDINGS[finding]}"))
    by_reason: dict[tuple[str, ...], list[PromptProof]] = {}
    for proof in proofs:
        if proof.proven and proof.body is not Finding.DIFFERENT:
            continue
        blank = {proof.messages, proof.body} == {Finding.UNKNOWN}
        # Without a difference to show, one of them says it for all: a batch that runs would fill the screen.
        by_reason.setdefault(tuple(proof.reasons) if blank else (str(proof.job_id),), []).append(proof)
    for same in list(by_reason.values())[:MOST_LISTED]:
        _show_proof(out, same[0])
        if len(same) > 1:
            out.print(safe(f"  and so {count_of(len(same) - 1, 'further job')}: --json lists all"))
    if len(by_reason) > MOST_LISTED:
        out.print(safe(f"and {len(by_reason) - MOST_LISTED:,} more: --json lists all"))


def _show_proof(out: Console, proof: PromptProof) -> None:
    name = f" ({proof.custom_id})" if proof.custom_id else ""
    out.print(safe(f"job {proof.job_id}{name}", "bold"))
    lines = []
    for title, finding, sha256 in (
        ("messages", proof.messages, proof.sha256),
        ("body", proof.body, proof.body_sha256),
    ):
        lines += [f"{title} {_FINDINGS[finding]}", *([f"SHA-256 {sha256}"] if sha256 is not None else [])]
    lines += proof.reasons
    for line in lines:
        out.print(Padding(safe(line, "" if proof.proven else "yellow"), (0, 0, 0, 2)))
    if (place := proof.place) is not None:
        out.print(safe(f"  first difference: message {place.message} ({place.role}), character {place.character}"))
        for title, text in (("sent", place.before), ("now", place.now)):
            out.print(Padding(safe(f"{title}: {'no such message' if text is None else repr(text)}"), (0, 0, 0, 4)))
