"""Azure, Bedrock and Vertex: signatures, tokens and addresses as the SDKs and the clouds' own libraries send them."""

import asyncio
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from tasks.errors import ConfigurationError, ProviderError
from tests.providers import KEY, ask, fails, plan, question
from tests.stub.clouds import ACCESS_KEY, IDENTITY_HEADER, LONG_AGO, SECRET_KEY, SESSION, Clouds, running_clouds
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

BEDROCK_MODEL = "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
OF_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_PROFILE", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "AZURE_CLIENT_ID", "IDENTITY_ENDPOINT", "IDENTITY_HEADER",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID",
)  # fmt: skip


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Clouds]:
    for name in OF_CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    # No credentials of this machine: not of its owner's home, and not of a metadata service that is waited for.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with running_clouds(KEY) as running:
        yield running


def configured(setting: dict[str, Any], environment: dict[str, str] | None = None) -> Any:
    settings = Settings(providers={"theirs": setting})  # type: ignore[dict-item]
    return ConfiguredProviders(settings, environment or {}).get("theirs")


def azure(clouds: Clouds, environment: dict[str, str] | None = None, **more: Any) -> Any:
    return configured({"kind": "azure_openai", "base_url": clouds.url, "model": "our-luna", **more}, environment)


def bedrock(clouds: Clouds, environment: dict[str, str] | None = None, **more: Any) -> Any:
    setting = {
        "kind": "bedrock",
        "base_url": clouds.url,
        "model": BEDROCK_MODEL,
        "options": {"aws_region": "eu-central-1"},
    }
    return configured({**setting, **more}, environment)


def vertex(clouds: Clouds, environment: dict[str, str] | None = None, **more: Any) -> Any:
    setting = {"kind": "vertex", "base_url": f"{clouds.url}/v1", "model": "claude-haiku-5-5"}
    return configured({**setting, "options": {"region": "europe-west1", "project_id": "ours"}, **more}, environment)


# ---- Azure -----------------------------------------------------------------------------------------------------------


def test_azure_by_key_has_the_address_of_the_resource_and_the_price_of_the_model_that_answers(clouds: Clouds) -> None:
    call, answered = ask(azure(clouds, {"AZURE_OPENAI_API_KEY": KEY}), question())

    assert clouds.paths == ["/openai/v1/responses"]
    assert clouds.bodies[0]["model"] == "our-luna"
    assert clouds.bodies[0]["store"] is False
    completion = answered.completion
    assert completion.cost_usd == Decimal("0.0001445"), "by the list of Azure"
    assert completion.snapshot.request_id == "azure-1"
    assert (completion.snapshot.model_asked, completion.snapshot.model_returned) == ("our-luna", "gpt-6-luna")
    assert call.reserve_usd is None, "the name of a deployment says no price"
    known = azure(clouds, {"AZURE_OPENAI_API_KEY": KEY}, model="gpt-6-luna")
    assert plan(known, question()).reserve_usd


def test_azure_by_a_dated_version(clouds: Clouds) -> None:
    ask(azure(clouds, {"AZURE_OPENAI_API_KEY": KEY}, options={"api_version": "2025-04-01-preview"}), question())

    assert clouds.paths == ["/openai/responses?api-version=2025-04-01-preview"]


