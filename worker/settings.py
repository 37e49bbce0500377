"""The settings of a process: environment variables ``NIGHTDESK_...``, or a TOML file named by ``NIGHTDESK_CONFIG``."""

import os
import re
import tomllib
from base64 import b64decode
from collections.abc import Iterable, Sequence
from datetime import timedelta
from difflib import get_close_matches
from importlib import import_module
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from schemas.base import check_tenant
from schemas.generation import OWN_CHECKER, CheckerName, Strictness
from tasks.defaults import CHECK_TIMEOUT_S, MAX_BYTES_IN_FLIGHT, MAX_RESCUES
from tasks.errors import ConfigurationError, InputError
from worker.provider_settings import LimitSettings, ProviderSettings
from worker.variables import secrets_in_files

if TYPE_CHECKING:
    from tasks.calls.response_cache import SharePolicy

Seconds = Annotated[float, Field(gt=0, le=1e9)]
"""At most thirty years, which a timer, a ``timedelta`` and an interval of PostgreSQL hold."""
Wait = Annotated[float, Field(ge=0, le=1e9)]
Days = Annotated[float, Field(gt=0, le=1e4)]


class CheckerSettings(BaseModel):
    """One checker of the installation's own; its path alone will do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plugin: str = Field(
        description="class or factory, as 'package.module:name' or the name of an entry point of the group nightdesk.checkers"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="its arguments")

    @model_validator(mode="before")
    @classmethod
    def _accept_path(cls, settings: Any) -> Any:
        return {"plugin": settings} if isinstance(settings, str) else settings


class TenantLimits(BaseModel):
    """Limits of one tenant, in place of those that hold for all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_queued_jobs: Annotated[int, Field(ge=1)] | None = None


SUBMIT_QUEUE = "submit"
"""The queue of submissions over Redis; that of a tenant with a prefix has it before this name."""

CANARY = "nightdesk:canary"
"""The key of the run id of the Redis server that has our results; missing or different, results may be missing."""

TENANT_PREFIX = re.compile(r"(?!nightdesk:)[\w.-]{1,64}:", re.ASCII)
"""The prefix of a tenant's keys; none begins with another, as its only colon is its last character."""


