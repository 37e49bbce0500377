"""The forms of an input file are recognised by content, and their rows become the same jobs."""

import csv
import gzip
import io
import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import parquet

from tasks.errors import InputError
from tasks.ports import NewBatch
from worker.operations.file_intake import InputOrder, Intake
from worker.operations.input_columns import ColumnMap

ROWS = [
    {"id": "a", "question": "When is rent due?", "documents": ["On the first day."], "reference": "the first"},
    {"id": "b", "question": 'What is "due"; and\nwhen?', "documents": ["Rent."], "reference": "ü"},
]
JOBS = [("a", "When is rent due?", ["On the first day."]), ("b", 'What is "due"; and\nwhen?', ["Rent."])]


class Read:
    """The jobs of a file, and all that was said about it."""

    def __init__(self, path: Path | str, *maps: str, check_only: bool = False, **options: Any) -> None:
        self.messages: list[str] = []
        batch = NewBatch(id=uuid4(), tenant="default")
        self.intake = Intake(
            InputOrder([str(path)], check_only=check_only, columns=ColumnMap.parse(maps, **options)),
            batch,
            tell=self.messages.append,
        )
        self.requests = [json.loads(job.request) for job in self.intake.jobs()]

    @property
    def jobs(self) -> list[tuple[str | None, str, list[str]]]:
        return [
            (each["custom_id"], each["query"], [source["content"] for source in each["context"]])
            for each in self.requests
        ]

    @property
    def refused(self) -> list[str]:
        return [str(each) for each in self.intake.refused]


def file(tmp_path: Path, content: str | bytes, name: str = "in") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(rows: list[dict[str, Any]], delimiter: str = ",", headings: list[str] | None = None) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(headings or rows[0])
    writer.writerows([each if isinstance(each, str) else json.dumps(each) for each in row.values()] for row in rows)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (json.dumps(ROWS), "a JSON array"),
        ("\ufeff \n" + json.dumps(ROWS, indent=2), "a JSON array"),
        ("\n".join(json.dumps(row, indent=1) for row in ROWS), "JSON objects"),
        (table(ROWS), "CSV"),
        ("\ufeff" + table(ROWS, ";"), "CSV with ';'"),
        ("sep=|\r\n" + table(ROWS, "|"), "CSV with '|'"),
        (table(ROWS, "\t"), "TSV"),
        (table(ROWS, "\t").encode("utf-16"), "TSV"),
        (table(ROWS, ";", ["ID ", "Question", "Documents", "Reference"]), "CSV with ';'"),
        (gzip.compress(table(ROWS).encode(), mtime=0), "CSV"),
    ],
)
def test_every_form_is_recognised_and_holds_the_same_jobs(tmp_path: Path, content: str | bytes, form: str) -> None:
    read = Read(file(tmp_path, content))
    assert read.jobs == JOBS
    assert not read.refused
    assert [next(iter(each["metadata"].values())) for each in read.requests] == ["the first", "ü"]
    assert read.messages[0].startswith(f"{tmp_path / 'in'} is {form}: ")


def test_a_table_with_columns_beyond_measure_is_refused_whole(tmp_path: Path) -> None:
    columns = [f"c{number}" for number in range(100_000)]
    with pytest.raises(InputError, match="has 100,001 columns, at most 2,000 are taken"):
        Read(file(tmp_path, f"query,{','.join(columns)}\n"))
    read = Read(file(tmp_path, f"query,context,{','.join(columns[:1998])}\nWhy?{',x' * 1999}\n"))
    assert read.messages[0].endswith(
        "kept as metadata: " + "".join(f"'c{number}', " for number in range(20)) + "and 1,978 more"
    )
    with pytest.raises(InputError, match="two columns 'c7'"):
        Read(file(tmp_path, "query,c7,c8,c7\n"))


def test_json_nested_beyond_measure_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nested too deeply; nothing was submitted"):
        Read(file(tmp_path, "[" * 200_000 + "]" * 200_000))
    # Brackets and quotes in a text are no nesting, wherever the pieces of the file end.
    deep = {"query": "Why?", "context": ['[{\\"' * 20_000 + "\\\\"], "in": json.loads("[" * 20 + "]" * 20)}
    read = Read(file(tmp_path, json.dumps([deep] * 3)))
    assert (len(read.requests), read.refused) == (3, [])


