"""Writes the table of units, currencies and scales of numbers: python -m bench.unit_table (needs babel and pint).

Names and symbols are those of Unicode's CLDR in the languages below, as ``babel`` has them; factors are those of ``pint``. A
worker reads the table and needs neither.
"""
# ruff: noqa: RUF001, SLF001, PLR0911 - signs of other scripts; babel has no other door to its unit patterns

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pint  # type: ignore[import-not-found]
from babel import Locale  # type: ignore[import-not-found]

TABLE = Path(__file__).parents[1] / "tasks" / "text" / "units.json"
LOCALES = "en en_IN de fr es it nl pt pl sv da ru tr ar hi ja ko zh zh_Hant".split()
EXOTIC = re.compile(
    "acceleration|graphics|light|magnetic|concentr-(?!perc|permi)|consumption|torque|angle|force|solar|earth|-jp|kos|osaji|shaku|sai|koku|bu-|cho|ken|rin|sun|dessert|dram|jigger|pinch|drop|atom|dalton|slug|parsec|chain|rod|furlong|astronom|scandinav|person|night|dunam|becq|gray|siev|therm|electronv|gasoline|beaufort|rankine|generic|item|foodcal|milliinch|point|of|fun|stone|ton$"
)
CALENDAR = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
CLOCK = {"fortnight": 1_209_600, "week": 604_800, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}
SHARES = {"percent": 1.0, "permille": 0.1, "permyriad": 0.01}
CURRENCIES = "USD EUR GBP CHF JPY CNY INR RUB PLN SEK NOK DKK CZK TRY BRL AUD CAD KRW".split()
OWN = {
    "per cent": ("%", 1.0), "pct": ("%", 1.0), "pour cent": ("%", 1.0), "por ciento": ("%", 1.0), "per cento": ("%", 1.0),
    "％": ("%", 1.0), "٪": ("%", 1.0), "mcg": ("gram", 1e-6), "ug": ("gram", 1e-6), "ml": ("meter ** 3", 1e-6), "l": ("meter ** 3", 1e-3),
    "cl": ("meter ** 3", 1e-5), "dl": ("meter ** 3", 1e-4), "sqm": ("meter ** 2", 1.0), "m2": ("meter ** 2", 1.0), "m3": ("meter ** 3", 1.0),
    "km2": ("meter ** 2", 1e6), "cm2": ("meter ** 2", 1e-4), "cm3": ("meter ** 3", 1e-6), "元": ("CNY", 1.0), "円": ("JPY", 1.0),
    "kph": ("speed", 1 / 3.6), "hrs": ("second", 3600.0), "mins": ("second", 60.0), "secs": ("second", 1.0), "kilo": ("gram", 1000.0), "kilos": ("gram", 1000.0),
    "m": ("meter", 1.0), "mm": ("meter", 1e-3), "cm": ("meter", 1e-2), "km": ("meter", 1000.0), "g": ("gram", 1.0), "mg": ("gram", 1e-3),
    "kg": ("gram", 1000.0), "s": ("second", 1.0), "sec": ("second", 1.0), "KB": ("bit", 8000.0), "ms": ("second", 1e-3), "h": ("second", 3600.0), "min": ("second", 60.0), "t": ("gram", 1e6),
    "°": ("degree", 1.0), "degrees": ("degree", 1.0), "Prozentpunkte": ("points", 1.0), "Prozentpunkten": ("points", 1.0), "percentage points": ("points", 1.0),
    "percentage point": ("points", 1.0), "points de pourcentage": ("points", 1.0), "puntos porcentuales": ("points", 1.0), "punti percentuali": ("points", 1.0),
    "procentpunten": ("points", 1.0), "Tagen": ("second", 86_400.0), "Monaten": ("month", 1.0), "Jahren": ("month", 12.0), "Metern": ("meter", 1.0), "Litern": ("meter ** 3", 1e-3),
    "US dollars": ("USD", 1.0), "dollar": ("USD", 1.0), "dollars": ("USD", 1.0), "pounds sterling": ("GBP", 1.0), "francs": ("CHF", 1.0), "Franken": ("CHF", 1.0), "yen": ("JPY", 1.0),
    "rupees": ("INR", 1.0), "Rs": ("INR", 1.0), "yuan": ("CNY", 1.0), "US$": ("USD", 1.0), "pounds": ("GBP", 1.0), "pound": ("GBP", 1.0), "euros": ("EUR", 1.0), "euro": ("EUR", 1.0),
    "Viertelstunde": ("second", 900.0), "Dreiviertelstunde": ("second", 2700.0), "quart d'heure": ("second", 900.0), "quarto d'ora": ("second", 900.0), "cuarto de hora": ("second", 900.0),
    "kwartier": ("second", 900.0), "halfuur": ("second", 1800.0), "mezzora": ("second", 1800.0),
}  # fmt: skip
SCALES = {
    "million": 1e6,
    "bn": 1e9,
    "mn": 1e6,
    "mio": 1e6,
    "mrd": 1e9,
    "tsd": 1e3,
    "lakh": 1e5,
    "lakhs": 1e5,
    "crore": 1e7,
    "crores": 1e7,
    "mln": 1e6,
    "万": 1e4,
    "萬": 1e4,
    "亿": 1e8,
    "億": 1e8,
}
"""Names that CLDR lacks."""


