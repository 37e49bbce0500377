"""A template, a provider and checkers of one's own in a worker: used, recorded, proven, and broken by name."""

import json
from pathlib import Path

from tests.acceptance.cli_home import question, write_lines
from tests.acceptance.command import run_here
from tests.acceptance.conftest import System
from tests.forking import REPOSITORY

EXAMPLE = "examples.extensions.nightdesk_example"
SETTINGS = {
    "providers": json.dumps({"mine": {"plugin": f"{EXAMPLE}:FirstSentence", "model": "m-1"}}),
    "provider": "mine",
    "checkers": json.dumps({"quoted": f"{EXAMPLE}:Quoted", "moody": "tests.plugins:MoodyChecker"}),
    "templates_dir": str(REPOSITORY / "examples" / "extensions" / "templates"),
}
LAYERS = ["structure", "lexical", "quoted"]


def test_parts_of_ones_own_answer_check_and_prove_and_none_loses_a_job(system: System, tmp_path: Path) -> None:
    jobs = [
        question(0, config={"prompt_name": "terse", "checkers": LAYERS}),
        question(1, context=["A source without an end of a sentence"]),
        question(2, context=["The gate breaks at nine."], config={"checkers": [*LAYERS, "moody"]}),
    ]
    settings = system.environment(**SETTINGS)
    refused = run_here(["worker"], {**settings, "NIGHTDESK_CHECKERS": '{"lost": "nowhere:Thing"}'})
    system.start_worker(**SETTINGS)
    submitted = run_here(["submit", write_lines(tmp_path / "in.jsonl", jobs)], settings)
    batch = submitted.out.strip()
    system.until_final(3, published=False)
    results = run_here(["results", batch], settings)
    audit = run_here(["show", f"{batch}:q0", "--json"], settings)

    assert refused.code == 2
    assert "NIGHTDESK_CHECKERS: the checker 'lost' names 'nowhere:Thing', which can't be loaded" in refused.err
    answered, failed, unchecked = map(json.loads, results.out.splitlines())
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
    assert audit.json()["messages"]["proven_by_hash"]
