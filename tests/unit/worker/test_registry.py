"""Which provider is the default, what it is given, and what is said when a setting is missing."""

import asyncio
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.model_call import Usage
from tasks.errors import ConfigurationError
from tasks.masking import masked, words_of
from worker.provider_settings import ProviderSettings, TokenPrice
from worker.providers.prices import PriceList, Prices
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings, load_settings

OPENAI, ANTHROPIC = {"OPENAI_API_KEY": "sk-one-0123456789"}, {"ANTHROPIC_API_KEY": "sk-ant-0123456789"}


def registry(environment: dict[str, str], **settings: Any) -> ConfiguredProviders:
    return ConfiguredProviders(Settings(**settings), environment)


def target_of(providers: ConfiguredProviders, name: str | None = None) -> Any:
    provider: Any = providers.get(name)
    assert providers.get(name) is provider
    asyncio.run(providers.close())
    return provider.target


@pytest.mark.parametrize(
    ("environment", "settings", "expected"),
    [
        ({}, {}, "extractive"),
        ({"OPENAI_API_KEY": ""}, {}, "extractive"),
        (OPENAI, {}, "openai"),
        (ANTHROPIC, {}, "anthropic"),
        (OPENAI | ANTHROPIC, {}, "openai"),
        (OPENAI, {"provider": "extractive"}, "extractive"),
    ],
)
def test_without_settings_the_offline_provider_is_the_default(
    environment: dict[str, str], settings: dict[str, str], expected: str
) -> None:
    assert registry(environment, **settings).default == expected


def test_environment_variables_of_the_sdks_configure_the_built_in_providers() -> None:
    target = target_of(registry(OPENAI | {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}))
    assert (target.api_key, target.base_url, target.official) == (
        OPENAI["OPENAI_API_KEY"], "http://127.0.0.1:9/v1", True,
    )  # fmt: skip
    assert target_of(registry(OPENAI)).base_url == "https://api.openai.com/v1"
    assert target_of(registry(ANTHROPIC)).base_url == "https://api.anthropic.com"


def test_a_named_server_gets_no_key_that_is_not_its_own() -> None:
    server = ProviderSettings(kind="openai_chat", base_url="http://127.0.0.1:9/v1", model="m")  # type: ignore[arg-type]
    providers = registry(OPENAI, providers={"mine": server, "theirs": server.model_copy(update={"kind": "openai"})})
    assert target_of(providers, "mine").api_key is None
    assert target_of(providers, "theirs").api_key is None


def test_the_model_of_the_settings_is_that_of_the_default_alone() -> None:
    providers = registry(OPENAI | ANTHROPIC, model="gpt-6.1-terra")
    assert target_of(providers, "openai").model == "gpt-6.1-terra"
    assert target_of(providers, "anthropic").model.startswith("claude-")


