"""Counts right, wrong and abstained answers of the offline provider, with sources that answer and sources that do not.

    python -m bench.questions [--questions DIR] [--against TREE]

The sets are made of public questions and of the examples. Sources that do not answer come in four kinds: those of the
nearest other question, the nearest passages of other questions, a question's own sources without the sentences that hold
its answer, and the examples that expect an abstention. A set's first half by order of the file is for developers to look
at; the second half is printed apart with ``--half 2``. ``--against`` measures another checkout of the project, too, in
turns with this one, and prints both.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.policy.scores import assess
from tasks.prompting.messages import render
from tasks.text import source_index
from tasks.text.sentences import sentence_spans, words
from tasks.text.wording import content_words
from worker.providers.extractive import Extractive, answer

REPOSITORY = Path(__file__).parents[1]
QUESTIONS = REPOSITORY.parent / "shared" / "data" / "questions"
EXAMPLES = REPOSITORY / "examples"
NEAREST = 5
"""Passages of other questions per question."""
ROUNDS = 3
"""Timed rounds; the best one counts, because the machine is shared."""

Source = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A question with its sources, the strings of a right answer, and whether the sources hold them."""

    query: str
    sources: Sequence[Source]
    answers: Sequence[str] = ()
    answerable: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Sequence[str]] = ()

    def request(self, response: str | None = None) -> JobRequest:
        """The job without relevance scores, which would decide before the words do."""
        sources = [{**source, "relevance_score": None} for source in self.sources]
        return JobRequest.model_validate(
            {
                "query": self.query,
                "context": sources,
                "config": dict(self.config),
                "conversation_history": list(self.history),
                "response": response,
            }
        )


@dataclass
class Counts:
    """Answers of one set: right, wrong, abstained; and how many answers have ``sufficient_context``."""

    right: int = 0
    wrong: int = 0
    abstained: int = 0
    sufficient: int = 0
    quoted_sufficient: int = 0
    """Questions with ``sufficient_context`` for the answer of a model that always quotes."""
    cpu_ms: float = 0.0

    @property
    def total(self) -> int:
        """All questions of the set."""
        return self.right + self.wrong + self.abstained


# ---- the sets ----------------------------------------------------------------------------------------------------


def read_sets(directory: Path, half: int | None) -> dict[str, list[Question]]:
    """All sets by name, those whose sources answer first."""
    sets = example_sets()
    if directory.is_dir():
        sets = {**public_sets(directory), **sets}
    else:
        print(f"No questions in {directory}: only the examples are measured. Name the folder with --questions.")
    if half is not None:
        sets = {name: _half(questions, half) for name, questions in sets.items()}
    return sets


def _half(questions: list[Question], half: int) -> list[Question]:
    middle = len(questions) // 2
    return questions[:middle] if half == 1 else questions[middle:]


def public_sets(directory: Path) -> dict[str, list[Question]]:
    """The sets of the questions in the folder."""
    sets: dict[str, list[Question]] = {}
    for path in sorted(directory.glob("*.jsonl")):
        name = path.stem.split("-")[0]
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if all(len(row["context"]) == 1 for row in rows):
            own = [Question(row["query"], _plain(row["context"]), row["answers"]) for row in rows]
            near = [nearest_passages(question, own) for question in _with_index(own)]
            sets[f"{name}: own"] = own
            sets[f"{name}: own among near"] = [
                Question(question.query, mix(question.sources, wrong), question.answers)
                for question, wrong in zip(own, near, strict=True)
            ]
            sets[f"{name}: exchanged"] = [
                Question(question.query, wrong[:1], question.answers, answerable=False)
                for question, wrong in zip(own, near, strict=True)
            ]
            sets[f"{name}: nearest {NEAREST}"] = [
                Question(question.query, wrong, question.answers, answerable=False)
                for question, wrong in zip(own, near, strict=True)
            ]
            sets[f"{name}: own, answer removed"] = list(_without_answers(own))
        else:
            own = [Question(row["query"], _plain(row["context"])) for row in rows]
            sets[f"{name}: own"] = own
            sets[f"{name}: exchanged"] = list(exchange(own))
    return sets


