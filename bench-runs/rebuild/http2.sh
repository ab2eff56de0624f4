#!/bin/bash
# run.sh MILLRACE: HTTP/2 by h2load against Millrace and nginx in turn, one worker each, 1.6 KB files over TLS.
# Prints for each run: server, clients x streams, requests/s, CPU microseconds a request (user and system of the server).

cd "$(mktemp -d)"; chmod 755 .; mkdir -p root logs; for i in $(seq 1 50); do head -c 1638 /dev/urandom > root/f$i; done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k.pem -out c.pem -days 2 -subj /CN=localhost >/dev/null 2>&1
cat > nginx.conf <<N
worker_processes 1; daemon off; pid $PWD/nginx.pid; error_log $PWD/logs/e; events { worker_connections 1024; }
http { access_log off; sendfile on; keepalive_requests 100000000; open_file_cache max=1000; types { } default_type text/plain;
server { listen 127.0.0.1:18443 ssl http2; ssl_certificate $PWD/c.pem; ssl_certificate_key $PWD/k.pem; root $PWD/root; } }
N
nginx -c $PWD/nginx.conf 2>logs/n & NG=$!
"$1" serve root --https 127.0.0.1:18444 --tls-cert c.pem --tls-key k.pem --anonymous ro --quiet --workers 1 >logs/m 2>&1 & MR=$!
trap "kill $NG $MR 2>/dev/null" EXIT; sleep 2
for i in $(seq 1 50); do echo /f$i; done > paths
cpu() { awk '{print $14+$15}' /proc/$1/stat; }
W=$(pgrep -P $NG | head -1)
once() { # name port pid clients streams requests
  sed "s|^|https://127.0.0.1:$2|" paths > urls; b=$(cpu $3)
  r=$(h2load -i urls -n $6 -c $4 -m $5 -t 1 2>/dev/null); a=$(cpu $3)
  echo "$1 $4x$5 $(echo "$r" | sed -n 's/^finished in .*, \(.*\) req\/s.*/\1/p') req/s $(( (a-b)*10000/($6/1000) ))e-3 us $(echo "$r" | sed -n 's/^status codes: //p')"
}
for round in $(seq 1 ${ROUNDS:-3}); do for cs in "10 100 200000" "50 1 60000"; do set -- $cs
  once nginx 18443 $W $1 $2 $3; once millrace 18444 $MR $1 $2 $3; done; done