@pytest.mark.parametrize(
    ("name", "provider_settings", "environment", "message"),
    [
        ("openai", None, {}, "set OPENAI_API_KEY"),
        ("anthropic", None, {}, "set ANTHROPIC_API_KEY"),
        ("mine", {"kind": "openai_chat", "base_url": "http://h/v1", "api_key_env": "MINE"}, {}, "set MINE"),
        ("mine", {"kind": "openai_chat"}, {}, "needs a base_url"),
        ("openai", None, {"OPENAI_API_KEY": "sk-0123\n456789"}, "OPENAI_API_KEY holds white space"),
        (
            "openai",
            None,
            {**OPENAI, "OPENAI_BASE_URL": "http://u:pw@h/v1"},
            "OPENAI_BASE_URL must not hold credentials",
        ),
        (
            "nobody",
            None,
            {},
            "there is anthropic, azure_openai, bedrock, extractive, gemini, litellm, llamacpp, ollama, openai, openai_decisions, openrouter, vertex, vllm",
        ),
    ],
)
def test_a_missing_provider_setting_is_named(
    name: str, provider_settings: dict[str, Any] | None, environment: dict[str, str], message: str
) -> None:
    providers = registry(environment, providers={name: provider_settings} if provider_settings else {})
    with pytest.raises(ConfigurationError, match=message) as raised:
        providers.get(name)
    assert "pw" not in str(raised.value)
    assert "456789" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{not json", "NIGHTDESK_|providers"),
        ('{"mine": {"kind": "telepathy"}}', "NIGHTDESK_PROVIDERS: mine.kind: "),
        ('{"mine": {"kind": "openai", "base_url": "http://u:pw@h"}}', "must not hold credentials"),
        ('{"mine": {"kind": "openai", "base_url": "http://h/v1?key=pw"}}', "must end before the '\\?'"),
        ('{"mine": {"kind": "openai", "base_url": "h:80"}}', "must begin with http"),
        ('{"mine": {"kind": "openai", "key": "sk-secret"}}', "NIGHTDESK_PROVIDERS: mine.key: "),
    ],
)
def test_settings_that_are_wrong_are_refused_without_repeating_them(
    value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTDESK_PROVIDERS", value)
    with pytest.raises(ConfigurationError, match=message) as raised:
        load_settings()
    assert "pw" not in str(raised.value)
    assert "sk-secret" not in str(raised.value)


def test_settings_may_come_from_a_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "nightdesk.toml"
    config.write_text(
        '[providers.mine]\nkind = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"\njson_schema = false\n'
    )
    monkeypatch.setenv("NIGHTDESK_CONFIG", str(config))
    assert load_settings().providers["mine"].json_schema is False


def test_each_key_is_hidden_before_it_is_used() -> None:
    providers = {"mine": {"kind": "openai_chat", "base_url": "http://h/v1", "api_key_env": "MINE"}}
    registry({**OPENAI, "MINE": "hush-hush"}, providers=providers)
    assert words_of(OSError(f"{OPENAI['OPENAI_API_KEY']}, hush-hush")) == "OSError: [masked], [masked]"


@pytest.mark.parametrize(
    ("judge", "message"), [("nobody:m", "'nobody:m', which is no provider"), ("extractive", "can't judge")]
)
def test_a_judge_that_could_never_judge_is_refused_at_the_start(judge: str, message: str) -> None:
    assert registry(OPENAI, judge="openai:gpt-6-luna").default == "openai"
    with pytest.raises(ConfigurationError, match=message):
        registry(OPENAI, judge=judge)


@pytest.mark.parametrize("setting", [{"provider": "mine"}, {"fallbacks": ("anthropic", "mine:gpt-6-luna")}])
def test_a_provider_that_only_judges_is_refused_as_a_generator(setting: dict[str, Any]) -> None:
    settings = {"mine": {"kind": "openai_decisions"}}
    providers = registry(OPENAI, providers=settings, judge="mine")
    assert providers.default == "openai"
    assert [providers.gives_probabilities(name) for name in ("mine", "openai_decisions", "openai", "nobody")] == [
        True, True, False, False,
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="'mine', which only judges: name it in NIGHTDESK_JUDGE"):
        registry(OPENAI, providers=settings, **setting)


def test_no_sdk_is_imported_before_it_is_used() -> None:
    code = (
        "import sys; from worker.providers.registry import ConfiguredProviders; from worker.settings import Settings; "
        "ConfiguredProviders(Settings(), {}).get(None); "
        "print(sorted({'openai', 'anthropic', 'httpx2', 'genai_prices'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- the judge by default --------------------------------------------------------------------------------------

GEMINI = {"GEMINI_API_KEY": "g-one-0123456789"}


@pytest.mark.parametrize(
    ("provider", "model", "judge"),
    [
        ("openai", "gpt-6-sol", "openai:gpt-6-luna none"),
        ("openai", "gpt-6.1-terra-2026-09-01", "openai:gpt-6-luna none"),
        ("openai", "gpt-6-luna", "openai_decisions:None None"),
        ("openai", "gpt-6-luna-2026-09-22", "openai_decisions:None None"),
        ("anthropic", "claude-opus-5-5", "anthropic:claude-haiku-5-5 low"),
        ("anthropic", "claude-haiku-5-5", "anthropic:claude-haiku-5-5 low"),
        ("gemini", "gemini-3.8-flash", "gemini:gemini-3.1-flash-lite None"),
    ],
)
def test_each_vendor_with_a_key_has_a_cheap_model_that_judges_by_default(provider: str, model: str, judge: str) -> None:
    cheap = registry(OPENAI | ANTHROPIC | GEMINI).cheap_judge(provider, model)

    assert cheap is not None
    assert f"{cheap.turn.provider}:{cheap.turn.model} {cheap.reasoning_effort}" == judge
    assert Decimal("0.00001") < cheap.least_usd < Decimal("0.0002")
    assert registry({}).cheap_judge(provider, model) is None, "there is no key"


@pytest.mark.parametrize(
    ("vendor", "model", "usd"),
    [("openai", "gpt-6-luna", "0.000150"), ("openai-decisions", "gpt-6-luna", "0.0001"), ("openai", "no-such", None)],
)
def test_a_likely_cost_counts_the_usual_bytes_of_a_token_and_the_whole_limit(
    vendor: PriceList, model: str, usd: str | None
) -> None:
    prices = Prices(vendor, "https://api.openai.com/v1")

    likely, most = prices.expected_usd(model, 3_500, 100, None), prices.reserve_usd(model, 3_500, 100, None)

    assert likely == (None if usd is None else Decimal(usd))
    assert likely is None or (most is not None and likely < most)


def test_prices_of_the_settings_go_before_the_tables_by_both_names_and_by_lane() -> None:
    price = TokenPrice(input=Decimal(2), output=Decimal(4), batch=Decimal("0.25"))
    prices = Prices("openai", "https://api.openai.com/v1", {"mine": price, "gpt-6-luna": price})
    usage = Usage(input_tokens=1_000_000, output_tokens=500_000)

    assert prices.cost_usd("mine", "vendors-own-name", usage, None) == 4
    assert prices.cost_usd("gpt-6-luna", None, usage, "batch") == 1
    assert prices.cost_usd("other", "gpt-6-luna", usage, None) == 4
    assert prices.cost_usd("other", "no-such", usage, None) is None
    assert registry(OPENAI, providers={"openai": {"kind": "openai", "prices": {"*": price}}}).usage_usd(
        "openai", "no-such", usage, "provider_batch"
    ) == 1  # fmt: skip


def test_a_key_may_stand_in_a_file_and_a_new_one_is_taken_for_the_next_call(tmp_path: Path) -> None:
    file, other = tmp_path / "key", tmp_path / "other"
    environment = {"OPENAI_API_KEY_FILE": str(file)}
    with pytest.raises(
        ConfigurationError, match=r"OPENAI_API_KEY_FILE names .*key, which can't be read \(No such file"
    ):
        registry(environment)
    file.write_text("\n")
    providers = registry(environment)
    assert (providers.default, providers.missing_key("openai")) == ("extractive", "OPENAI_API_KEY")
    file.write_text("sk-first-0123456789\n")
    assert (providers.default, providers.missing_key("openai")) == ("openai", None)
    first: Any = providers.get("openai")
    assert (first.target.api_key, providers.get("openai") is first) == ("sk-first-0123456789", True)

    # As Kubernetes does it: another file comes into its place.
    other.write_text("sk-second-0123456789")
    other.replace(file)

    second: Any = providers.get("openai")
    assert (second.target.api_key, providers.get("openai") is second) == ("sk-second-0123456789", True)
    assert masked("sk-first-0123456789 sk-second-0123456789") == "[masked] [masked]"
    asyncio.run(providers.close())
