#!/bin/bash
# formats.sh MILLRACE [ROUNDS]: three servers, without an access log, with one in text and with a binary one, measured in turn.
# A line for each: round, format, requests/s and the server's us for one by HTTP, the same of downloads by FTP.
set -eu
millrace=$(realpath "$1")
folder=$(mktemp -d)
trap 'kill $pids 2>/dev/null; rm -rf "$folder"' EXIT
pids=
mkdir "$folder/files"
head -c 1666 /dev/urandom >"$folder/files/f"
declare -A process
port=3001
for format in none text binary; do
    mkdir "$folder/$format"
    cat >"$folder/$format/m.toml" <<EOF
directory = "$folder/files"
quiet = true
http = "127.0.0.1:$port"
ftp = "127.0.0.1:$((port + 10))"
state = "state"
control = "off"
EOF
    [ $format = none ] || echo 'access-log = "access.log"' >>"$folder/$format/m.toml"
    [ $format != binary ] || echo 'access-log-format = "binary"' >>"$folder/$format/m.toml"
    (cd "$folder/$format" && exec "$millrace" serve --config m.toml --ready-file ready >out 2>err) &
    process[$format]=$!
    pids="$pids $!"
    until [ -e "$folder/$format/ready" ]; do sleep 0.1; done
    port=$((port + 1))
done
figures() {
    python3 -c "
import json, sys
cell = json.load(open(sys.argv[1]))['cells'][0]
print(round(cell['ops_per_s']), round(cell['server_us_per_op'], 2), end=' ')" "$folder/run.json"
}
load() {
    "$millrace" bench "$1" --ops "$2" $3 --duration 1s --warm-up 0 --server-pid "$4" --json "$folder/run.json" >/dev/null 2>&1 || true
    figures
}
for round in $(seq "${2:-12}"); do
    for step in 0 1 2; do
        place=$(((step + round) % 3))
        format=$(echo none text binary | cut -d' ' -f$((place + 1)))
        printf '%s %s ' "$round" "$format"
        load "http://127.0.0.1:$((3001 + place))/f" get "--users 16" "${process[$format]}"
        load "ftp://anonymous:a@127.0.0.1:$((3011 + place))/" retr "--file f --users 8" "${process[$format]}"
        echo
    done
done