def test_two_names_of_one_field_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    path = file(tmp_path, json.dumps({"question": "Why?", "prompt": "p", "context": ["Because."]}))
    (problem,) = Read(path).refused
    assert "prompt: is another name of 'query', as 'question' is" in problem
    assert [each["query"] for each in Read(path, "query=question").requests] == ["Why?"]


def test_columns_with_other_names_are_mapped(tmp_path: Path) -> None:
    path = file(tmp_path, "frage;text1;text2;modell\nWarum?;Darum.;;m-1\nWann?;Heute.;Morgen.;\n")
    read = Read(path, "question=frage", "sources=text1,text2", "config.model=modell")
    assert read.jobs == [(None, "Warum?", ["Darum."]), (None, "Wann?", ["Heute.", "Morgen."])]
    assert [each["config"]["model"] for each in read.requests] == ["m-1", None]
    assert read.messages == [
        f"{path} is CSV with ';': query is 'frage', context is 'text1', context is 'text2', config.model is 'modell'"
    ]


def test_sources_of_one_cell_are_a_list_texts_between_a_delimiter_or_one_text(tmp_path: Path) -> None:
    cells = ['["a", "b"]', '[{"content": "c", "title": "T"}]', "d || e", "[1] is a note, not JSON"]
    path = file(tmp_path, table([{"query": "Why?", "context": cell} for cell in cells]))
    assert sum("--source-delimiter '||'" in message for message in Read(path).messages) == 1
    for content in (table([row := {"query": "Why?", "context": "a.|b."}]), lines({**row, "context": ["a.|b."]})):
        joined = file(tmp_path, content, "joined")
        assert "--source-delimiter '|'" in Read(joined).messages[-1]
        assert Read(joined, source_delimiter="|").jobs[0][2] == ["a.", "b."]
    read = Read(path, source_delimiter="||")
    assert not any("--source-delimiter" in message for message in read.messages)
    sources = [job[2] for job in read.jobs]
    assert sources == [["a", "b"], ["c"], ["d", "e"], ["[1] is a note, not JSON"]]


def test_a_cell_that_python_printed_is_no_source_as_a_whole(tmp_path: Path) -> None:
    series = "0    The fee is due.\n1    Rent.\ndtype: str"
    cells = [
        "[]",
        "('a', 'b')",
        series,
        "[Document(id=1, content: 'a')]",
        "[<Document object at 0x7f>]",
        "[{a: b}]",
        "[a]",
    ]
    read = Read(file(tmp_path, table([{"query": f"{number}?", "context": cell} for number, cell in enumerate(cells)])))
    assert [job[1:] for job in read.jobs] == [("0?", []), ("1?", ["a", "b"]), ("6?", ["[a]"])]
    assert ["can't be read back; write" in each for each in read.refused] == [True] * 4
    assert ["in brackets" in each for each in read.messages] == [True]


def test_answers_to_check_come_as_a_table_too(tmp_path: Path) -> None:
    path = file(tmp_path, "Answer,Sources\nIt closes at noon.,The archive closes at noon.\n,x\n")
    read = Read(path, check_only=True)
    assert [each["response"] for each in read.requests] == ["It closes at noon."]
    assert read.refused == [f"{path}, line 3: Answer: is missing: put the answer to check there, or under 'answer'"]
    with pytest.raises(InputError, match="by its columns 'Answer', 'Sources': none is known as the question"):
        Read(path)


def test_a_broken_row_is_named_as_a_spreadsheet_counts_and_the_others_are_read(tmp_path: Path) -> None:
    text = 'query,context,config\nA?,x,\n\n"B" b?,x,\nC?,x,,y\n,x,\nD?,x,{\nE?,"over\ntwo",\nF?,x,"{""x"": 1}"\n'
    read = Read(path := file(tmp_path, text))
    assert [each["query"] for each in read.requests] == ["A?", "E?"]
    assert [line.removeprefix(f"{path}, ").partition(":")[0] for line in read.refused] == [
        "line 4", "line 5", "line 6", "line 7", "line 9",
    ]  # fmt: skip
    assert "config: the cell: not valid JSON" in read.refused[3]
    assert "config.x: unknown field" in read.refused[4]


