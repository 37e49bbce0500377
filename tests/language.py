"""Measures the language of the code: names that are participles or pronouns, and docstrings that open with a question word.

``make lint`` runs it. Each path under ``[tool.language]`` in pyproject.toml has two limits: unclear names per 1,000 bound
names, and question openers per 100 docstrings. A path covers all Python files below it but those of a longer path in the
table. ``python -m tests.language PATH`` lists every finding below a path; ``--lower`` lowers the limits to the present
figures, and nothing raises them.
"""

import ast
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

UNCLEAR = {
    "a reply or a message: name its content (text, verdict, problem, warnings)": "told said heard spoken meant thought",
    "a request or a parameter: name its content (requested_format, supplied_answer)": "asked wanted given sought",
    "a search result: name its type (match, row, position, matches)": "found seen shown known",
    "a remainder or a boundary: name the quantity (remaining, start, end)": "left cut bent",
    "a state: name the thing in that state (lease, items, removed_claims)": "kept held taken gone begun",
    "a product: name the product (record, path, request)": "made sent written met put read_",
    "one element: name its type (row, job, pattern)": "one ones such",
    "the opposite side: name both sides (tokens, other_tokens)": "mine theirs ours yours hers others",
    "no thing at all: name the thing": "whose whoever whatever nobody somebody anybody anew besides",
}
"""Identifiers by the reason that they say too little."""

BANNED = frozenset(word for words in UNCLEAR.values() for word in words.split())
QUESTION = re.compile(r"(?:What|Whatever|Who|Whose|Whom|Whoever|Whether|Where|How)\b")
"""A docstring opens with a verb or a noun phrase; a question word withholds the noun."""

LIMIT = re.compile(r'(?m)^"(?P<path>[^"]+)" = \{ names = (?P<names>[\d.]+), openers = (?P<openers>[\d.]+) \}$')
"""One line of ``[tool.language]``."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Language:
    """The counts of some files, and each finding as (file, line, text)."""

    names: int = 0
    docstrings: int = 0
    unclear: list[tuple[Path, int, str]] = field(default_factory=list)
    questions: list[tuple[Path, int, str]] = field(default_factory=list)

    @property
    def unclear_per_1000(self) -> float:
        """Unclear names per 1,000 bound names."""
        return 1000 * len(self.unclear) / max(1, self.names)

    @property
    def questions_per_100(self) -> float:
        """Question openers per 100 docstrings."""
        return 100 * len(self.questions) / max(1, self.docstrings)

    def add(self, file: Path, source: str) -> None:
        """Adds the names and docstrings of one file."""
        for node in ast.walk(ast.parse(source)):
            for line, name in bound_names(node):
                self.names += 1
                if name.strip("_").lower() in BANNED or name in BANNED:
                    self.unclear.append((file, line, name))
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                self.docstrings += 1
                if QUESTION.match(text):
                    self.questions.append((file, node.body[0].lineno, text.split("\n", 1)[0]))


def bound_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a node binds (functions, classes, parameters, variables, attributes), each with its line."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.lineno, node.name
        case ast.arg():
            yield node.lineno, node.arg
        case ast.Name(ctx=ast.Store()):
            yield node.lineno, node.id
        case ast.Attribute(ctx=ast.Store()):
            yield node.lineno, node.attr
        case _:
            pass


def files_below(path: Path) -> list[Path]:
    """The Python files below a path, without migrations and hidden directories."""
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [
        file for file in files if "migrations" not in file.parts and not any(p.startswith(".") for p in file.parts[1:])
    ]


def measure(files: list[Path]) -> Language:
    """The language of some files."""
    language = Language()
    for file in files:
        language.add(file, file.read_text(encoding="utf-8"))
    return language


def measured_paths(root: Path, paths: list[str]) -> dict[str, Language]:
    """The language below each path, without the files of a longer path in the list."""
    files: dict[str, list[Path]] = {path: [] for path in paths}
    by_length = sorted(paths, key=len, reverse=True)
    for file in {file for path in paths for file in files_below(root / path)}:
        owner = next(path for path in by_length if file.is_relative_to(root / path))
        files[owner].append(file)
    return {path: measure(sorted(files[path])) for path in paths}


def problems(root: Path, limits: dict[str, dict[str, float]]) -> list[str]:
    """The limits that the tree exceeds, and the paths that do not exist."""
    missing = [path for path in limits if not (root / path).exists()]
    lines = [f"{path}: no such path; rename or remove its limits in pyproject.toml" for path in missing]
    for path, language in measured_paths(root, [path for path in limits if path not in missing]).items():
        if language.unclear_per_1000 > limits[path]["names"]:
            commonest = Counter(name for _, _, name in language.unclear).most_common(8)
            listing = ", ".join(f"{name} ({count})" for name, count in commonest)
            lines.append(
                f"{path}: {language.unclear_per_1000:.1f} unclear names per 1,000, limit {limits[path]['names']}: {listing}"
            )
        if language.questions_per_100 > limits[path]["openers"]:
            lines.append(
                f"{path}: {language.questions_per_100:.1f} % of the docstrings open with a question word,"
                f" limit {limits[path]['openers']}"
            )
    return lines


def limits_of(root: Path) -> dict[str, dict[str, float]]:
    """The limits in pyproject.toml."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    limits: dict[str, dict[str, float]] = settings["tool"]["language"]
    return limits


def lowered(text: str, figures: dict[str, Language]) -> str:
    """The text of pyproject.toml with each limit lowered to the present figure, rounded up."""

    def lower(line: re.Match[str]) -> str:
        language = figures[line["path"]]
        names = min(float(line["names"]), math.ceil(language.unclear_per_1000))
        openers = min(float(line["openers"]), math.ceil(language.questions_per_100))
        return f'"{line["path"]}" = {{ names = {names:g}, openers = {openers:g} }}'

    return LIMIT.sub(lower, text)


def report(path: Path) -> None:
    """Writes every finding below a path with its reason, then the figures."""
    language = measure(files_below(path))
    reasons = {word: reason for reason, words in UNCLEAR.items() for word in words.split()}
    for file, line, name in language.unclear:
        reason = reasons.get(name) or reasons[name.strip("_").lower()]
        write(f"{file}:{line}: '{name}' is {reason}")
    for file, line, text in language.questions:
        write(f"{file}:{line}: opens with a question word: {text}")
    write(
        f"{path}: {language.unclear_per_1000:.1f} unclear names per 1,000, {language.questions_per_100:.1f} % question openers"
    )


def write(line: str) -> None:
    """Writes one line to the standard output."""
    sys.stdout.write(f"{line}\n")


def check(root: Path) -> int:
    """Compares the tree with its limits and writes the problems; returns the exit code."""
    lines = problems(root, limits_of(root))
    for line in lines:
        write(line)
    if lines:
        write("Name each thing by a noun and each action by a verb; python -m tests.language PATH lists the findings.")
    return 1 if lines else 0


def main(arguments: list[str]) -> int:
    """Checks the tree; with paths in the arguments lists their findings, with ``--lower`` lowers the limits."""
    if arguments == ["--lower"]:
        settings = REPOSITORY / "pyproject.toml"
        figures = measured_paths(REPOSITORY, list(limits_of(REPOSITORY)))
        settings.write_text(lowered(settings.read_text(encoding="utf-8"), figures), encoding="utf-8")
        return 0
    for path in arguments:
        report(Path(path))
    return 0 if arguments else check(REPOSITORY)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
