"""``nightdesk calibrate`` with what judges said: their weights are fitted, measured on rows left out, and used."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.grounding import CHECKERS, WEIGHTS, use_calibration, use_local_model
from tasks.grounding.model import Calibration, shipped
from tasks.grounding.weights import JudgeWeights, weigh
from tasks.ports import JobView
from tests.judge_harness import PARAPHRASE, JudgeHarness, grounding_of, supplied_answer
from tests.scripted_provider import ScriptedProvider, answers
from tests.unit.worker.test_cli_calibrate import line, swapped
from worker import cli
from worker.operations.result_lines import judged_rows

pytestmark = pytest.mark.usefixtures("as_before")

DECIDER, WRITER = "openai_decisions:gpt-6-luna", "anthropic:claude-haiku-5-5"


@pytest.fixture(autouse=True)
def _shipped_again() -> Iterator[None]:
    yield
    use_local_model(None)
    use_calibration(None)


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> str:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return str(path)


def judged(count: int, *, kind: float = 0.0, seed: int = 1, **more: Any) -> list[dict[str, Any]]:
    """Judged claims as they are exported, labelled; the judge is too sure, and too kind by so many log-odds."""
    dice = random.Random(seed)
    rows = []
    for number in range(count):
        before = dice.uniform(0.13, 0.71)
        label = dice.random() < before
        odds = dice.gauss(1 if label else -1, 1.5) + kind
        probability = round(1 / (1 + 2.718281828 ** (-3 * odds)), 2)
        row = {
            "claim": f"Claim {number}.",
            "evidence": ["Words."],
            "verdict": "supported",
            "probability": 0.6,
            "judge": f"{DECIDER} by _decide@1",
            "judge_verdict": "supported" if probability >= 0.5 else "unsupported",
            "judge_probability": probability,
            "before": round(before, 4),
            "lexical": shipped().version,
            "job_id": f"job-{number}",
            "run": 1,
            "label": int(label),
        }
        rows.append(row | more)
    return rows


def with_a_word(number: int, right: float) -> dict[str, Any]:
    """An answer that words can't decide, with the word of a judge that is right at a rate."""
    row = swapped(number)
    verdicts_reply = row["label"] == (random.Random(number).random() < right)
    return row | {"judge": WRITER, "judge_verdict": "supported" if verdicts_reply else "unsupported"}


def run(*arguments: str) -> int:
    return cli.run(["calibrate", *arguments])


# ---- answers with a judge's word ------------------------------------------------------------------------------


def test_a_judge_probability_in_a_labelled_line_is_weighed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    input_path = write_rows(tmp_path / "labels.jsonl", [with_a_word(number, right=0.95) for number in range(200)])
    out = tmp_path / "mine.json"
    assert run(input_path, "-o", str(out)) == 0

    stderr = capsys.readouterr().err
    assert f"judge {WRITER}: 200 labelled claims left open by the lexical check" in stderr
    assert "words alone  before  after" in stderr
    calibration = Calibration.load(out)
    (weights,) = calibration.judges
    assert (weights.source, weights.labels) == (WRITER, 200)
    after = calibration.metrics[f"judge {WRITER}, after, in folds"]
    assert after["balanced accuracy"] > 0.9
    assert calibration.metrics["after, in folds"]["balanced accuracy"] < 0.6
    assert after["Brier"] < calibration.metrics[f"judge {WRITER}, before"]["Brier"]
    # Surer than one that nothing is known of, and no surer than it was right.
    yes = weigh(0.5, Verdict.SUPPORTED, weights)
    assert yes is not None
    assert 0.8 < yes <= weights.ceiling < 0.99


def test_claims_that_no_judge_would_be_asked_about_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = judged(60, before=0.9)
    assert run(write_rows(tmp_path / "rows.jsonl", rows), "-o", str(tmp_path / "mine.json")) == 2
    assert "0 labelled claims that the lexical check leaves open" in " ".join(capsys.readouterr().err.split())