RESULT = (
    '{"job_id":"a","custom_id":null,"position":0,"batch_id":"b","state":"completed","held_reason":null,"query":"W"}'
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "holds no jobs: it is a picture"),
        (b"PK\x03\x04abc", "an Excel workbook; save the sheet as 'CSV UTF-8'"),
        ('# Title\n\n```\n{"query": "Why?", "context": []}\n', "holds no jobs: it begins with '# Title'"),
        (
            "Nr;Frage;Beleg 1;Beleg 2\n1;Warum ist das so?;Weil es so ist.;Darum.\n",
            "--map query=Frage --map 'sources=Beleg 1,Beleg 2'",
        ),
        (RESULT, "it holds results"),
        ('[{"query": "A?"},\n{"query": }]', "not valid JSON at line 2, column 11: .* nothing was submitted"),
        ('[{"query": "A?"}]x', "not valid JSON at column 18: "),
        ('query,context\nA?,x\nB?,"open\nC?,x\n', "line 3: a quote that opens there is never closed"),
        ("query,context\nWo ist der Schlüssel?,x\n".encode("latin-1"), "is not UTF-8; nothing was .*--encoding cp1252"),
    ],
)
def test_a_file_that_is_no_input_is_refused_as_a_whole(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Read(file(tmp_path, content))
    assert str(tmp_path) in str(caught.value)


def contents_of(row: dict[str, str]) -> list[str]:
    """A row in each form of text."""
    return [
        table([row], ";"),
        *(json.dumps(value, ensure_ascii=False) for value in (row, [row], {"data": [row]}, {"1": row})),
        json.dumps(row, indent=1, ensure_ascii=False) * 2,
    ]


@pytest.mark.parametrize("content", contents_of({"query": "Wo ist der Schlüssel?", "context": "Im Büro."}))
def test_text_in_another_encoding_is_read_by_its_mark_or_once_it_is_named(tmp_path: Path, content: str) -> None:
    jobs = Read(file(tmp_path, content)).jobs
    assert jobs[0][1:] == ("Wo ist der Schlüssel?", ["Im Büro."])
    path = file(tmp_path, content.encode("cp1252"), "western")
    assert Read(path, encoding="cp1252").jobs == jobs
    for name in ("utf-16", "utf-16-be"):
        marked = "" if name == "utf-16" else "\ufeff"
        assert Read(file(tmp_path, (marked + content).encode(name))).jobs == jobs
    try:
        (problem, *_) = Read(path).refused
    except InputError as error:
        problem = str(error)
    assert "is not UTF-8" in problem
    assert "--encoding cp1252" in problem


@pytest.mark.parametrize("option", ["frage", "=a", "query=", "colour=a", "config.colour=a"])
def test_a_wrong_mapping_is_named(option: str) -> None:
    with pytest.raises(InputError, match="--map '"):
        ColumnMap.parse([option])


def test_a_mapping_the_wrong_way_round_is_turned() -> None:
    with pytest.raises(InputError, match="the field stands first: question=frage"):
        ColumnMap.parse(["frage=question"])


def test_an_array_beyond_measure_is_refused_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.operations.input_rows.MOST_JSON_BYTES", 10)
    with pytest.raises(InputError, match="larger than the 10 bytes of an array"):
        Read(file(tmp_path, json.dumps(ROWS)))


def lines(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"kontext": "Because it is so."}, "--map sources=kontext."),
        ({"team": "a team of the archive", "belege": ["Because."]}, "--map sources=belege."),
        ({"belege": [{"nr": "1", "absatz": "Because."}]}, "--map sources=belege --map sources.content=absatz."),
        ({"negative": ["Then.", "There."], "positive": ["Because."]}, "--map sources=positive."),
        ({"gt_answer": "So it is.", "gt_context": "Because it is so."}, "--map sources=gt_context."),
        ({"plots": ["/srv/" + "x" * 120], "beleg": "Because it is so."}, "--map sources=beleg."),
        ({"beleg_1": "Because it is so.", "beleg_2": "And so."}, "--map sources=beleg_1,beleg_2."),
        ({"belege": {"absatz": {"0": "Because."}}}, "--map sources=belege --map sources.content=absatz."),
        (
            {"treffer": [{"document": {"teile": [{"absatz": "Because."}]}}]},
            "--map sources=treffer.document.teile --map sources.content=absatz.",
        ),
        ({"answers": [{"data": "So.", "documents": [{"content": "Because."}]}]}, "--map sources=answers.documents."),
        ({"output": [{"results": [{"text": "Because."}]}, {"content": "So."}]}, "--map sources=output.results."),
        (
            {
                "observations": [
                    {"type": "SPAN", "output": [{"page_content": "Because."}]},
                    {"type": "GENERATION", "output": {"content": "It is so."}},
                ]
            },
            "--map sources=observations.output.page_content.",
        ),
        (
            {"metadata": {"questions": ["Why so?"] * 9, "beleg": "Because it is so."}},
            "left over is 'metadata.beleg'.*--map sources=metadata.beleg.",
        ),
    ],
)
@pytest.mark.parametrize("form", ["lines", "array", "table"])
def test_a_file_without_any_sources_stops_and_names_the_option_that_helps(
    tmp_path: Path, row: dict[str, Any], options: str, form: str
) -> None:
    rows = [{"id": str(number), "query": "Why?", **row} for number in range(120)]
    content = {"lines": lines(*rows), "array": json.dumps(rows), "table": table(rows)}[form]
    path = file(tmp_path, content)
    with pytest.raises(InputError, match=f"has no sources in its first 100 rows, .*{options}"):
        Read(path)
    (custom_id, *_), *_ = Read(path, *re.findall(r"--map (\S+?)\.?(?= |$)", options)).jobs
    assert custom_id == "0"


