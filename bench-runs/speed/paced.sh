#!/bin/bash
# paced.sh MILLRACE: what sessions at 1000 B/s cost the server, two ways. 9,900 users, each of whom reads 10 KB at 1000 B/s (as in
# dkftpbench: what is sent waits in the client's buffers); and 6,000 whom the server holds to 1000 B/s, the most for which a process of 20,000
# descriptors has three each. Prints the server's processor time (user and system) in percent of a core while it was measured.
millrace=$(realpath "$1"); ulimit -n 20000; cd "$(mktemp -d)"; mkdir root
echo 'session-download-limit = "1000"' > limited.toml; : > plain.toml
run() { # name configuration users flags
    name=$1 configuration=$2 users=$3; shift 3
    "$millrace" serve root --config $configuration --ftp 127.0.0.1:3921 --http off --passive-ports 10000-29999 --user b:b --quiet >/dev/null 2>&1 & server=$!
    sleep 0.7
    "$millrace" bench ftp://b:b@127.0.0.1:3921/ --ops retr --users $users --threads 1 --files 1 --duration 12s --json json "$@" >/dev/null 2>&1 & client=$!
    while [ "$(ss -tn state established '( sport = :3921 )' | wc -l)" -lt $users ]; do sleep 0.5; done
    sleep 2; begun=$(awk '{print $14+$15}' /proc/$server/stat); sleep 10; ended=$(awk '{print $14+$15}' /proc/$server/stat)
    wait $client; kill $server; wait $server
    python3 -c "
import json; c = json.load(open('json'))['cells'][0]
print('$name: $users users, %d errors, %.2f MB, %.1f %% of a core in ten seconds;' % (sum(f['count'] for f in c['faults']), c['bytes'] / 1e6, ($ended - $begun) / 10), '%d operations, %.1f us each' % (c['ops'], c['server_us_per_op']) if c['server_us_per_op'] and c['ops'] else '')"
}
run 'paced by the client' plain.toml 9900 --size 10k --read-rate 1000
run 'held by the server' limited.toml 6000 --size 100k --endless
