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
    host=$(printf %s "$command" | sed -n 's/.* --host[ =]\([^ ]*\) .*/\1/p')
    case $host in
    "" | 0.0.0.0) host=127.0.0.1 ;;
    ::) host=::1 ;;
    esac
    case $host in
    *:*) host="[$host]" ;;
    esac
    # No proxy of the environment is asked: the service is in this container.
    exec python -IS -c 'import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(f"http://{sys.argv[1]}:{sys.argv[2]}/healthz", timeout=5)' "$host" "${port:-8080}"
    ;;
esac
