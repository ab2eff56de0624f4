#!/bin/bash
# Runs a server that logs to a journald of its own, in a mount namespace: journal.sh MILLRACE FOLDER. Prints the journal as JSON.
set -euo pipefail
mount -t tmpfs journal /run
mkdir -p /run/systemd/journal /run/log/journal "$2/files"
/lib/systemd/systemd-journald 2> "$2/journald.log" &
journald=$!
until [ -S /run/systemd/journal/socket ]; do
    kill -0 $journald
    read -r -t 0.02 < <(:) || true
done
mkfifo "$2/out"
"$1" serve "$2/files" --ftp 127.0.0.1:0 --http off --user alice:secret --log-format journal --control off > "$2/out" &
server=$!
while read -r line; do
    case $line in
    *ftp://*) url=${line#*ftp://}; url=${url%%/*}; url=${url##*@} ;;
    Ready*) break ;;
    esac
done < "$2/out"
curl -s --user alice:wrong "ftp://$url/" > /dev/null || true
curl -s --user alice:secret "ftp://$url/" > /dev/null
kill $server
wait $server
journalctl --directory /run/log/journal --sync > /dev/null 2>&1 || true
journalctl --directory /run/log/journal SYSLOG_IDENTIFIER=millrace --output json --no-pager
kill $journald
