#!/bin/sh
# Writes the secrets that docker-compose.yml mounts into secrets/, one a file. Passwords and the secret of callbacks are made; keys
# come from the environment or .env, or are yours to write: printf %s sk-... > secrets/openai-api-key
# What a file holds stays, so run it again whenever one is new. Containers run as other accounts: the folder alone is closed.
set -eu
cd "$(dirname "$0")/.."
umask 022
mkdir -p secrets
chmod 700 secrets

value() {
    printenv "$1" || { [ ! -f .env ] || sed -n "s/^$1=//p" .env | tail -n 1 | tr -d "\"'"; }
}
random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}
keep() {
    [ -s "secrets/$1" ] || printf %s "$2" >"secrets/$1"
}

for name in NIGHTDESK_POSTGRES_PASSWORD NIGHTDESK_REDIS_PASSWORD NIGHTDESK_GRAFANA_PASSWORD; do
    password=$(value "$name")
    keep "$(printf %s "${name#NIGHTDESK_}" | tr A-Z_ a-z-)" "${password:-$(random)}"
done
secret=$(value NIGHTDESK_CALLBACK_SECRET)
keep callback-secret "${secret:-whsec_$(head -c 32 /dev/urandom | base64)}"
for name in OPENAI_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY NIGHTDESK_METRICS_KEY; do
    keep "$(printf %s "${name#NIGHTDESK_}" | tr A-Z_ a-z-)" "$(value "$name")"
done

printf %s "postgresql://nightdesk:$(cat secrets/postgres-password)@postgres:5432/nightdesk" >secrets/database-url
printf %s "redis://nightdesk:$(cat secrets/redis-password)@redis:6379/0" >secrets/redis-url
prefix=$(value NIGHTDESK_KEY_PREFIX)
sed "s/PREFIX/${prefix:-nightdesk:}/g; s/PASSWORD/$(cat secrets/redis-password)/" deploy/redis-users.acl >secrets/redis-users
