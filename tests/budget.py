"""Weighs code and docs by room, and compares the figures with the limits in ``tests/budget.toml``.

``make lint`` runs it. A room is a folder at most two levels deep (``worker/ledger``), or all of ``tests``. Its figures:

- tokens: code without comments, docstrings and line breaks, so that the layout changes nothing;
- classes; constants: numbers that a module names; long: functions of more than ten branches; lone: modules with one user.

``python -m tests.budget --lower`` lowers the limits to the present figures and a slack of 1 %. Only a hand raises one, in a
commit that says why.
"""

import ast
import io
import math
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).parents[1]
LIMITS = REPOSITORY / "tests" / "budget.toml"
PACKAGES = ("schemas", "tasks", "worker")
KINDS = ("tokens", "classes", "constants", "lone", "long")
LAYOUT = frozenset("COMMENT NL NEWLINE INDENT DEDENT ENCODING ENDMARKER".split())
BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.ExceptHandler),
    *(ast.BoolOp, ast.comprehension, ast.match_case),
)
REMEDY = "Take as much away in the same room, or raise the limit in tests/budget.toml and say why in the commit."

Figures = dict[str, dict[str, int]]


def nodes_of(source: str) -> Sequence[ast.AST]:
    """The nodes of a file, its module first."""
    return list(ast.walk(ast.parse(source)))


def weigh(source: str, nodes: Sequence[ast.AST]) -> Counter[str]:
    """The figures of one file, without ``lone``."""
    silent = {
        line
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    visible = (token for token in tokens if tokenize.tok_name[token.type] not in LAYOUT)
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return Counter(
        tokens=sum(not (token.type == tokenize.STRING and token.start[0] in silent) for token in visible),
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
        constants=sum(_is_number(node) for node in ast.iter_child_nodes(nodes[0])),
        long=sum(sum(isinstance(node, BRANCHES) for node in ast.walk(function)) >= 10 for function in functions),
    )


def _is_number(statement: ast.AST) -> bool:
    """The statement gives a number a name."""
    return (
        isinstance(statement, ast.Assign | ast.AnnAssign)
        and statement.value is not None
        and any(isinstance(n, ast.Constant) and type(n.value) in {int, float} for n in ast.walk(statement.value))
    )


def _imports(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The modules that a file may import: an imported name may be one, too."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms(root: Path, *tops: str) -> Figures:
    """The figures of the rooms below some folders, which count as the only users of their modules."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    users: dict[str, set[str]] = defaultdict(set)
    room_of = {}
    for path in (path for top in tops for path in (root / top).rglob("*.py")):
        *folders, name = path.relative_to(root).with_suffix("").parts
        module = ".".join([*folders, name]).removesuffix(".__init__")
        room_of[module] = "tests" if folders[0] == "tests" else "/".join(folders[:2])
        nodes = nodes_of(source := path.read_text(encoding="utf-8"))
        counts[room_of[module]] += weigh(source, nodes)
        for imported in _imports(nodes):
            users[imported].add(module)
    for module, room in room_of.items():
        counts[room]["lone"] += len(users[module] - {module}) == 1 and not module.endswith("__main__")
    return {room: {kind: row[kind] for kind in KINDS} for room, row in sorted(counts.items())}


def words(root: Path) -> int:
    """The words of the README, the changelog and the pages of ``docs``."""
    pages = (root / "README.md", root / "CHANGELOG.md", *(root / "docs").glob("*.md"))
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def circles(*packages: str) -> set[frozenset[str]]:
    """The groups of modules of which each imports each other, if only by way of a third or for its types."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    upstream = {module: graph.find_upstream_modules(module) for module in graph.modules}
    groups = {frozenset({m} | {each for each in above if m in upstream[each]}) for m, above in upstream.items()}
    return {group for group in groups if len(group) > 1}


def measure(root: Path) -> Figures:
    """All figures of a tree."""
    figures = rooms(root, *PACKAGES) | rooms(root, "tests")
    return figures | {"docs": {"words": words(root)}, "imports": {"circles": len(circles(*PACKAGES))}}


def problems(figures: Figures, limits: Figures) -> list[str]:
    """A line for each figure above its limit, for each room without limits, and for limits without a room."""
    lines = [f"{room} has no limits: write a row for it in tests/budget.toml." for room in figures.keys() - limits]
    lines += [
        f"{room} has limits and no files: remove its row in tests/budget.toml." for room in limits.keys() - figures
    ]
    for room in sorted(figures.keys() & limits):
        for kind, count in figures[room].items():
            if (excess := count - limits[room][kind]) > 0:
                lines.append(f"{room} has {count:,} {kind}, {excess:,} more than its limit. {REMEDY}")
    return lines


def lowered(figures: Figures, limits: Figures) -> str:
    """The text of the limits, each as it is or lower: the present figure and a hundredth."""
    text = "# The limits of tests/budget.py, which says how to lower them and what to do at one.\n"
    for room, row in limits.items():
        pairs = (f"{kind} = {min(limit, math.ceil(figures[room][kind] * 1.01))}" for kind, limit in row.items())
        text += f'"{room}" = {{ {", ".join(pairs)} }}\n'
    return text


def main(arguments: list[str]) -> int:
    """Prints the problems of the repository, or lowers its limits; returns the exit code."""
    figures, limits = measure(REPOSITORY), tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    if arguments == ["--lower"]:
        LIMITS.write_text(lowered(figures, limits), encoding="utf-8")
        return 0
    lines = problems(figures, limits)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