def example_sets() -> dict[str, list[Question]]:
    """The sets of the examples."""
    own: list[Question] = []
    unanswerable: list[Question] = []
    exchanged: list[Question] = []
    for path in sorted(EXAMPLES.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        questions = [_example(row) for row in rows if row["context"]]
        own += [question for question in questions if question.answerable]
        unanswerable += [question for question in questions if not question.answerable]
        exchanged += exchange([question for question in questions if question.answerable])
    return {
        "examples: own": own,
        "examples: not answered": unanswerable,
        "examples: exchanged": exchanged,
        "examples: own, answer removed": list(_without_answers(own)),
    }


def _example(row: Mapping[str, Any]) -> Question:
    sources = [source if isinstance(source, dict) else {"content": source} for source in row["context"]]
    return Question(
        row["query"],
        sources,
        row["metadata"]["gold"],
        answerable=row["metadata"]["expect"] != "abstained",
        config=row.get("config", {}),
        history=row.get("conversation_history", ()),
    )


def _plain(sources: Iterable[Mapping[str, Any]]) -> list[Source]:
    # The door refuses U+0000; here it must not cost a question.
    return [
        {"content": source["content"].replace("\0", " "), "title": source["title"].replace("\0", " ")}
        for source in sources
    ]


def _with_index(questions: Sequence[Question]) -> Iterator[int]:
    return iter(range(len(questions)))


def exchange(questions: Sequence[Question]) -> Iterator[Question]:
    """Each question with the sources of the question whose words are nearest, unless those answer it."""
    index = NearIndex([question.query for question in questions])
    for at, question in enumerate(questions):
        for other in index.nearest(question.query):
            sources = questions[other].sources
            texts = {source["content"] for source in question.sources}
            if other != at and not holds(question.answers, sources) and not texts & {s["content"] for s in sources}:
                yield Question(question.query, sources, question.answers, False, question.config, question.history)
                break


_INDEXES: dict[int, "NearIndex"] = {}


def nearest_passages(at: int, questions: Sequence[Question]) -> list[Source]:
    """The passages of other questions that are nearest to a question and do not hold its answer."""
    index = _INDEXES.get(id(questions))
    if index is None:
        texts = [f"{question.sources[0]['title']} {question.sources[0]['content']}" for question in questions]
        index = _INDEXES[id(questions)] = NearIndex(texts)
    question = questions[at]
    own = question.sources[0]["content"]
    passages: list[Source] = []
    for other in index.nearest(question.query):
        source = questions[other].sources[0]
        if source["content"] != own and not holds(question.answers, [source]) and source not in passages:
            passages.append(source)
        if len(passages) == NEAREST:
            break
    return passages


def mix(own: Sequence[Source], wrong: Sequence[Source]) -> list[Source]:
    """A question's own sources behind the nearest wrong one, as a search would mix them."""
    return [*wrong[:1], *own, *wrong[1:]]


def _without_answers(questions: Iterable[Question]) -> Iterator[Question]:
    """Questions with their own sources, each sentence with a part of the answer removed; without answers, none."""
    for question in questions:
        sources = [_without(source, question.answers) for source in question.sources]
        sources = [source for source in sources if source["content"].strip()]
        if question.answers and sources and not holds(question.answers, sources):
            yield Question(question.query, sources, question.answers, False, question.config, question.history)


def _without(source: Source, answers: Sequence[str]) -> Source:
    content = source["content"]
    spans = [
        span for span in sentence_spans(content) if not holds(answers, [{"content": content[span.start : span.end]}])
    ]
    separator = "\n" if "\n" in content else " "
    return {**source, "content": separator.join(content[span.start : span.end] for span in spans)}


def holds(answers: Sequence[str], sources: Iterable[Source]) -> bool:
    """Tells whether any source holds any of the answers, by its words."""
    texts = [_flat(f"{source.get('title', '')} {source['content']}") for source in sources]
    return any(_flat(expected) in text for expected in answers for text in texts)


_WORD = re.compile(r"[^\W_]+")


def _flat(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.lower()))} "