@pytest.mark.parametrize(
    "row",
    [
        {"outputs": {"response": "It is so, as everybody knows."}},
        {"steps": [{"input": "Why is that so?", "output": {"role": "assistant", "content": "It is so."}}]},
        {"input": [{"role": "user", "content": "Why is that so?"}], "query": None},
        {"found": [{"url": "https://a.example/long.html", "kind": "web"}]},
        {"output": "It is so.", "record": {"calls": [{"rets": ["Because it is."]}, {"rets": "It is so."}]}},
        {"answer": "It is so.", "rets": ["Because it is.", "It is so."]},
    ],
)
def test_an_option_is_typed_for_sources_alone(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="give them in 'context'"):
        Read(file(tmp_path, lines({"query": "Why?", **row})))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"_id": "1", "text": "Why so?", "more": "Because it is so."},
            "'_id', 'text', 'more': none .* --map query=text",
        ),
        ({"contents": "Because it is so. " * 20}, "'contents': none .* --map query=NAME --map sources=contents"),
        ({"question_ar": "Why so?", "category": "Ice hockey"}, "--map query=question_ar\\."),
        (
            {"run": {"frage": "Why so?", "text": "So it is."}, "response": "So."},
            "--map query=run.frage --map sources=run\\.",
        ),
        ({"messages": [{"role": "assistant", "content": "So."}]}, "no conversation ends with one"),
    ],
)
@pytest.mark.parametrize("count", [1, 120])
def test_a_file_without_any_question_stops_and_names_the_option_that_helps(
    tmp_path: Path, row: dict[str, Any], message: str, count: int
) -> None:
    with pytest.raises(InputError, match=f"holds no .*{message}"):
        Read(file(tmp_path, lines(*[row] * count)))


def test_a_table_that_begins_with_a_job_is_told_from_one_with_unknown_names(tmp_path: Path) -> None:
    content = "Is my bicycle insured?,Bicycles are insured.\nHow high is it?,It is 250 euros.\n"
    with pytest.raises(
        InputError, match=r"its first row must name the columns, and reads like a job: 'Is my .*query,context"
    ):
        Read(file(tmp_path, content))


@pytest.mark.parametrize("answer", [{}, {"response": "At noon."}])
def test_rows_of_one_chunk_each_are_told_with_the_first_and_their_number(
    tmp_path: Path, answer: dict[str, str]
) -> None:
    rows = [{"query": query, "context": chunk, **answer} for query in ("When?", "Why?") for chunk in ("A.", "B.", "C.")]
    for content, first in (
        (lines(*rows), 2),
        (lines(*rows[::3], *rows[1::3], *rows[2::3]), 3),
        (lines(*rows[::3] * 2), 0),
    ):
        read = Read(path := file(tmp_path, content), check_only=bool(answer))
        warnings: list[str] = []
        read.intake.warn_of_jobs(warnings.append)
        hits = [each for each in warnings if each.startswith(f"from {path}, line {first} on, rows ask as a row above")]
        assert [each.endswith("(4 jobs)") for each in hits] == [True] * bool(first)