# ---- judged claims --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0.0, 2.0])
def test_labelled_verdicts_fit_the_judge_and_not_the_lexical_weights(
    tmp_path: Path, kind: float, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json"
    assert run(write_rows(tmp_path / "rows.jsonl", judged(400, kind=kind)), "-o", str(out)) == 0

    assert "labelled answers" not in capsys.readouterr().err
    calibration = Calibration.load(out)
    (weights,) = calibration.judges
    before, after = (calibration.metrics[f"judge {DECIDER}, {when}"] for when in ("before", "after, in folds"))
    assert after["Brier"] < before["Brier"]
    assert after["ECE"] < 0.06
    assert (weights.bias < -0.3) is (kind > 0)
    assert calibration.knots == shipped().knots
    use_calibration(calibration)
    assert WEIGHTS[DECIDER] == weights
    assert CHECKERS["lexical"].version == shipped().version  # type: ignore[index]


def test_a_fit_of_one_judge_keeps_other_judges_and_the_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "base.json"
    input_path = write_rows(tmp_path / "labels.jsonl", [with_a_word(number, right=0.9) for number in range(200)])
    assert run(input_path, "-o", str(base), "-q") == 0
    monkeypatch.setenv("NIGHTDESK_CALIBRATION", str(base))
    first = Calibration.load(base)
    version = shipped().calibrated(first).version
    assert version != shipped().version

    out = tmp_path / "mine.json"
    rows = [*judged(100, lexical=version), judged(1)[0]]
    assert run(write_rows(tmp_path / "rows.jsonl", rows), "-o", str(out), "-q") == 0
    second = Calibration.load(out)
    assert f"line 101 is left out: was weighed against the words of version {shipped().version}, not of {version}" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert (second.knots, second.supported_at, second.labels) == (first.knots, first.supported_at, first.labels)
    assert [judge.source for judge in second.judges] == [WRITER, DECIDER]
    assert second.judges[0] == first.judges[0]
    # The words' curve is the same, so records go on naming it the same.
    assert shipped().calibrated(second).version == version

    # Refitting the curve makes the weights void, and says so.
    plain = write_rows(tmp_path / "plain.jsonl", [line(number) for number in range(60)])
    assert run(plain, "-o", str(tmp_path / "third.json"), "-q") == 0
    assert f"judges that these lines do not fit again ({WRITER})" in " ".join(capsys.readouterr().err.split())


def test_a_judge_with_too_few_labels_keeps_its_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*judged(60), *judged(20, judge=f"{WRITER} by _judge@1", judge_probability=None)]
    out = tmp_path / "mine.json"
    assert run(write_rows(tmp_path / "rows.jsonl", rows), "-o", str(out)) == 0
    assert f"the judge {WRITER} is not fitted: 20 labelled claims" in " ".join(capsys.readouterr().err.split())
    assert [judge.source for judge in Calibration.load(out).judges] == [DECIDER]

    rows = [row | {"label": 1} for row in judged(60)] + judged(3, label=0)
    assert run(write_rows(tmp_path / "rows.jsonl", rows), "-o", str(tmp_path / "none.json")) == 2
    stderr = " ".join(capsys.readouterr().err.split())
    assert "63 labelled claims that the lexical check leaves open, 3 of the rarer label" in stderr
    assert not (tmp_path / "none.json").exists()


def test_a_judge_with_verdicts_and_probabilities_is_not_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*judged(40), *judged(40, judge_probability=None)]
    assert run(write_rows(tmp_path / "rows.jsonl", rows), "-o", str(tmp_path / "mine.json")) == 2
    assert "a judge gives one or the other" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "label: must be 1 or 0"),
        ({"judge": "openai"}, "judge: must be 'provider:model'"),
        ({"judge": None}, "judge: must be 'provider:model'"),
        ({"judge_probability": 87}, "judge_probability: must be a number from 0 to 1"),
        ({"judge_verdict": "maybe"}, "judge_verdict: must be one of supported, contradicted, unsupported, partial"),
        ({"judge_verdict": None, "judge_probability": None}, "holds no verdict of the judge itself"),
        ({"before": "0.4"}, "before: must be a number from 0 to 1, or null"),
        ({"lexical": "1"}, f"was weighed against the words of version 1, not of {shipped().version}"),
        ({"claim": None, "job_id": None}, "claim: is missing"),
        ({"local": "mini-1"}, "was weighed against the local model mini-1, those before against none"),
    ],
)
def test_a_line_without_a_judge_verdict_is_left_out_with_a_warning(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = judged(60)
    rows[3] |= change
    assert run(write_rows(tmp_path / "rows.jsonl", rows), "-o", "-", "-q") == 0
    captured = capsys.readouterr()
    assert f"line 4 is left out: {message}" in " ".join(captured.err.split())
    assert orjson.loads(captured.out)["judges"][0]["labels"] == 59


def test_both_kinds_of_lines_are_not_fitted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    input_path = write_rows(tmp_path / "rows.jsonl", [*judged(40), line(0)])
    assert run(input_path, "-o", str(tmp_path / "mine.json")) == 2
    assert "line 41 is of another kind than those before" in " ".join(capsys.readouterr().err.split())


def exported(request: JobRequest) -> tuple[str, dict[str, Any]]:
    """Check one answer by a judge that gives 0.9; what the record calls the judge, and the row made of its claim."""
    harness = JudgeHarness(
        ScriptedProvider(answers('{"answers": [{"question": 1, "probability": 0.9}]}'), decides=True)
    )

    async def scenario() -> JobView:
        await harness.submit(request)
        return await harness.finish()

    view = asyncio.run(scenario())
    (row,) = judged_rows(view)
    return grounding_of(view).checkers["judge"], row


def test_exported_lines_can_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, row = exported(supplied_answer(PARAPHRASE))
    dice = random.Random(3)
    rows = [
        row | {"job_id": str(number), "judge_probability": chance, "label": int(dice.random() < chance)}
        for number in range(60)
        for chance in [dice.random()]
    ]
    out = tmp_path / "mine.json"
    assert run(write_rows(tmp_path / "rows.jsonl", rows), "-o", str(out), "-q") == 0
    (weights,) = Calibration.load(out).judges
    assert weights.source == "scripted:scripted-1"

    # A record names the weights that its score came from.
    monkeypatch.setitem(WEIGHTS, weights.source, weights)
    named, row = exported(supplied_answer(PARAPHRASE))
    assert named.startswith("scripted:scripted-1 by _decide@1+")
    assert row["probability"] <= weights.ceiling
    monkeypatch.setitem(WEIGHTS, weights.source, JudgeWeights(source=weights.source, labels=9))
    other, _ = exported(supplied_answer(PARAPHRASE))
    assert other != named