class Settings(BaseSettings):
    """Every setting with its default. The environment goes before the file."""

    model_config = SettingsConfigDict(
        env_prefix="NIGHTDESK_", extra="forbid", frozen=True, env_ignore_empty=True, allow_inf_nan=False
    )

    home: Path = Field(default=Path(".nightdesk"), description="where the embedded servers keep their data")
    database_url: SecretStr | None = Field(default=None, description="PostgreSQL 15 or newer; unset: embedded")
    redis_url: SecretStr | None = Field(default=None, description="Redis 7 or Valkey; unset: embedded")
    key_prefix: str = Field(default="", description="put before every Redis key, where a server is shared")
    tenant_prefixes: dict[str, str] = Field(
        default_factory=dict,
        description='prefixes of tenants whose producers over Redis are kept apart, as JSON: `{"acme": "acme:"}`; see '
        "docs/security.md",
    )

    tenant: str = Field(default="default", description="tenant of jobs that come without one")
    provider: str | None = Field(
        default=None,
        description="provider of jobs that name none; unset: openai or anthropic, whose key is set (openai if both are), "
        "else extractive",
    )
    model: str | None = Field(
        default=None, description="model of jobs that name none, at that provider; unset: the provider's default"
    )
    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict,
        description="further providers by name, as JSON: a preset, a kind or a plugin, each with its options; see "
        "docs/providers.md, docs/extend.md and docs/limits.md",
    )
    fallbacks: tuple[str, ...] = Field(
        default=(),
        description="providers asked next, in order, for jobs that name no fallbacks of their own, as JSON: "
        '`["anthropic", "local:llama3.2:3b"]` (provider, or provider:model)',
    )
    strictness: Strictness = Field(
        default=Strictness.BALANCED,
        description="strictness of jobs that name none: strict, balanced or lenient; see docs/checks.md",
    )
    checkers: dict[str, CheckerSettings] = Field(
        default_factory=dict,
        description='checkers of your own by name, as JSON: `{"quoted": "nightdesk_example:Quoted"}`; jobs name them in '
        "`checkers`. Set it for all workers; see docs/extend.md",
    )
    judge: str | None = Field(
        default=None,
        description="judge of jobs with `judge` among their `checkers`: provider, or provider:model; best another model "
        "than the one that answers. Unset: such checks end as partial",
    )
    default_judge_share: float = Field(
        default=0.15,
        ge=0,
        le=1,
        description="most that a judge may add to the cost of an answer whose job asks for none, as a share of it. 0: no "
        "judge but for jobs that ask for one; see docs/judge.md",
    )
    judge_max_tokens: int = Field(
        default=8_192, ge=256, le=1_000_000, description="most tokens of a judge's reply, its thinking included"
    )
    judge_timeout_s: Seconds = Field(default=60.0, description="seconds that a judge's call may take")
    judge_lane: Literal["job", "standard"] = Field(
        default="job",
        description="lane of a judge that a job asks for: `job` lets it ride in a provider batch where the job's lane "
        "allows, `standard` calls it at once",
    )
    extractive_latency_s: Wait = Field(
        default=0.0, description="seconds the offline provider waits before it answers, to rehearse a slow provider"
    )

    templates_dir: Path | None = Field(
        default=None,
        description="folder with prompt templates of your own, NAME@VERSION.j2, read beside the shipped ones; set it for "
        "all processes; see docs/extend.md",
    )
    prompts: dict[str, dict[str, PositiveFloat]] = Field(
        default_factory=dict,
        description="versions of a prompt tried side by side, with their weights, for jobs that name no prompt_version, "
        'as JSON: `{"grounded": {"1": 0.2, "2": 0.8}}`',
    )
    requests_per_minute: PositiveFloat | None = Field(
        default=None, description="calls a minute of each provider and model, over all workers; unset: no limit"
    )
    input_tokens_per_minute: PositiveFloat | None = Field(
        default=None, description="the same for tokens sent, cached ones included"
    )
    output_tokens_per_minute: PositiveFloat | None = Field(
        default=None, description="the same for tokens of the answers"
    )
    max_concurrency: int | None = Field(
        default=None,
        ge=1,
        description="calls at once of each provider and model, over all workers; unset: the slots alone",
    )
    tenant_shares: dict[str, PositiveFloat] = Field(
        default_factory=dict,
        description="weights of tenants whose jobs wait together, as JSON; 1 for those not named: equal turns",
    )
    lane_retry_s: Wait = Field(
        default=3_600.0,
        description="seconds after which a paused lane is tried with one call; 0: only an operator resumes it",
    )
    provider_batch_gather_s: Seconds = Field(
        default=15.0,
        description="seconds without a further call after which those that wait for a provider batch are sent",
    )
    provider_batch_look_s: Seconds = Field(
        default=30.0,
        description="seconds from the creation of a provider batch until its provider is asked for it; then the pause "
        "grows to ten times as much",
    )
    provider_batch_create_s: Seconds = Field(
        default=600.0,
        description="seconds that the creation of a provider batch may take; after twice that time it is not expected any "
        "more",
    )
    provider_batch_expect_s: Seconds = Field(
        default=86_400.0,
        description="seconds that a provider batch is expected to take while none of its model was observed in the last "
        "seven days",
    )
    provider_batch_margin_s: Seconds = Field(
        default=1_200.0,
        description="seconds before their deadline, beside the time of the calls themselves, at which jobs of the lane "
        "'auto' leave a provider batch",
    )
    unreachable_s: Seconds = Field(
        default=3_600.0,
        description="seconds without any connection to a provider after which its jobs are held, and no longer tried",
    )
    slots: int = Field(
        default=1_000,
        ge=1,
        le=20_000,
        description="calls in flight per process, and a fiftieth more of urgent jobs; the workers that `up` and `run` start share them",
    )
    urgent_processes: int = Field(
        default=0,
        ge=0,
        le=64,
        description="workers of urgent jobs alone that `up` starts beside the others, of some 100 MB and a tenth of the "
        "slots each; see docs/operate.md",
    )
    check_slots: int = Field(
        default=200, ge=1, le=20_000, description="jobs in check per process; a job waits for its judge in one of them"
    )
    check_processes: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="processes in which a worker computes its checks; unset: one for each core, and two at least",
    )
    threads: int = Field(default=24, ge=2, le=200, description="Celery threads, each for one message")
    max_queued_jobs: int | None = Field(
        default=None,
        ge=1,
        description="most jobs that are not final a tenant may have; a submission beyond it is refused",
    )
    tenant_limits: dict[str, TenantLimits] = Field(
        default_factory=dict,
        description='the same by tenant, as JSON; goes before it: `{"acme": {"max_queued_jobs": 5000}}`; null: no cap',
    )
    share_answers: tuple[str, ...] = Field(
        default=(),
        description='tenants whose identical requests share one paid answer, as JSON: `["acme"]`, or `["*"]` for each '
        "within itself; see docs/share-answers.md. Unset: none",
    )
    share_within_s: Seconds = Field(default=86_400.0, description="age limit of a shared answer, counted from its call")
    share_wait_s: Wait = Field(
        default=300.0, description="longest wait of a job for an identical call that is under way; 0: not at all"
    )
    max_bytes_in_flight: int = Field(
        default=MAX_BYTES_IN_FLIGHT,
        ge=1_000_000,
        description="bytes of requests that a process holds at once; where jobs are big, slots stay free rather than "
        "memory run out. A process takes some three times as much beside its 150 MB",
    )
    check_timeout_s: Seconds = Field(
        default=CHECK_TIMEOUT_S,
        description="seconds that a check may compute at its second try, after one of half a second of CPU; then its process is "
        "ended, the claims it did not get to stay `unchecked` and the job ends as partial",
    )
    max_rescues: int = Field(
        default=MAX_RESCUES,
        ge=1,
        le=1_000,
        description="rescues of a job in one step; then the job fails as `worker_lost`, or ends with its answer unchecked "
        "if it has one",
    )
    lease_s: Seconds = Field(default=60.0, description="how long a lease lasts; renewed at a quarter of it")
    tick_s: Seconds = Field(
        default=1.0, description="pace of the dispatch duties; idle workers that do not lead look every third tick"
    )
    visibility_timeout_s: Seconds = Field(
        default=300.0,
        ge=1,
        description="seconds after which another worker takes a submission over Redis whose worker died before its commit",
    )
    alive_file: Path | None = Field(
        default=None,
        description="file that a worker touches every ten seconds from the time it takes jobs: a health check looks at its "
        "time; unset: none",
    )
    drain_s: Seconds = Field(default=70.0, description="how long running calls may end after SIGTERM")
    results_kept_s: Seconds = Field(default=86_400.0, description="how long the result backend keeps a result")
    answers_kept_s: Wait = Field(
        default=120.0,
        description="seconds that a worker keeps stored answers on disk, too, for a PostgreSQL that lost its last commits "
        "in a fail-over: longer than a standby may lag behind; 0: none, for a synchronous standby",
    )
    prune_content_after_days: Days | None = Field(
        default=None,
        description="days after its end at which the content of a job is erased, by the workers themselves; unset: only by "
        "`nightdesk erase` and `prune`",
    )
    prune_rows_after_days: Days | None = Field(
        default=None, description="days after its end at which a job is deleted with all its rows; unset: never"
    )
    prune_batches_after_days: Days | None = Field(
        default=None,
        description="days after its submission at which a batch without jobs is deleted, and so are sums of keys, budgets "
        "and provider batches; at least NIGHTDESK_PRUNE_ROWS_AFTER_DAYS; unset: never",
    )
    hold_unknown: bool = Field(
        default=False, description="hold a job whose call may have been billed without an answer, instead of repeating"
    )
    calibration: Path | None = Field(
        default=None,
        description="file of 'nightdesk calibrate': probabilities and threshold of the lexical check, and what a local model and judges are worth",
    )
    local_model: str | None = Field(
        default=None,
        description="model of jobs with `local` among their `checkers`: a directory with model.onnx and tokenizer.json "
        "(extra `onnx`), or 'package.module:factory'; see docs/local-model.md. Set it for all workers. Unset: "
        "such checks end as partial",
    )
    local_model_threads: int = Field(
        default=1, ge=1, le=256, description="threads that an ONNX model computes with, per process"
    )
    local_model_processes: int = Field(
        default=1,
        ge=1,
        le=256,
        description="workers of the queue `local` that `up`, `run` and `check` start where there is a local model; each "
        "loads it",
    )
    local_model_wait_s: Wait = Field(
        default=120.0,
        description="seconds that a job waits for a worker of the queue `local` while there is none; then it is checked without "
        "the model and ends as partial; at once where NIGHTDESK_LOCAL_MODEL is unset",
    )
    http_max_body_bytes: int = Field(
        default=1_000_000_000, ge=1_000, description="most bytes of a batch that is submitted over HTTP, unpacked"
    )
    http_max_lines: int = Field(
        default=1_000_000, ge=1, description="most lines of a batch that is submitted over HTTP"
    )
    http_max_stored_bytes: int = Field(
        default=1_000_000_000, ge=1_000, description="most bytes of a tenant's uploaded files that wait for their batch"
    )
    http_max_connections: int = Field(
        default=2_000,
        ge=1,
        description="requests that a `nightdesk serve` has in progress at once, shared among keys, and idle connections",
    )
    access_log: bool = Field(
        default=False,
        description="`nightdesk serve` logs each answered request of a caller, a refused one too: key, tenant, address, route, ids, status",
    )
    callback_secret: SecretStr | None = Field(
        default=None,
        description="signs the callbacks of batches: 'whsec_' and base64 of 24 to 64 bytes, the same for workers and receivers; "
        "see docs/callbacks.md. Unset: callbacks wait",
    )
    callback_private: bool = Field(
        default=False, description="callbacks may go to private networks and this machine, too"
    )
    log_level: str = Field(default="INFO", description="DEBUG, INFO, WARNING or ERROR")
    log_format: Literal["auto", "text", "json"] = Field(
        default="auto",
        description="how workers and `nightdesk serve` log: `text`, `json`, or `auto`: text on a terminal and for `up` and `run`, JSON "
        "elsewhere",
    )

    traces: bool = Field(
        default=False,
        description="spans of jobs, calls and checks go to OpenTelemetry (docs/traces.md); needs the extra `otel`",
    )
    traces_ratio: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="share of the jobs with traces, of those whose producer gives no trace context",
    )

    @field_validator("database_url", "redis_url")
    @classmethod
    def _is_readable(cls, url: SecretStr | None) -> SecretStr | None:
        """Refuses what messages could not be kept free of a password from, and never shows it."""
        if url is not None and not _is_url(url.get_secret_value()):
            raise ValueError("must be a URL; in its password write / ? # @ [ as %2F %3F %23 %40 %5B")
        return url

    @field_validator("home")
    @classmethod
    def _is_directory(cls, home: Path) -> Path:
        if home.exists() and not home.is_dir():
            raise ValueError(f"{home} is a file: set it to a directory of yours")
        return home

    @field_validator("tenant")
    @classmethod
    def _tenant_named(cls, tenant: str) -> str:
        return check_tenant(tenant)

    @field_validator("tenant_prefixes")
    @classmethod
    def _apart(cls, prefixes: dict[str, str]) -> dict[str, str]:
        for tenant, prefix in prefixes.items():
            check_tenant(tenant)
            if not TENANT_PREFIX.fullmatch(prefix):
                raise ValueError(
                    f"the prefix {prefix!r} of {tenant} must be up to 64 letters, digits, '.', '_' or '-' and a colon, and not nightdesk:"
                )
        if len(set(prefixes.values())) < len(prefixes):
            raise ValueError("two tenants have the same prefix, and would read each other's results: give each its own")
        return prefixes

    @field_validator("callback_secret")
    @classmethod
    def _signs(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None:
            try:
                key = b64decode(secret.get_secret_value().removeprefix("whsec_"), validate=True)
            except ValueError:
                key = b""
            if not 24 <= len(key) <= 64:  # noqa: PLR2004 - as Standard Webhooks has it
                raise ValueError(
                    "must be whsec_ and the base64 of 24 to 64 bytes; make one: echo whsec_$(openssl rand -base64 32)"
                )
        return secret

    @field_validator("checkers")
    @classmethod
    def _of_new_names(cls, checkers: dict[str, CheckerSettings]) -> dict[str, CheckerSettings]:
        for name in checkers:
            if not re.match(OWN_CHECKER, name) or name in set(CheckerName):
                raise ValueError(
                    f"can't name a checker {name!r}: lower case, digits and _, and none of {', '.join(CheckerName)}"
                )
        return checkers

    def embedded(self) -> bool:
        """Tells whether the embedded servers are used; raises ``ConfigurationError`` when only one URL is set."""
        urls = [self.database_url, self.redis_url]
        if all(url is not None for url in urls):
            return False
        if any(url is not None for url in urls):
            missing = "NIGHTDESK_REDIS_URL" if self.redis_url is None else "NIGHTDESK_DATABASE_URL"
            raise ConfigurationError(f"{missing} is not set: set both URLs, or neither for the embedded servers")
        return True

    @property
    def default_limits(self) -> LimitSettings:
        """The limits of providers and models that have none of their own."""
        return LimitSettings(**{name: getattr(self, name) for name in LimitSettings.model_fields})

    @property
    def share_policy(self) -> "SharePolicy":
        """The tenants whose calls share their answers, and the ages and waits of shared answers."""
        # Only workers share answers; every process reads settings.
        from tasks.calls.response_cache import SharePolicy  # noqa: PLC0415

        within, wait = timedelta(seconds=self.share_within_s), timedelta(seconds=self.share_wait_s)
        return SharePolicy(frozenset(self.share_answers), within, wait)

    @model_validator(mode="after")
    def _keep_batches_longest(self) -> "Settings":
        rows, batches = self.prune_rows_after_days, self.prune_batches_after_days
        if batches is not None and (rows is None or batches < rows):
            raise ValueError("prune_batches_after_days needs prune_rows_after_days, and at least as many days")
        return self

    @property
    def prune_content_after(self) -> timedelta | None:
        """The time after its end that the content of a job is kept; None: for ever."""
        return _days(self.prune_content_after_days)

    @property
    def prune_rows_after(self) -> timedelta | None:
        """The time after its end that a job is kept; None: for ever."""
        return _days(self.prune_rows_after_days)

    @property
    def prune_batches_after(self) -> timedelta | None:
        """The time after its submission that a batch without jobs is kept; None: for ever."""
        return _days(self.prune_batches_after_days)

    @property
    def lease_for(self) -> timedelta:
        """The length of a lease."""
        return timedelta(seconds=self.lease_s)

    @property
    def local_model_wait(self) -> timedelta:
        """The time that jobs wait for a worker with the local model while there is none."""
        return timedelta(seconds=self.local_model_wait_s if self.local_model is not None else 0)

    @property
    def submit_queues(self) -> dict[str, str]:
        """The queues of submissions over Redis, and the tenant of each: who may write to one is this tenant."""
        return {SUBMIT_QUEUE: self.tenant} | {
            f"{prefix}{SUBMIT_QUEUE}": tenant for tenant, prefix in self.tenant_prefixes.items()
        }

    def most_queued(self, tenant: str) -> int | None:
        """The most jobs that are not final of a tenant; None: any number."""
        own = self.tenant_limits.get(tenant)
        return self.max_queued_jobs if own is None else own.max_queued_jobs

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings calls by name
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order of precedence: arguments, environment, file."""
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
        if config := os.environ.get("NIGHTDESK_CONFIG"):
            sources += (TomlConfigSettingsSource(settings_cls, toml_file=config),)
        return sources


def _days(days: float | None) -> timedelta | None:
    return None if days is None else timedelta(days=days)


def _is_url(text: str) -> bool:
    """Tells whether the parts of a URL can be told apart; PostgreSQL's may name several hosts."""
    try:
        parts = urlsplit(text)
        ports = [urlsplit(f"//{host}").port for host in parts.netloc.rpartition("@")[2].split(",")]
    except ValueError:
        return False
    # A password with one of these marks as it is ends the host before it begins.
    rest = parts.path + parts.query.partition("=")[0] + parts.fragment
    return "://" in text and bool(ports) and "@" not in rest


def load_settings(**overrides: Any) -> Settings:
    """Reads the settings; raises ``ConfigurationError`` with the variable at fault."""
    config = os.environ.get("NIGHTDESK_CONFIG")
    if config and not Path(config).is_file():
        raise ConfigurationError(f"NIGHTDESK_CONFIG names {config}, which is not a file")
    try:
        in_files = {SECRETS[name]: value for name, value in secrets_in_files(SECRETS).items()}
        settings = Settings(**{**in_files, **overrides})
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{config} is not valid TOML: {error}") from error
    except SettingsError as error:
        raise ConfigurationError(_not_json(error)) from None
    except ValidationError as error:
        problems = "; ".join(
            f"{'_'.join(map(str, ('NIGHTDESK', *problem['loc'][:1]))).upper()}: {_inside(problem['loc'])}{_words_of(problem)}"
            for problem in error.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError(problems) from None
    use_own_templates(settings)
    _check_prompts(settings)
    return settings


def _not_json(error: SettingsError) -> str:
    """The variable that is not the JSON it should be, and where; its value may be a secret."""
    field = re.search(r'field "(\w+)"', str(error))
    name = f"NIGHTDESK_{field[1].upper()}" if field else "a NIGHTDESK_ variable"
    cause = error.__cause__
    place = f": {cause.msg} at character {cause.pos + 1}" if isinstance(cause, JSONDecodeError) else ""
    return f"{name} is not the JSON it should be{place}"


def _inside(location: Sequence[int | str]) -> str:
    """The place at fault inside of the JSON of a variable."""
    return ".".join(map(str, location[1:])) + ": " if location[1:] else ""


def _words_of(problem: Any) -> str:
    if problem["type"] != "extra_forbidden" or len(problem["loc"]) > 1:
        # Only wrong settings pay for the loading of the words.
        from tasks.raw_jobs.refusals import problem_words  # noqa: PLC0415

        return problem_words(problem)
    near = _nearest(f"NIGHTDESK_{problem['loc'][0]}".upper())
    return "is no setting" + (f"; the nearest is {near}" if near else "")


def mistyped(environment: Iterable[str]) -> list[str]:
    """Warnings of variables that are nearly named like a setting, and so have no effect.

    Others that begin so may be of anybody: of a compose file, or the key of a provider.
    """
    strangers = (
        name for name in sorted(environment) if name.startswith("NIGHTDESK_") and name not in _SETTINGS | _NO_SETTINGS
    )
    return [
        f"{name} is no setting and has no effect; the nearest is {near}"
        for name in strangers
        if (near := _nearest(name)) is not None
    ]


_SETTINGS = frozenset(f"NIGHTDESK_{name.upper()}" for name in Settings.model_fields)

SECRETS = {
    f"NIGHTDESK_{name.upper()}": name
    for name, field in Settings.model_fields.items()
    if SecretStr in get_args(field.annotation)
}
"""Variables of secrets, which may stand in files, and their settings."""

_NO_SETTINGS = {"NIGHTDESK_CONFIG", "NIGHTDESK_LOCAL_MODEL_DIR", *(f"{name}_FILE" for name in SECRETS)}
"""Names that have a meaning all the same: of a file with settings, in the compose file, and of files with secrets."""

_LEAST_NEAR = 0.9
"""Likeness of two names from which one is taken for the other mistyped: a letter or two, or two that are exchanged."""


def _nearest(name: str) -> str | None:
    return next(iter(get_close_matches(name, _SETTINGS | _NO_SETTINGS, 1, _LEAST_NEAR)), None)


def use_own_templates(settings: Settings) -> None:
    """Makes this process read the templates of the settings; raises ``ConfigurationError`` for one that can't be used."""
    if settings.templates_dir is not None:
        # Only those with templates of their own, or with an experiment, pay for the template engine here.
        import_module("tasks.prompting.own_templates").use_templates(settings.templates_dir.expanduser().absolute())


def _check_prompts(settings: Settings) -> None:
    """Raises ``ConfigurationError`` for an experiment with a prompt or version that does not exist."""
    for name, versions in settings.prompts.items():
        if not versions:
            raise ConfigurationError(f"NIGHTDESK_PROMPTS names no version of {name!r}")
        for version in versions:
            try:
                import_module("tasks.prompting.templates").load(name, version)
            except InputError as error:
                raise ConfigurationError(f"NIGHTDESK_PROMPTS: {str(error).removeprefix(f'{error.field}: ')}") from None


def worker_name(pid: int | None = None) -> str:
    """A process's name in leases and logs, this one's unless another is given: host and process id."""
    return f"{os.uname().nodename}:{pid or os.getpid()}"