CHUNKS = [
    {"nr": "1", "frage": "When?", "text": "A.", "titel": "T"},
    {"nr": "1", "frage": "When?", "text": "B.", "titel": "U"},
    {"nr": "2", "frage": "Why?", "text": "", "titel": "V"},
    {"nr": "", "frage": "Who?", "text": "C.", "titel": "W"},
    {"nr": "", "frage": "Who?", "text": "D.", "titel": "X"},
]
MAPS = ("query=frage", "sources.content=text", "sources.title=titel")


@pytest.mark.parametrize("content", [table(CHUNKS), lines(*CHUNKS)], ids=["table", "lines"])
def test_rows_of_one_question_are_one_job_where_their_column_is_named(tmp_path: Path, content: str) -> None:
    path = file(tmp_path, content)
    read = Read(path, *MAPS, group_by="nr")
    assert [job[1:] for job in read.jobs] == [
        ("When?", ["A.", "B."]), ("Why?", [""]), ("Who?", ["C."]), ("Who?", ["D."]),
    ]  # fmt: skip
    assert [source["metadata"]["title"] for source in read.requests[0]["context"]] == ["T", "U"]
    with pytest.raises(InputError, match="has no 'number', which --map or --group-by names"):
        Read(path, *MAPS, group_by="number")


def test_what_a_warning_is_about_is_named_by_line_and_column(tmp_path: Path) -> None:
    warnings: list[str] = []
    path = file(tmp_path, table(CHUNKS))
    Read(path, *MAPS).intake.warn_of_jobs(warnings.append)
    assert f"without sources there is no answer: {path}, line 4 (1 job)" in warnings
    assert any(each.endswith("with all sources: --group-by frage (2 jobs)") for each in warnings)

    row = {"response": "It closes at noon.", "context": ["It closes at noon.", "Or at one."]}
    Read(file(tmp_path, lines(row)), check_only=True).intake.warn_of_jobs(warnings.append)
    assert "is supported by itself" in warnings[-1]


@pytest.mark.parametrize(
    "row",
    [
        {"id": "1", "inputs": {"question": "Why?"}, "outputs": {"answer": "So.", "context": ["A.", "B."]}},
        {"id": "1", "input": {"query": "Why?"}, "output": {"answer": "So.", "contexts": ["A.", "B."]}},
        {"id": "1", "question": "Why?", "results": {"ids": [["x", "y"]], "documents": [["A.", "B."]]}},
        {"id": "1", "query": "Why?", "response": {"docs": [{"content_txt": ["A."]}, {"content_txt": ["B."]}]}},
        {"id": "1", "input": "Why?", "context": None, "retrieval_context": ["A.", "B."]},
    ],
)
@pytest.mark.parametrize("form", ["lines", "table", "print", "parquet"])
def test_a_row_is_the_same_job_in_every_form(tmp_path: Path, row: dict[str, Any], form: str) -> None:
    cells = {key: each if isinstance(each, str) else "" if each is None else str(each) for key, each in row.items()}
    content = {"lines": lines(row), "table": table([row]).replace("null", ""), "print": table([cells])}.get(form, "")
    path = file(tmp_path, content)
    if form == "parquet":
        parquet.write_table(pa.Table.from_pylist([row]), path)
    assert Read(path).jobs == [("1", "Why?", ["A.", "B."])]


def test_the_column_that_is_named_takes_no_other_in_its_place_where_it_is_empty(tmp_path: Path) -> None:
    path = file(tmp_path, "frage,question,context\nWhy?,no,A.\n,no,B.\n")
    read = Read(path, "query=frage")
    assert [job[1] for job in read.jobs] == ["Why?"]
    assert "'frage' is missing or empty" in read.refused[0]


def test_a_column_that_means_something_else_is_kept_by_an_option(tmp_path: Path) -> None:
    path = file(tmp_path, table([{"question": "Why?", "context": "Because.", "priority": "P2"}]))
    (problem,) = Read(path).refused
    assert problem.endswith(
        "priority: must be a whole number; to keep the column as it is: --map metadata.priority=priority"
    )
    read = Read(path, "metadata.priority=priority")
    assert read.requests[0]["metadata"] == {"priority": "P2"}


