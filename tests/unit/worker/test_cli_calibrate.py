"""``nightdesk calibrate``: labels in, a calibration file out that the check takes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.calibration.recalibration import LabelledAnswer, recalibrate
from tasks.errors import InputError
from tasks.grounding import CHECKERS, ground, use_calibration, use_local_model
from tasks.grounding.model import Calibration, shipped
from tests.scorers import NamedScorer
from worker import cli

WORDS = (
    "harbour lantern granite meadow copper violin orchard glacier pepper saddle compass turbine velvet walnut".split()
)
LINES = 60


pytestmark = pytest.mark.usefixtures("as_before")


@pytest.fixture(autouse=True)
def _shipped_again() -> Iterator[None]:
    yield
    use_local_model(None)
    use_calibration(None)


def line(number: int) -> dict[str, Any]:
    """Two thirds of the source's words are kept in a claim; someone strict calls only whole ones supported."""
    words = [WORDS[(number * 3 + step) % len(WORDS)] for step in range(6)]
    whole = number % 2 == 0
    claim = words if whole else [*words[:4], f"qu{number}x", f"zy{number}k"]
    return {
        "response": f"The {' '.join(claim)} {number}.",
        "sources": [f"The {' '.join(words)} {number}."],
        "label": whole,
    }


def labels(path: Path, *, count: int = LINES) -> Path:
    path.write_bytes(b"".join(orjson.dumps(line(number)) + b"\n" for number in range(count)))
    return path


def verdict(labelled_line: dict[str, Any]) -> Verdict:
    request = JobRequest(response=labelled_line["response"], context=labelled_line["sources"])
    return ground(request, postprocess(request, None, None)).claims[0].verdict


def test_a_calibration_is_written_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.json"
    assert cli.run(["calibrate", str(labels(tmp_path / "labels.jsonl")), "-o", str(out)]) == 0
    stderr = capsys.readouterr().err
    assert "Brier score" in stderr
    assert "words support" in stderr
    assert f"NIGHTDESK_CALIBRATION={out}" in stderr
    calibration = Calibration.load(out)
    assert calibration.labels == LINES
    assert calibration.metrics["after, in folds"]["Brier"] < calibration.metrics["before"]["Brier"]
    before = verdict(line(0))
    use_calibration(calibration)
    # A calibration says what scores mean; what words decide stays.
    assert verdict(line(0)) is before
    assert CHECKERS["lexical"].version != shipped().version  # type: ignore[index]


def test_too_few_labels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.json"
    assert cli.run(["calibrate", str(labels(tmp_path / "labels.jsonl", count=12)), "-o", str(out)]) == 2
    assert "at least 20 are needed" in capsys.readouterr().err
    assert not out.exists()
    request = JobRequest(response="Lanterns glow.", context=("Lanterns glow.",))
    with pytest.raises(InputError, match="0 of the rarer label"):
        recalibrate([LabelledAnswer(request, supported=True)] * 30, "2026-01-01")


def swapped(number: int) -> dict[str, Any]:
    """Answers whose wrong claims swap the names: the words cannot tell a wrong claim from a right claim."""
    seller, other = f"{WORDS[number % 14].title()}man", f"{WORDS[number // 14 % 14].title()}son"
    who, whom = (seller, other) if number % 3 else (other, seller)
    source = (
        f"{seller} sold the {WORDS[(number + 5) % 14]} house near the harbour to {other} in the spring of that year."
    )
    return {
        "response": f"{who} sold some {WORDS[(number + 1) % 14]} boats for silver coins to {whom}.",
        "sources": [source],
        "label": bool(number % 3),
    }


def test_a_calibration_with_a_local_model_weighs_its_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    input_path = tmp_path / "labels.jsonl"
    input_path.write_bytes(b"".join(orjson.dumps(swapped(number)) + b"\n" for number in range(90)))
    out = tmp_path / "mine.json"
    monkeypatch.setenv("NIGHTDESK_LOCAL_MODEL", "tests.scorers:NamedScorer")
    assert cli.run(["calibrate", str(input_path), "-o", str(out)]) == 0
    assert "with local model" in capsys.readouterr().err
    calibration = Calibration.load(out)
    metrics = calibration.metrics
    assert metrics["with local model, in folds"]["Brier"] < 0.1 < metrics["after, in folds"]["Brier"]
    assert calibration.local is not None
    assert calibration.local.source == "says-who-3"
    assert 30 <= calibration.local.labels <= 90
    use_calibration(calibration)
    use_local_model(NamedScorer(), calibration)
    config = {"checkers": ["lexical", "local"]}
    for number in range(6):
        request = JobRequest(response=swapped(number)["response"], context=swapped(number)["sources"], config=config)
        (claim,) = ground(request, postprocess(request, None, None)).claims
        assert (claim.verdict is Verdict.SUPPORTED) == swapped(number)["label"]
        assert claim.checker == "local"


def test_a_threshold_that_is_promised_is_written_with_what_it_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "labels.jsonl", tmp_path / "mine.json"
    copies = [f"The night desk of the harbour opens at nine in the evening {number}." for number in range(80)]
    rows = [{"claim": copy, "sources": [copy], "label": 1} for copy in copies]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    assert cli.run(["calibrate", str(path), "--alpha", "0.05", "-o", str(out)]) == 0
    stderr = capsys.readouterr().err
    assert "with 95% confidence at most 5.0% of what words call supported is false" in stderr
    assert "80 of 80 labelled lines (100%) stay supported" in stderr
    assert Calibration.load(out).metrics["guarantee"] == {"alpha": 0.05, "confidence": 0.95, "coverage": 1.0}

    path.write_bytes(b"\n".join(map(orjson.dumps, rows[:40])))
    assert cli.run(["calibrate", str(path), "--alpha", "0.05", "-o", str(out)]) == 2
    assert "at least 59 must be" in capsys.readouterr().err
