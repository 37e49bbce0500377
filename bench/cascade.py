"""Compares a weak model alone, a strong model alone, and a cascade from one to the other: right answers and cost.

    python -m bench.cascade [--data DIR] [--questions 500]

Two models with known error rates answer over HTTP, through the real SDK, to a real worker. The questions are public ones
with the passage that holds the answer; the right answer is the sentence of the passage with the gold answer, cited. A wrong
one is

- changed: that sentence with one fact changed, cited like the right one (``bench.eval.changes``),
- beside the question: another sentence of the passage, cited; the check supports it, so no cascade can find it,
- an abstention, although the passage has the answer.

The errors of the two models are independent, and the same in every run. No judge is asked. Tokens are those of the words sent
and answered, prices those of the models whose names the stub uses.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.eval.changes import KINDS, Facts, changed
from tasks.text.sentences import sentence_spans
from tests.faults.lab import Lab, open_lab
from tests.stored_records import SNAPSHOT
from tests.stub.answers import ANSWERS, responses
from worker.ledger.postgres import PostgresLedger
from worker.operations.batch_report import collect, document

DATA = Path(__file__).parents[2] / "shared" / "data"

RIGHT, CHANGED, BESIDE, ABSTAINED = "right", "changed", "beside", "abstained"


@dataclass(frozen=True)
class Model:
    """A model of the stub: its name, for the price, and the shares of its errors."""

    name: str
    errors: dict[str, float]


WEAK = Model("gpt-6-luna", {CHANGED: 0.20, BESIDE: 0.05, ABSTAINED: 0.10})
STRONG = Model("gpt-6-sol", {CHANGED: 0.04, BESIDE: 0.02, ABSTAINED: 0.02})

ARMS: dict[str, dict[str, Any]] = {
    "weak alone": {"model": WEAK.name},
    "strong alone": {"model": STRONG.name},
    "cascade": {"model": WEAK.name, "escalate": [f"openai:{STRONG.name}"]},
}


# ---- the questions and their answers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A question with its passage, and the possible answers by their kind."""

    query: str
    title: str
    passage: str
    texts: dict[str, str]
    quote: str


def questions(data: Path, most: int) -> Iterator[Question]:
    """Public questions whose passage has one sentence with the answer, one that can be changed, and another sentence."""
    with (data / "questions" / "nq-oracle-1000.jsonl").open() as lines:
        chosen = (question for line in lines if (question := _question(json.loads(line))) is not None)
        for number, question in enumerate(chosen):
            if number == most:
                return
            yield question


def _question(row: dict[str, Any]) -> Question | None:
    source = row["context"][0]
    content = source["content"]
    sentences = [" ".join(content[start:end].split()) for start, end in sentence_spans(content)]
    whole = [sentence for sentence in sentences if sentence.endswith(".") and len(sentence) > 40]
    right = next((sentence for sentence in whole if any(answer in sentence for answer in row["answers"])), None)
    rest = [sentence for sentence in whole if not any(answer in sentence for answer in row["answers"])]
    if right is None or not rest or right not in " ".join(content.split()):
        return None
    facts = Facts([content])
    kinds = random.Random(right).sample(KINDS, len(KINDS))
    wrong = next((text for kind in kinds if (text := changed(kind, right, facts, right)) is not None), None)
    if wrong is None:
        return None
    texts = {RIGHT: right, CHANGED: wrong, BESIDE: random.Random(right).choice(rest)}
    return Question(row["query"], source["title"], content, texts, right)


def kind_of(model: Model, number: int) -> str:
    """The kind of a model's answer to a question."""
    draw = random.Random(f"{model.name} {number}").random()
    for kind, share in model.errors.items():
        draw -= share
        if draw < 0:
            return kind
    return RIGHT


def _reply(question: Question, kind: str) -> str:
    """The canonical JSON answer."""
    if kind == ABSTAINED:
        segment = {"text": "The sources do not say.", "citations": []}
        return json.dumps({"sufficient": False, "segments": [segment]})
    text = question.texts[kind]
    quote = text if kind == BESIDE else question.quote
    return json.dumps({"sufficient": True, "segments": [{"text": text, "citations": [{"source": 1, "quote": quote}]}]})


def script(chosen: list[Question]) -> None:
    """Makes the stub answer as the model that is asked."""
    models = {model.name: model for model in (WEAK, STRONG)}
    numbers = {_mark(number): number for number in range(len(chosen))}

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        response = responses(body)
        prompt = body["input"][-1]["content"]
        at = prompt.rindex("(question ")
        number = numbers[prompt[at : at + len(_mark(0))]]
        text = _reply(chosen[number], kind_of(models[body["model"]], number))
        response["output"][-1]["content"][0]["text"] = text
        return response

    ANSWERS["/v1/responses"] = answer