def test_names_inside_of_sources_are_mapped(tmp_path: Path) -> None:
    row = {"question": "Why?", "belege": [{"absatz": "Because.", "kopf": "T", "seite": 4.0}, {"absatz": "So."}]}
    maps = ("sources=belege", "sources.content=absatz", "sources.title=kopf", "sources.page=seite")
    for content in (lines(row), json.dumps([row]), table([row])):
        (request,) = Read(file(tmp_path, content), *maps).requests
        assert [(each["content"], each["metadata"]) for each in request["context"]] == [
            ("Because.", {"title": "T", "page": 4}),
            ("So.", {}),
        ]
    flat = {"question": "Why?", "absatz": "Because.", "kopf": "T"}
    for content in (lines(flat), table([flat])):
        (request,) = Read(file(tmp_path, content), "sources.content=absatz", "sources.title=kopf").requests
        assert [(each["content"], each["metadata"]) for each in request["context"]] == [("Because.", {"title": "T"})]


@pytest.mark.parametrize("option", ["query=nosuch", "sources=nosuch", "sources.content=nosuch", "metadata.x=nosuch"])
@pytest.mark.parametrize("form", ["lines", "array", "table"])
def test_a_name_that_is_in_no_row_is_refused_in_every_form(tmp_path: Path, option: str, form: str) -> None:
    rows = [{"query": "Why?", "context": "Because."}] * 3
    content = {"lines": lines(*rows), "array": json.dumps(rows), "table": table(rows)}[form]
    with pytest.raises(InputError, match=r"has no .*'nosuch', which --map or --group-by names.*'query', 'context'"):
        Read(file(tmp_path, content), option)


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        ([0.0164, 0.0161], "below 0.1"),
        ([3.1, -2.3], "below 0, as logits"),
        ([87, 40], "above 1, as percent"),
        ([0.0, 0.0], "nothing but 0"),
        ([0.2, 0.05], None),
        ([1.0000001, 0.05], None),
        ([True, True], None),
    ],
)
def test_scores_of_another_scale_are_told_once_and_no_threshold_decides(
    tmp_path: Path, scores: list[float], scale: str | None
) -> None:
    row = {"query": "Why?", "context": [{"content": "Because.", "score": score} for score in scores]}
    usual = {"query": "Why?", "context": [{"content": "Because.", "score": 0.3}], "config": {"min_relevance": 0.5}}
    read = Read(file(tmp_path, lines(*[row] * 30)))
    assert {each["config"]["min_relevance"] for each in read.requests} == {0.4 if scale is None else 0.0}
    assert [(message, count) for message, count in read.intake.warnings.items() if "relevance" in message] == (
        [] if scale is None else [(message, 30) for message in read.intake.warnings if scale in message]
    )
    if scale is not None:
        assert Read(file(tmp_path, lines(row, usual))).requests[1]["config"]["min_relevance"] == 0.5


WRAPPED = [{"question": "Why?", "contexts": ["Because."]}, {"question": "When?", "contexts": ["Then.", "Now."]}]
READ = [(None, "Why?", ["Because."]), (None, "When?", ["Then.", "Now."])]


@pytest.mark.parametrize(
    "value",
    [
        {"version": "1", "data": WRAPPED},
        {"model": "m", "runs": {"first": WRAPPED}},
        {"columns": ["question", "contexts"], "index": [0, 1], "data": [[*row.values()] for row in WRAPPED]},
        {name: {str(at): row[name] for at, row in enumerate(WRAPPED)} for name in WRAPPED[0]},
        {str(at): row for at, row in enumerate(WRAPPED)},
        {name: [row[name] for row in WRAPPED] for name in WRAPPED[0]},
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_of_one_object_is_read_as_the_rows_in_it(
    tmp_path: Path, value: dict[str, Any], indent: int | None
) -> None:
    read = Read(path := file(tmp_path, json.dumps(value, indent=indent)))
    assert read.jobs == READ
    assert read.messages[0].startswith(f"{path} is JSON objects: ")


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ({"train": WRAPPED, "validation": WRAPPED}, "'validation', too, beside the rows in 'train'"),
        ({"a": {"questions": WRAPPED}, "b": {"questions": WRAPPED}}, "'b.questions', too, .* 'a.questions'"),
    ],
)
def test_a_file_with_a_further_list_of_questions_is_refused(tmp_path: Path, value: dict[str, Any], other: str) -> None:
    with pytest.raises(InputError, match=f"questions in {other}.*nothing was submitted"):
        Read(file(tmp_path, json.dumps(value)))
    tests = {"tests": [{"vars": {"question": "Why?"}}]}
    assert Read(file(tmp_path, json.dumps({"results": {"results": WRAPPED}, "config": tests}))).jobs == READ


