"""Measures what a judge is asked and what it catches: changed facts, calls, tokens and cost.

    python -m bench.judge_calls [--data DIR] [--jobs 300] [--twins 40]

A scripted judge that is always right answers over HTTP, through the real SDKs, to real workers. Tokens are counted by
OpenAI's vocabulary o200k; prices are those of ``genai-prices``.

Changed facts: true claims of the labelled sets and of the examples that words call supported, each with one fact changed
(``bench.eval.changes``).

Answers: those of the shared questions with their web sources, written by other models, as jobs of several models. A judge
by default has its share of what each answer cost.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.eval.changes import KINDS, Facts, changed
from schemas.generation import CheckerName
from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import LayerFindings, check_claims
from tasks.grounding.judge.plan import text_of
from tasks.grounding.judge.request import plan_request
from tasks.grounding.local import claims_to_judge
from tasks.submit import parse_request
from tasks.text.evidence import begin_search
from tasks.text.sentences import sentence_spans, words
from tasks.text.statements import read_statement
from tasks.text.wording import content_words
from tests.faults.lab import KEY, Lab, open_lab
from tests.stored_records import claims_of
from tests.stub.judge import JUDGE, without_gaps
from tests.stub.meter import COUNTER
from tests.stub.scripts import SCRIPTS, Piece

REPOSITORY = Path(__file__).parents[1]
DATA = REPOSITORY.parent / "shared" / "data"
MODELS = (
    ("openai", "gpt-6-sol"),
    ("openai", "gpt-6.1-terra"),
    ("openai", "gpt-6-luna"),
    ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-haiku-5-5"),
)
UNCHANGED = "unchanged"
JUDGED = {"checkers": ["structure", "lexical", "judge"]}


# ---- changed facts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Twin:
    """A claim that words call supported, unchanged or with one fact changed, with its sources."""

    kind: str
    claim: str
    question: str
    """The claim as a judge reads it."""
    sources: tuple[str, ...]
    words_support: bool


def twins(data: Path, most: int) -> list[Twin]:
    """Twins of each kind, at most so many of a set."""
    rows = [*_examples(), *_labelled(data)]
    random.Random(1).shuffle(rows)
    counts: Counter[tuple[str, str]] = Counter()
    chosen: dict[tuple[str, str], Twin] = {}
    for dataset, claim, sources in rows:
        facts = Facts(sources)
        original = _twin(UNCHANGED, claim, sources)
        if original is None or not original.words_support:
            continue
        for kind in (UNCHANGED, *KINDS):
            text = claim if kind == UNCHANGED else changed(kind, claim, facts, claim)
            if text is None or counts[dataset, kind] >= most or (kind != UNCHANGED and _is_copy(text, sources)):
                continue
            twin = _twin(kind, text, sources)
            if twin is not None and (kind, text) not in chosen:
                counts[dataset, kind] += 1
                chosen[kind, text] = twin
    # What is a change of one claim may be another one's truth.
    right = {twin.question for twin in chosen.values() if twin.kind == UNCHANGED}
    return [twin for twin in chosen.values() if twin.kind == UNCHANGED or twin.question not in right]


def _is_copy(text: str, sources: Sequence[str]) -> bool:
    """Tells whether a changed claim stands word for word in another source, as in an older edition of a text."""
    tokens = f" {' '.join(words(text))} "
    return any(tokens in f" {' '.join(words(source))} " for source in sources)


def _twin(kind: str, claim: str, sources: tuple[str, ...]) -> Twin | None:
    """The twin with what words alone say; None where the text is not exactly one claim."""
    layers = _layers(claim, sources)
    if len(layers.claims) != 1:
        return None
    findings = layers.findings[CheckerName.LEXICAL]
    question = without_gaps(text_of(layers.claims[0]))
    return Twin(kind, claim, question, sources, findings[0].verdict is Verdict.SUPPORTED)


def _layers(response: str, sources: Sequence[str]) -> LayerFindings:
    request = JobRequest.model_validate({"query": "q", "response": response, "context": list(sources)})
    return check_claims(request, postprocess(request, None, None))


def _examples() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Sentences of the examples' sources, each with all sources of its job."""
    for path in sorted((REPOSITORY / "examples").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            sources = tuple(_content(source) for source in json.loads(line)["context"])
            for content in sources:
                for span in sentence_spans(content):
                    sentence = " ".join(content[span.start : span.end].split())
                    if 40 <= len(sentence) <= 300 and sentence.endswith(".") and "|" not in sentence:
                        yield "examples", sentence, sources


def _labelled(data: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Claims that a person labelled as supported."""
    for path in sorted((data / "labelled").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            sources = tuple(text for source in row["sources"] if (text := source.replace("\0", " ")).strip())
            if int(row["label"]) and sources and "\0" not in row["response"]:
                yield path.stem, row["response"], sources


def _content(source: Any) -> str:
    return str(source["content"] if isinstance(source, dict) else source)


def script_judge(chosen: Sequence[Twin]) -> None:
    """Makes the stub's judge right about every twin."""
    JUDGE.trusting = True
    for twin in chosen:
        if twin.kind != UNCHANGED:
            JUDGE.truth[twin.question] = None


def measure_twins(lab: Lab, chosen: Sequence[Twin]) -> None:
    """Checks the twins with a judge, and prints by kind how many end supported."""
    jobs = [{"response": twin.claim, "context": list(twin.sources), "config": JUDGED} for twin in chosen]
    batch, _ = lab.submit(jobs)
    finish(lab, len(jobs), judge="openai:gpt-6-luna", provider="extractive")
    rows = lab.rows(
        "SELECT j.position, g.grounding, g.frame FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run "
        "WHERE j.batch_id = %s",
        batch,
    )
    verdicts = {position: {claim["verdict"] for claim in claims_of(*checked)} for position, *checked in rows}
    figures: dict[str, Counter[str]] = {}
    for position, twin in enumerate(chosen):
        count = figures.setdefault(twin.kind, Counter())
        supported = verdicts[position] <= {Verdict.SUPPORTED, Verdict.NOT_CHECKABLE}
        count["twins"] += 1
        count["by words"] += twin.words_support
        count["with judge"] += supported
    _print(f"changed facts: {len(chosen)} claims; supported in the end, of those with a judge that is right")
    _print(f"{'':16}{'claims':>8}{'words alone':>13}{'with judge':>12}")
    for kind in (*KINDS, UNCHANGED):
        if count := figures.get(kind, Counter()):
            shares = [f"{count[name] / count['twins']:.1%}" for name in ("by words", "with judge")]
            _print(f"{kind:16}{count['twins']:>8}{shares[0]:>13}{shares[1]:>12}")


# ---- answers --------------------------------------------------------------------------------------------------------


def questions(data: Path, most: int) -> list[dict[str, Any]]:
    """The shared questions with web sources, each with a long answer as ``response``."""
    jobs = []
    for line in (data / "questions" / "expertqa.jsonl").read_text().splitlines()[:most]:
        row = json.loads(line)
        if not row["answers"]:
            continue
        context = [{**source, "content": source["content"].replace("\0", " ")} for source in row["context"]]
        jobs.append({"query": row["query"], "context": context, "response": row["answers"][0].replace("\0", " ")})
    return jobs


def measure_triage(jobs: Sequence[dict[str, Any]]) -> None:
    """Prints calls and tokens of a judge that the jobs ask for."""
    total = Counter[str]()
    for job in jobs:
        request, _ = parse_request(job)
        layers = check_claims(request, postprocess(request, None, None))
        positions = claims_to_judge(layers.claims, layers.findings)
        total["claims"] += len(layers.claims)
        if positions:
            planned = plan_request(request, layers.claims, positions, gives_probabilities=False)
            texts = [text for _, text in planned.prompt.snapshot.texts([s.content for s in request.context])]
            total["calls"] += 1
            total["open"] += len(planned.selection.claims)
            total["input"] += sum(map(COUNTER.count, texts))
            total["output"] += COUNTER.count(JUDGE.reply("\n".join(texts)))
    _print(f"\na judge that {len(jobs)} jobs ask for, per 1,000 jobs")
    _print(f"{'calls':>8}{'claims':>8}{'of':>8}{'input tokens':>14}{'output tokens':>15}")
    row = [1000 * total[key] // len(jobs) for key in ("calls", "open", "claims", "input", "output")]
    _print(f"{row[0]:>8,}{row[1]:>8,}{row[2]:>8,}{row[3]:>14,}{row[4]:>15,}")


def script_answers(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Jobs to generate, whose answers the stub has: each sentence cites the sentence of a source that is nearest to it."""
    generated = []
    for number, job in enumerate(jobs):
        request, _ = parse_request(job)
        mark = f"(question {number:04d})"
        SCRIPTS[mark] = tuple(_pieces(request))
        generated.append({"query": f"{job['query']} {mark}", "context": job["context"], "config": {"max_tokens": 4096}})
    return generated


def _pieces(request: JobRequest) -> Iterator[Piece]:
    response = request.response or ""
    sentences = [response[start:end] for start, end in sentence_spans(response)]
    content = [content_words(words(sentence)) for sentence in sentences]
    search = begin_search(request.context, frozenset[str]().union(*content))
    for sentence, stems in zip(sentences, content, strict=True):
        stated = () if read_statement(sentence).reason else search.sources
        matches = filter(None, (search.best(stems, source) for source in stated))
        match = max(matches, key=lambda match: round(match.score, 9), default=None)
        citations: tuple[tuple[int, str], ...] = ()
        if match is not None:
            span = search.span(match, stems)
            source = request.context[match.source_index].content
            start, end = next(iter(sentence_spans(source[span.start : span.end])))
            citations = ((match.source_index + 1, source[span.start : span.end][start:end]),)
        yield Piece(f"{sentence} ", citations)


def measure_default(lab: Lab, jobs: Sequence[dict[str, Any]], provider: str, model: str) -> None:
    """Generates the answers with a judge by default, and prints what it added."""
    before = lab.count("job")
    batch, _ = lab.submit(list(jobs))
    finish(lab, before + len(jobs), provider=provider, model=model)
    costs = lab.rows(
        "SELECT a.purpose, count(*), sum((a.usage ->> 'input_tokens')::int), sum((a.usage ->> 'output_tokens')::int), "
        "sum(a.cost_usd) FROM attempt a JOIN job j ON j.id = a.job_id WHERE j.batch_id = %s AND a.outcome = 'ok' GROUP BY 1",
        batch,
    )
    share = lab.scalar(
        "SELECT coalesce(max(judge / answer), 0) FROM (SELECT "
        "sum(a.cost_usd) FILTER (WHERE a.purpose = 'judge') AS judge, "
        "sum(a.cost_usd) FILTER (WHERE a.purpose <> 'judge') AS answer "
        "FROM attempt a JOIN job j ON j.id = a.job_id WHERE j.batch_id = %s GROUP BY j.id) s",
        batch,
    )
    records = lab.rows(
        "SELECT g.grounding, g.frame FROM generation_record g JOIN job j ON j.id = g.job_id WHERE j.batch_id = %s",
        batch,
    )
    checkers = [
        claim["checker"]
        for record in records
        for claim in claims_of(*record)
        if claim["verdict"] != Verdict.NOT_CHECKABLE
    ]
    judged, claims = checkers.count("judge"), len(checkers)
    by_purpose = {purpose: row for purpose, *row in costs}
    calls, read, wrote, usd = by_purpose.get("judge", (0, 0, 0, 0))
    answers, _, _, answers_usd = by_purpose["generate"]
    per_job = 1000 / answers
    _print(
        f"{model:18}{answers_usd * 1000 / answers:>10.4f}{calls * per_job:>8.0f}{judged / max(1, claims):>9.0%}"
        f"{read * per_job:>11,.0f}{wrote * per_job:>9,.0f}{float(usd) * per_job:>10.4f}"
        f"{float(usd) / float(answers_usd):>8.1%}{float(share):>8.1%}"
    )


def finish(lab: Lab, jobs: int, **settings: object) -> None:
    """Starts a worker, waits until so many jobs are final, and ends it."""
    worker = lab.start_worker(slots=50, **settings)
    lab.until_final(jobs, published=False, within_s=900)
    lab.kill(worker)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Prints all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="directory with 'labelled' and 'questions'")
    parser.add_argument("--jobs", type=int, default=300, help="questions")
    parser.add_argument("--twins", type=int, default=40, help="of each kind and set")
    options = parser.parse_args()
    chosen = twins(options.data, options.twins)
    script_judge(chosen)
    jobs = questions(options.data, options.jobs)
    measure_triage(jobs)
    generated = script_answers(jobs)
    with (
        tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as folder,
        open_lab(Path(folder), 0, latency_s=0.0, metered=True, lean=True) as lab,
    ):
        os.environ |= {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": lab.stub.url}
        measure_twins(lab, chosen)
        _print(
            f"\na judge by default beside {len(generated)} answers, USD and tokens per 1,000 jobs; 'most' of one job"
        )
        _print(
            f"{'answers by':18}{'answers':>10}{'calls':>8}{'claims':>9}{'input':>11}{'output':>9}{'USD':>10}{'adds':>8}{'most':>8}"
        )
        for provider, model in MODELS:
            measure_default(lab, generated, provider, model)


if __name__ == "__main__":
    main()