def _mark(number: int) -> str:
    return f"(question {number:04d})"


def jobs(chosen: list[Question], config: dict[str, Any]) -> list[dict[str, Any]]:
    """The jobs of an arm."""
    return [
        {
            "query": f"{question.query} {_mark(number)}",
            "context": [{"content": question.passage, "title": question.title}],
            "config": config,
        }
        for number, question in enumerate(chosen)
    ]


# ---- the arms --------------------------------------------------------------------------------------------------------


def tally(lab: Lab, batch_id: UUID) -> tuple[Counter[str], Decimal, int]:
    """Kinds of the final answers, wrong ones apart by notice or none; cost and calls."""
    models = {model.name: model for model in (WEAK, STRONG)}
    kinds = Counter[str]()
    for position, outcome, name in lab.rows(
        f"SELECT j.position, j.outcome, {SNAPSHOT} ->> 'model_asked' FROM job j "
        "JOIN generation_record g ON g.job_id = j.id AND g.run = j.run WHERE j.batch_id = %s",
        batch_id,
    ):
        kind = kind_of(models[name], position)
        notice = "" if kind in {RIGHT, ABSTAINED} else "unnoticed " if outcome == "answered" else "flagged "
        kinds[f"{notice}{kind}"] += 1
        kinds["right, but flagged"] += kind == RIGHT and outcome != "answered"
    cost, calls = lab.rows(
        "SELECT sum(a.cost_usd), count(*) FROM attempt a JOIN job j ON j.id = a.job_id WHERE j.batch_id = %s", batch_id
    )[0]
    return kinds, cost, calls


def levels(lab: Lab, batch_id: UUID) -> list[dict[str, Any]]:
    """The levels as the report has them."""

    async def read(ledger: Any) -> list[dict[str, Any]]:
        assert isinstance(ledger, PostgresLedger)
        report = await collect(ledger, batch_id, worst=0)
        return list(document(report)["levels"])

    return lab.with_ledger(read)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Prints the table of the arms, and the levels of the cascade."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="directory with 'questions'")
    parser.add_argument("--questions", type=int, default=500)
    options = parser.parse_args()
    chosen = list(questions(options.data, options.questions))
    script(chosen)
    with (
        tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as folder,
        open_lab(Path(folder), 0, latency_s=0.0, metered=True, lean=True) as lab,
    ):
        batches = {name: lab.submit(jobs(chosen, config))[0] for name, config in ARMS.items()}
        worker = lab.work(slots=50, default_judge_share=0)
        lab.until_final(len(chosen) * len(ARMS), published=False, within_s=900)
        lab.kill(worker)
        _print(f"{len(chosen)} questions; errors of the weak model {WEAK.errors}, of the strong one {STRONG.errors}")
        _print(
            f"{'':14}{'right':>8}{'wrong,':>11}{'wrong,':>9}{'beside':>8}{'abstains':>10}{'right but':>11}{'calls':>7}{'USD per':>10}{'USD per':>13}"
        )
        _print(
            f"{'':14}{'':>8}{'unnoticed':>11}{'flagged':>9}{'':>8}{'':>10}{'flagged':>11}{'':>7}{'1,000':>10}{'1,000 right':>13}"
        )
        for name, batch_id in batches.items():
            kinds, cost, calls = tally(lab, batch_id)
            beside = kinds["unnoticed beside"] + kinds["flagged beside"]
            counts = [kinds[RIGHT], kinds["unnoticed changed"], kinds["flagged changed"], beside, kinds[ABSTAINED]]
            shares = [f"{count / len(chosen):.1%}" for count in (*counts, kinds["right, but flagged"])]
            each = float(cost) * 1000
            _print(
                f"{name:14}{shares[0]:>8}{shares[1]:>11}{shares[2]:>9}{shares[3]:>8}{shares[4]:>10}{shares[5]:>11}{calls:>7}"
                f"{each / len(chosen):>10.4f}{each / kinds[RIGHT]:>13.4f}"
            )
        for row in levels(lab, batches["cascade"]):
            bought = (
                f", {row['newly_answered']} newly answered at {row['usd_each'] or 0:.6f} USD each"
                if row["level"]
                else ""
            )
            _print(
                f"level {row['level']} {', '.join(row['models'])}: {row['jobs']} jobs, {row['won']} answers won, "
                f"{row['cost_usd']} USD{bought}"
            )


if __name__ == "__main__":
    main()