def test_questions_about_the_paragraphs_of_articles_are_rows(tmp_path: Path) -> None:
    paragraphs: list[dict[str, Any]] = [
        {"qas": [{"id": "a", "question": "Why?", "answers": []}, {"id": "b", "question": "When?"}], "context": "Then."}
    ]
    article = {"title": "The desk", "paragraphs": paragraphs}
    for value in ({"version": "v2.0", "data": [article]}, [article], article):
        read = Read(file(tmp_path, json.dumps(value)))
        assert read.jobs == [("a", "Why?", ["Then."]), ("b", "When?", ["Then."])]
        assert [each["context"][0]["metadata"] for each in read.requests] == [{"title": "The desk"}] * 2
    paragraphs[0]["qas"][1]["question"] = ""
    (problem,) = Read(path := file(tmp_path, json.dumps([article]))).refused
    assert problem.startswith(f"{path}, element 1, question 2 (line 2 of the batch): 'question' is missing")


@pytest.mark.parametrize("names", [["2-2.4", "doc_7"], ["Lease of Ünal.pdf", "a/b"], ["*ACME*", "*2022 ACME*, *OURS*"]])
def test_a_file_with_ids_or_names_of_files_in_the_place_of_sources_stops(tmp_path: Path, names: list[str]) -> None:
    rows = [{"query": "Why?", "relevant_passages": names}] * 3
    with pytest.raises(InputError, match="has no sources but empty ones, or ids, in its first 3 rows, and"):
        Read(file(tmp_path, table(rows)))


@pytest.mark.parametrize("text", ["The fee is $12.50", "Write to desk.example.com", "*The fee is 5 euros.*"])
def test_a_short_source_is_no_name_of_a_file(tmp_path: Path, text: str) -> None:
    assert Read(file(tmp_path, table([{"query": "Why?", "context": [text]}]))).jobs[0][2] == [text]


@pytest.mark.parametrize("name", ["NaN", "-Infinity"])
def test_a_number_that_json_has_not_is_named_with_its_place(tmp_path: Path, name: str) -> None:
    good = json.dumps({"query": "Wé?", "context": ["Because."]}, ensure_ascii=False)
    bad = good[:-1] + f', "n": {name}}}'
    (problem,) = Read(path := file(tmp_path, f"{good}\n\n  {bad}\n{good}\n")).refused
    column = 2 + bad.index(name) + 1
    assert problem == f"{path}, line 3: {name} at column {column} is no value of JSON: write null, or leave its key out"
    read = Read(file(tmp_path, f"{bad}\n{good}\n"))
    assert (len(read.jobs), len(read.refused)) == (1, 1), "the first line, too, is refused alone"
    for before, after in (("[", "]"), ('{"data": [', "]}")):
        path = file(tmp_path, f"{before}{good},\n  {bad}{after}")
        with pytest.raises(InputError, match=f"{name} at line 2, column {column} is no value of JSON"):
            Read(path)


def test_a_number_of_any_length_is_an_id_as_it_was_written(tmp_path: Path) -> None:
    ids = ["12345678901234567890123", "1234567890123456789", "17", "18.0"]
    rows = [f'{{"id": {each}, "query": "Why?", "context": [{{"text": "x", "id": {each}}}]}}' for each in ids]
    for content in ("\n".join(rows), f"[{','.join(rows)}]"):
        requests = Read(file(tmp_path, content)).requests
        assert [each["custom_id"] for each in requests] == [*ids[:3], "18"]
        assert [each["context"][0]["chunk_id"] for each in requests] == [*ids[:3], "18"]
