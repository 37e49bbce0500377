"""A thousand answers to check, of which some are wrong in known ways, one is very long, and one is hostile."""

import json
import random
from pathlib import Path

WORST, WRONG, ALL = 10, 40, 1_000
"""Answers with every statement wrong, answers with a wrong statement, and all."""

LONG_CLAIMS = 1_000
HOSTILE = "<script>window.struck = 1</script><img src=x onerror='window.struck=1'> [a](javascript:window.struck=1) \u202egnorw"

_PRODUCTS = ("household", "travel", "liability", "motor", "pet", "legal", "dental", "cyber", "bicycle", "glass")


def _facts(draw: random.Random) -> dict[str, int]:
    names = ("deductible", "notice", "waiting", "limit", "report")
    return {
        name: draw.randrange(low, high)
        for name, low, high in zip(names, (50, 2, 3, 5, 2), (500, 9, 24, 90, 21), strict=True)
    }


def _sentences(product: str, facts: dict[str, int]) -> list[str]:
    return [
        f"The deductible of the {product} policy is {facts['deductible']} euros for each claim.",
        f"The notice period of the {product} policy is {facts['notice']} months to the end of a year.",
        f"A waiting period of {facts['waiting']} months applies to the {product} policy.",
        f"The {product} policy pays up to {facts['limit']} thousand euros for each event.",
        f"Damage must be reported within {facts['report']} days after the {product} event.",
    ]


def _source(number: int, product: str, sentences: list[str]) -> dict[str, object]:
    return {
        "content": f"General conditions, {product} insurance. " + " ".join(sentences) + " Everything else follows the law.",
        "document_id": f"conditions-{product}", "chunk_id": f"c{number}", "title": f"Conditions of {product} insurance",
        "page": 3 + number % 40, "article": str(1 + number % 12), "section": "Scope of cover",
    }  # fmt: skip


def lines(seed: int = 7) -> list[dict[str, object]]:
    """The lines of a check, in the same order for the same seed."""
    draw = random.Random(seed)
    kinds = ["worst"] * WORST + ["wrong"] * WRONG + ["right"] * (ALL - WORST - WRONG)
    draw.shuffle(kinds)
    rows = []
    for number, kind in enumerate(kinds):
        product = draw.choice(_PRODUCTS)
        facts = _facts(draw)
        sentences = _sentences(product, facts)
        other = _sentences(product, {name: value + 7 for name, value in facts.items()})
        chosen = draw.sample(range(5), 3)
        wrong = set(chosen) if kind == "worst" else {chosen[0]} if kind == "wrong" else set()
        answer = " ".join(f"{(other if index in wrong else sentences)[index][:-1]} [1]." for index in chosen)
        rows.append(
            {
                "custom_id": f"{kind}-{number:04}",
                "query": f"What should a customer know about {product} insurance?",
                "context": [
                    _source(number, product, sentences),
                    _source(number + 1, "glass", ["Glass is covered anywhere."]),
                ],
                "response": answer,
            }
        )
    return rows


def special_lines() -> list[dict[str, object]]:
    """A very long answer, and one that means harm."""
    statements = [
        f"Room {number} of the archive holds {number % 90 + 10} boxes of files." for number in range(LONG_CLAIMS)
    ]
    source = {"content": " ".join(statements), "title": "Inventory of the archive", "page": 1}
    wrong = [text.replace("holds", "never holds") if place % 50 == 3 else text for place, text in enumerate(statements)]
    hostile = {
        "content": f"The desk opens at nine. {HOSTILE}",
        "title": HOSTILE,
        "document_id": HOSTILE,
        "page": HOSTILE,
    }
    return [
        {"custom_id": "long", "query": "What is in the archive?", "context": [source], "response": " ".join(wrong)},
        {
            "custom_id": "hostile",
            "query": HOSTILE,
            "context": [hostile],
            "response": f"The desk opens at ten [1]. {HOSTILE}",
        },
    ]


def write(file: Path, rows: list[dict[str, object]]) -> None:
    """Writes a file of lines."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
