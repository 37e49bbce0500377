"""A template, a provider and checkers of one's own in a worker: used, recorded, proven, and broken by name."""

import json
from pathlib import Path

import pytest

from tests.acceptance.cli_home import question, write_lines
from tests.acceptance.command import run_here
from tests.acceptance.conftest import System
from tests.forking import REPOSITORY

EXAMPLE = "examples.extensions.nightdesk_example"
SETTINGS = {
    "providers": json.dumps(
        {"mine": {"plugin": f"{EXAMPLE}:FirstSentence", "model": "m-1", "api_key_env": "CHARM_OF_MINE"}}
    ),
    "provider": "mine",
    "checkers": json.dumps({"quoted": f"{EXAMPLE}:Quoted", "moody": "tests.plugins:MoodyChecker"}),
    "templates_dir": str(REPOSITORY / "examples" / "extensions" / "templates"),
}
LAYERS = ["structure", "lexical", "quoted"]
SECRETS = {"CHARM_OF_MINE": "open-sesame-of-mine", "REPORTS": "postgresql://desk:word-of-reports@db/reports"}


def test_parts_of_ones_own_answer_check_and_prove_and_none_loses_a_job_or_tells_a_secret(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    jobs = [
        question(0, config={"prompt_name": "terse", "checkers": LAYERS}),
        question(1, context=["A source without an end of a sentence"]),
        question(2, context=["The gate breaks at nine."], config={"checkers": [*LAYERS, "moody"]}),
        question(3, context=["The gate tells at nine."], config={"checkers": [*LAYERS, "moody"]}),
    ]
    settings = system.environment(**SETTINGS)
    refused = run_here(["worker"], {**settings, "NIGHTDESK_CHECKERS": '{"lost": "nowhere:Thing"}'})
    system.start_worker(**SETTINGS)
    submitted = run_here(["submit", write_lines(tmp_path / "in.jsonl", jobs)], settings)
    batch = submitted.out.strip()
    system.until_final(4, published=False)
    results = run_here(["results", batch], settings)
    audit = run_here(["show", f"{batch}:q0", "--json"], settings)

    assert refused.code == 2
    assert "NIGHTDESK_CHECKERS: the checker 'lost' names 'nowhere:Thing', which can't be loaded" in refused.err
    answered, failed, unchecked, masked = map(json.loads, results.out.splitlines())
    assert (answered["outcome"], answered["response"]) == (
        "answered",
        "The warranty of the product 0 lasts 2 years from the date of purchase [1].",
    )
    record = audit.json()["records"][0]
    assert (record["prompt_name"], record["provider_snapshot"]["sdk"]) == ("terse", "examples")
    assert record["grounding"]["checkers"]["quoted"] == "1 (examples)"
    assert (failed["failure"]["kind"], failed["failure"]["message"]) == (
        "invalid_request",
        "mine found no sentence in the first source",
    )
    assert unchecked["outcome"] == "partial"
    assert "KeyError: 'lost' (tests)" in unchecked["reasoning"]
    assert "PermissionError: [masked] may not read postgresql://[masked]@db/reports (tests)" in masked["reasoning"]
    assert "[masked] may not read" in system.log()
    assert not [secret for secret in ("sesame", "word-of") if secret in system.log() + results.out]
    assert audit.json()["messages"]["proven_by_hash"]