class NearIndex:
    """Texts ranked by BM25 for a question."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(word for word in words(text)) for text in texts]
        stems = [Counter(dict.fromkeys(content_words(counts), 1)) for counts in self._counts]
        self._stems = stems
        frequency = Counter(stem for counts in stems for stem in counts)
        self._weights = {stem: math.log(1 + len(texts) / count) for stem, count in frequency.items()}
        self._postings: dict[str, list[int]] = {}
        for at, counts in enumerate(stems):
            for stem in counts:
                self._postings.setdefault(stem, []).append(at)

    def nearest(self, query: str) -> list[int]:
        """The texts with a word of the question, nearest first."""
        scores: Counter[int] = Counter()
        for stem in content_words(words(query)):
            for at in self._postings.get(stem, ()):
                scores[at] += self._weights[stem] / (1 + 0.1 * math.log(1 + len(self._stems[at])))  # type: ignore[assignment]
        return [at for at, _ in sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))]


# ---- measuring ---------------------------------------------------------------------------------------------------


def measure(questions: Sequence[Question], dump: str | None = None) -> Counts:
    """Answers each question offline and judges the answers."""
    counts = Counts()
    provider = Extractive()
    calls = []
    for question in questions:
        request = question.request()
        calls.append(provider.plan(request, render(request, AnswerProtocol.SEGMENTS)))
    for question, call in zip(questions, calls, strict=True):
        completion = answer(call).completion
        segments = json.loads(completion.text)
        text = " ".join(segment["text"] for segment in segments["segments"])
        if not segments["sufficient"]:
            verdict = "abstained"
        else:
            verdict = "right" if question.answerable and _is_right(question, text) else "wrong"
            processed = postprocess(call.request, call.prompt, completion)
            assessment = assess(call.request, processed, ground(call.request, processed))
            counts.sufficient += assessment.sufficient
        setattr(counts, verdict, getattr(counts, verdict) + 1)
        counts.quoted_sufficient += _suffices_for_a_quote(question)
        if dump:
            print(
                json.dumps(
                    {
                        "set": dump,
                        "verdict": verdict,
                        "query": question.query,
                        "answer": text,
                        "expected": list(question.answers)[:3],
                    }
                )
            )
    counts.cpu_ms = min(_cpu_ms(calls) for _ in range(ROUNDS))
    return counts


def _is_right(question: Question, text: str) -> bool:
    """Right without a known answer, as the sources are the question's own; with known answers by half of an example's."""
    if not question.answers:
        return True
    flat = _flat(text)
    hits = sum(_flat(expected) in flat for expected in question.answers)
    return hits > 0


def _suffices_for_a_quote(question: Question) -> bool:
    """Sufficiency as judged for a model that always quotes: the answering sentence, or else the one with most words."""
    stems = content_words(words(question.query))
    best: tuple[bool, int, int, str] = (False, -1, 0, "")
    for number, source in enumerate(question.sources, start=1):
        for span in sentence_spans(source["content"]):
            text = " ".join(source["content"][span.start : span.end].split())
            answers = question.answerable and holds(question.answers, [{"content": text}])
            best = max(best, (answers, len(stems & content_words(words(text))), -number, text))
    request = question.request(f"{best[3].rstrip(' .')} [{-best[2]}].")
    processed = postprocess(request, None, None)
    return assess(request, processed, ground(request, processed)).sufficient


def _cpu_ms(calls: Sequence[Any]) -> float:
    spent = 0.0
    for call in calls:
        source_index.forget()
        started = time.process_time()
        answer(call)
        spent += time.process_time() - started
    return spent / max(1, len(calls)) * 1000


def table(results: Mapping[str, Sequence[Counts]], answerable: Mapping[str, bool]) -> str:
    """The figures of each set, one checkout beside the other."""
    lines = [
        "| set | sources answer | questions | right % | wrong % | abstained % | sufficient: own answer % | a quote % | ms CPU |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, columns in results.items():
        cells = [
            _beside(columns, lambda counts: 100 * counts.right / counts.total),
            _beside(columns, lambda counts: 100 * counts.wrong / counts.total),
            _beside(columns, lambda counts: 100 * counts.abstained / counts.total),
            _beside(columns, lambda counts: 100 * counts.sufficient / counts.total),
            _beside(columns, lambda counts: 100 * counts.quoted_sufficient / counts.total),
            _beside(columns, lambda counts: counts.cpu_ms, digits=2),
        ]
        holds_answer = "yes" if answerable[name] else "no"
        lines.append(f"| {name} | {holds_answer} | {columns[0].total} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _beside(columns: Sequence[Counts], figure: Any, digits: int = 1) -> str:
    return " -> ".join(f"{figure(counts):.{digits}f}" for counts in columns)


def _measure_tree(tree: Path, options: argparse.Namespace, name: str) -> Counts:
    """Measures one set in a checkout, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--questions", str(options.questions), "--only", name, "--json"]
    if options.half:
        command += ["--half", str(options.half)]
    if options.dump and tree == REPOSITORY:
        command += ["--dump"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    *dumped, last = done.stdout.splitlines()
    for line in dumped:
        print(line)
    return Counts(**json.loads(last))


def main() -> int:
    """Prints the table of all sets."""
    parser = argparse.ArgumentParser(prog="python -m bench.questions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=Path, default=QUESTIONS, help="folder with question sets (*.jsonl)")
    parser.add_argument("--against", type=Path, help="another checkout of the project to measure beside this one")
    parser.add_argument("--half", type=int, choices=(1, 2), help="only the first or the second half of each set")
    parser.add_argument("--only", help="the name of one set")
    parser.add_argument("--dump", action="store_true", help="print each question with its answer as JSON")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sets = read_sets(options.questions, options.half)
    if options.json:
        counts = measure(sets[options.only], options.only if options.dump else None)
        print(json.dumps(asdict(counts)))
        return 0
    names = [name for name in sets if sets[name] and options.only in {None, name}]
    trees = [options.against.resolve(), REPOSITORY] if options.against else [REPOSITORY]
    results = {name: [_measure_tree(tree, options, name) for tree in trees] for name in names}
    print(table(results, {name: sets[name][0].answerable for name in names}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