def main() -> None:
    units = _joint((code, _key(name), meaning) for code, name, meaning in [*_listed(OWN), *_units(), *_currencies()])
    scales = _joint((code, _key(name), factor) for code, name, factor in [*_listed(SCALES), *_scales()])
    text = json.dumps({"units": units, "scales": scales}, ensure_ascii=False, separators=(",", ":"))
    TABLE.write_text(text.replace("]],", "]],\n").replace("},", "},\n") + "\n", encoding="utf-8")
    print(
        f"wrote {TABLE.name}: {sum(map(len, units.values()))} names of units, {sum(map(len, scales.values()))} of scales"
    )


def _listed(names: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    return (("", name, meaning) for name, meaning in names.items())


def _joint(entries: Iterable[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    """The meanings of names by language: under no language those of all of them.

    A short name of one language alone, or of several meanings, is a word or another symbol elsewhere: cal is an inch in Polish.
    """
    by_name: dict[str, dict[str, Any]] = {}
    for code, name, meaning in entries:
        by_name.setdefault(name, {}).setdefault(code, meaning)
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, meanings in sorted(by_name.items()):
        first = meanings.get("", next(iter(meanings.values())))
        of_all = "" in meanings or not _is_short(name) or (len(meanings) > 1 and len(set(meanings.values())) == 1)
        if of_all:
            tables[""][name] = first
        for code, meaning in meanings.items():
            if code and "" not in meanings and (meaning != first or not of_all):
                tables.setdefault(code, {})[name] = meaning
    return tables


def _is_short(name: str) -> bool:
    return len(name) <= 3 and name.isascii() and name.isalpha()


def _key(name: str) -> str:
    """The name as it is looked up: a symbol of up to three letters in its own case, all else in lower case."""
    name = " ".join(name.replace("\u200f", "").replace("\u00ad", "").split()).rstrip(".")
    return name if len(name) <= 3 else name.casefold()


def _units() -> Iterator[tuple[str, str, tuple[str, float]]]:
    registry = pint.UnitRegistry()
    for length in ("long", "short"):
        for code in LOCALES:
            for unit, forms in Locale.parse(code)._data["unit_patterns"].items():
                if EXOTIC.search(unit):
                    continue
                meaning = _meaning(unit, registry)
                for form, pattern in forms.get(length, {}).items():
                    name = pattern.replace("{0}", "").strip() if isinstance(pattern, str) else ""
                    single = len(name) == 1 and name.isascii() and unit.startswith("duration") and name not in "hs"
                    if name and form != "per" and not name[0].isdigit() and not single and "{" not in name:
                        yield code[:2], name, meaning


def _meaning(unit: str, registry: pint.UnitRegistry) -> tuple[str, float]:
    """The dimension of a unit of CLDR in base units, and its factor; one that ``pint`` lacks stands for itself."""
    kind, _, name = unit.partition("-")
    if kind == "duration" and name in CALENDAR:
        return "month", float(CALENDAR[name])
    if kind == "duration" and name in CLOCK:
        return "second", float(CLOCK[name])
    if name in SHARES:
        return "%", SHARES[name]
    if kind == "temperature":
        return name, 1.0
    words = re.sub(r"square-(\w+)", r"\1**2", re.sub(r"cubic-(\w+)", r"\1**3", name))
    words = words.replace("-per-", "/").replace("100-kilometer", "(100*kilometer)")
    try:
        quantity = registry.Quantity(
            1, words.replace("-", "_") if "/" not in words else words.replace("-", "*")
        ).to_base_units()
    except pint.errors.PintError:
        return name, 1.0
    dimension = str(quantity.units)
    if dimension in {"second", "radian", "dimensionless", "bit"} and kind not in {"duration", "angle", "digital"}:
        return name, 1.0
    if dimension == "kilogram":
        return "gram", float(f"{quantity.magnitude * 1000:.12g}")
    return ("speed" if dimension == "meter / second" else dimension), float(f"{quantity.magnitude:.12g}")


def _currencies() -> Iterator[tuple[str, str, tuple[str, float]]]:
    for code in CURRENCIES:
        yield "", code, (code, 1.0)
    for locale in LOCALES:
        data = Locale.parse(locale)
        for code in CURRENCIES:
            symbol = data.currency_symbols.get(code, code)
            if not symbol.isalpha() or len(symbol) > 1:
                yield locale[:2], symbol.replace("\u200f", ""), (code, 1.0)
            for name in [data.currencies.get(code, code), *data._data["currency_names_plural"].get(code, {}).values()]:
                yield locale[:2], name, (code, 1.0)
                if code in {"EUR", "INR", "JPY", "CHF", "PLN"}:
                    yield locale[:2], name.split()[-1 if locale[:2] not in {"fr", "es", "it", "pt"} else 0], (code, 1.0)


def _scales() -> Iterator[tuple[str, str, float]]:
    for code in LOCALES:
        for forms in Locale.parse(code)._data["compact_decimal_formats"].values():
            for patterns in forms.values():
                for magnitude, pattern in patterns.items():
                    text = pattern.pattern.split(";")[0]
                    name = text.replace("0", "").replace("'", "").strip()
                    if name and float(magnitude) >= 100:
                        yield code[:2], name, float(magnitude) / 10 ** (text.count("0") - 1)


if __name__ == "__main__":
    main()