@pytest.mark.parametrize("options", [{}, {"api_version": "2025-04-01-preview"}])
def test_azure_by_a_token_of_entra_id(options: dict[str, str], clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{clouds.url}/identity")
    monkeypatch.setenv("IDENTITY_HEADER", IDENTITY_HEADER)

    async def many(provider: Any) -> None:
        calls = [plan(provider, question(f"When does it open? ({number})")) for number in range(20)]
        await asyncio.gather(*(provider.call(call) for call in calls))
        await provider.close()

    asyncio.run(many(azure(clouds, options=options)))
    assert (len(clouds.paths), clouds.tokens) == (20, 1), "one token for all"


def test_an_endpoint_that_is_not_named_is_asked_for() -> None:
    with pytest.raises(ConfigurationError, match=r"needs the endpoint of its resource: .* AZURE_OPENAI_ENDPOINT"):
        configured({"kind": "azure_openai", "model": "m"}, {"AZURE_OPENAI_API_KEY": KEY})
    by_variable = ConfiguredProviders(Settings(), {"AZURE_OPENAI_ENDPOINT": "https://ours.openai.azure.com/"})
    provider: Any = by_variable.get("azure_openai")
    assert provider.address == "ours.openai.azure.com/openai/v1/responses"
    assert provider.background is None
    asyncio.run(provider.close())


# ---- Bedrock ---------------------------------------------------------------------------------------------------------


def test_bedrock_is_signed_and_priced_by_the_region_of_the_model(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    call, answered = ask(bedrock(clouds), question(stream=True))

    assert clouds.paths == [f"/model/{BEDROCK_MODEL}/invoke"]
    completion = answered.completion
    assert completion.native_citations, "native citations as at Anthropic"
    assert completion.snapshot.request_id == "aws-1"
    assert "fetched whole" in completion.snapshot.parameters_dropped["stream"]
    assert call.reserve_usd is not None
    assert completion.cost_usd is not None
    everywhere, _ = ask(bedrock(clouds, model=BEDROCK_MODEL.replace("eu.", "global.")), question())
    assert everywhere.reserve_usd is not None
    assert everywhere.reserve_usd < call.reserve_usd, "a region costs more than the world"


def test_a_wrong_signature_is_refused_and_says_whose(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    # The SDK keeps the credentials of a region.
    error = fails(bedrock(clouds, options={"aws_region": "eu-west-1"}))

    assert error.kind is FailureKind.PERMISSION
    assert "security token included in the request is invalid" in str(error)
    assert not clouds.paths


def test_bedrock_by_a_bearer_token(clouds: Clouds) -> None:
    ask(bedrock(clouds, {"AWS_BEARER_TOKEN_BEDROCK": KEY}), question())

    assert len(clouds.paths) == 1


def test_without_credentials_nothing_is_sent_and_the_lane_can_pause(clouds: Clouds) -> None:
    error = fails(bedrock(clouds, options={"aws_region": "eu-west-2"}))

    assert error.kind is FailureKind.AUTHENTICATION
    assert "could not get credentials" in str(error)
    assert not clouds.paths


# ---- Vertex ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def service_account(clouds: Clouds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    clouds.public_key = private.public_key()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account", "project_id": "of-the-account", "private_key_id": "1", "private_key": pem.decode(),
        "client_email": "night@ours.example", "client_id": "1", "token_uri": f"{clouds.url}/token",
    }  # fmt: skip
    path = tmp_path / "account.json"
    path.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))


@pytest.mark.usefixtures("service_account")
def test_vertex_by_a_service_account(clouds: Clouds) -> None:
    call, answered = ask(vertex(clouds), question())

    path = "/v1/projects/ours/locations/europe-west1/publishers/anthropic/models/claude-haiku-5-5:rawPredict"
    assert clouds.paths == [path]
    assert call.protocol is AnswerProtocol.NATIVE
    assert call.reserve_usd is not None
    assert answered.completion.cost_usd is not None
    assert 0 < answered.completion.cost_usd < call.reserve_usd


@pytest.mark.usefixtures("service_account")
def test_a_token_that_ends_is_fetched_anew(clouds: Clouds) -> None:
    clouds.expires = LONG_AGO

    async def twice(provider: Any) -> None:
        for number in range(2):
            await provider.call(plan(provider, question(f"When? ({number})")))
        await provider.close()

    asyncio.run(twice(vertex(clouds)))
    assert (len(clouds.paths), clouds.tokens) == (2, 2)


def test_vertex_by_an_access_token(clouds: Clouds) -> None:
    ask(vertex(clouds, {"GOOGLE_TOKEN": KEY}, api_key_env="GOOGLE_TOKEN"), question())

    assert len(clouds.paths) == 1


def test_vertex_without_a_region_says_so() -> None:
    with pytest.raises(ConfigurationError, match="can't be set up: No region was given"):
        configured({"kind": "vertex", "model": "m", "api_key_env": "T"}, {"T": KEY})


# ---- all three -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", ["provider_batch", "background"])
@pytest.mark.parametrize("build", [azure, bedrock, vertex])
def test_a_lane_that_is_not_there_is_refused(build: Any, lane: str, clouds: Clouds) -> None:
    environment = {"AZURE_OPENAI_API_KEY": KEY, "AWS_BEARER_TOKEN_BEDROCK": KEY, "T": KEY}
    provider = build(clouds, environment, **({"api_key_env": "T"} if build is vertex else {}))
    with pytest.raises(ProviderError, match="does not serve the lane"):
        plan(provider, question(lane=lane))
    asyncio.run(provider.close())


def test_an_option_that_a_cloud_does_not_know_is_refused() -> None:
    with pytest.raises(
        ValueError, match="options that 'bedrock' does not know: region; it has aws_profile, aws_region"
    ):
        Settings(providers={"theirs": {"kind": "bedrock", "options": {"region": "eu-central-1"}}})  # type: ignore[dict-item]
