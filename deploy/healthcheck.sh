#!/bin/sh
# Tells whether the command of this container is well. A worker touches a file every ten seconds from the time it takes jobs;
# a service answers /healthz, also while PostgreSQL is away: a restart would not bring it back. Other commands end by themselves.
command=" $(tr '\0' ' ' <"${1:-/proc/1/cmdline}")"
case $command in
*" worker "*)
    find "$NIGHTDESK_ALIVE_FILE" -mmin -1 | grep -q .
    ;;
*" serve "*)
    port=$(printf %s "$command" | sed -n 's/.* --port[ =]\([0-9]*\) .*/\1/p')
    exec python -IS -c 'import sys, urllib.request as r; r.urlopen(f"http://127.0.0.1:{sys.argv[1]}/healthz", timeout=5)' "${port:-8080}"
    ;;
esac
