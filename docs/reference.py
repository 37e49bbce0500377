"""Writes docs/configure.md, and the table in docs/quality.md, from the code, so that they can't fall behind: python docs/reference.py."""

import re
import typing
from enum import Enum
from pathlib import Path
from typing import Any

from schemas.job import GenerationConfig
from schemas.quality import QualityConstants
from worker.settings import SECRETS, Settings

CONFIGURE = Path(__file__).with_name("configure.md")
QUALITY = Path(__file__).with_name("quality.md")
CONSTANTS = "| constant | value | what it is |\n"

HEAD = (
    """# Configure

For whoever looks up a setting of a process or an option of a job. Written by `python -m docs.reference`.

## Settings of a process

Environment variables, or keys of a TOML file named by `NIGHTDESK_CONFIG` (without the prefix, in lower case). The
environment goes before the file. Defaults stand in brackets. A wrong value stops the process, with the variable's name and the fault;
a `NIGHTDESK_` variable that is no setting is warned of, with the nearest name.

`NAME_FILE` names a file that holds the secret `NAME`, as Docker and Kubernetes mount them: """
    f"""for {", ".join(f"`{name}`" for name in SECRETS)},
read at the start, and for [keys of providers](providers.md#keys-in-files).
"""
)
SETTINGS_TABLE = """
### {group}

"""
GROUPS = {
    "Servers and home": "home database_url redis_url key_prefix tenant_prefixes tenant log_level log_format traces traces_ratio",
    "Who answers": "provider model providers fallbacks extractive_latency_s prompts templates_dir",
    "The check": "strictness checkers judge default_judge_share judge_max_tokens judge_timeout_s judge_lane check_timeout_s calibration local_model local_model_threads"
    " local_model_processes local_model_wait_s",
    "Callbacks": "callback_secret callback_private",
    "Limits of the providers": "requests_per_minute input_tokens_per_minute output_tokens_per_minute max_concurrency"
    " tenant_shares lane_retry_s unreachable_s hold_unknown",
    "Provider batches": "provider_batch_gather_s provider_batch_look_s provider_batch_create_s provider_batch_expect_s provider_batch_margin_s",
    "A worker process": "slots urgent_processes check_slots check_processes threads max_bytes_in_flight lease_s max_rescues tick_s"
    " drain_s answers_kept_s alive_file",
    "The HTTP service": "http_max_body_bytes http_max_lines http_max_stored_bytes http_max_connections access_log",
    "Submissions and results": "max_queued_jobs tenant_limits share_answers share_within_s share_wait_s"
    " visibility_timeout_s results_kept_s prune_content_after_days prune_rows_after_days prune_batches_after_days",
}
"""The settings by topic, in the order of the page; every setting is in one group."""

MIDDLE = """
Set both URLs or neither: with neither, PostgreSQL and Valkey are started under `NIGHTDESK_HOME`, on loopback, with
passwords of their own, and stay up until `nightdesk down`. As root they run as an unprivileged account.

## Options of a job

Fields of `config` in a job, or of `defaults` in a batch, with their defaults. An unknown field is an error.

"""

TAIL = """
Of a source's metadata the model is shown only title, page, article, section, section_hierarchy, source_path,
product_name, document_type and date.
"""


def as_markdown(default: Any) -> str:
    """A default as the reader would write it."""
    match default:
        case None | "" | ():
            return "none"
        case dict() if not default:
            return "none"
        case Enum():
            return f"`{default.value}`"
        case tuple():
            return ", ".join(as_markdown(item) for item in default)
        case bool():
            return f"`{str(default).lower()}`"
        case _:
            return f"`{default}`"


def values(annotation: Any) -> list[str]:
    """The values of the enums in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [member.value for member in annotation]
    return [value for part in typing.get_args(annotation) for value in values(part)]


def _setting(name: str) -> str:
    field = Settings.model_fields[name]
    default = as_markdown(field.get_default(call_default_factory=True))
    return line(f"NIGHTDESK_{name.upper()}", default, linked(field.description or ""))


def line(name: str, default: str, meaning: str) -> str:
    """The line of a setting or an option, with its default if it has one."""
    return f"- `{name}`{'' if default == 'none' else f' ({default})'}: {meaning}\n"


def linked(description: str) -> str:
    """A description whose paths of pages are links."""
    pages = re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", description)
    return re.sub(r"; see (\[[^\]]+\]\([^)]+\))(?=$|\. )", r" (\1)", pages)


def _option(name: str) -> str:
    field = GenerationConfig.model_fields[name]
    meaning = field.description or ""
    allowed = values(field.annotation)
    if any(value not in meaning for value in allowed):
        meaning = f"{meaning}. Values: {', '.join(allowed)}"
    return line(name, as_markdown(field.default), meaning)


def configure() -> str:
    """The whole page."""
    names = {group: members.split() for group, members in GROUPS.items()}
    if sorted(name for members in names.values() for name in members) != sorted(Settings.model_fields):
        raise ValueError("GROUPS must have every setting once")
    settings = [
        part
        for group, members in names.items()
        for part in (SETTINGS_TABLE.format(group=group), *(_setting(name) for name in members))
    ]
    return "".join([HEAD, *settings, MIDDLE, *map(_option, GenerationConfig.model_fields), TAIL])


def quality() -> str:
    """The page on quality with its table of constants as the code has them."""
    text = QUALITY.read_text()
    start = text.index(CONSTANTS)
    rows = [
        f"| `{name}` | {as_markdown(field.default)} | {field.description} |\n"
        for name, field in QualityConstants.model_fields.items()
    ]
    return "".join([text[:start], CONSTANTS, "| --- | --- | --- |\n", *rows, text[text.index("\n\n", start) + 1 :]])


if __name__ == "__main__":
    CONFIGURE.write_text(configure())
    QUALITY.write_text(quality())
