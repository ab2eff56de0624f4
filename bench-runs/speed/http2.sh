#!/bin/bash
# http2.sh MILLRACE [SIZE [LOADS]]: HTTP/2 over TLS by h2load against Millrace and nginx in turn, one worker each, fifty files of SIZE bytes.
# LOADS: "clients streams requests" each. ROUNDS: how many. Prints the server, clients x streams, requests/s, and microseconds of the server's
# processor time (user and system) a request; at last the medians of Millrace's ratios to nginx of the same round.
millrace=$(realpath "$1") size=${2:-1638}; shift 2
[ $# -gt 0 ] || set -- "10 100 200000" "50 1 60000"
cd "$(mktemp -d)"; chmod 755 .; mkdir -p root logs; for i in $(seq 1 50); do head -c $size /dev/urandom > root/f$i; done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k.pem -out c.pem -days 2 -subj /CN=localhost >/dev/null 2>&1
cat > nginx.conf <<N
worker_processes 1; daemon off; pid $PWD/nginx.pid; error_log $PWD/logs/e; events { worker_connections 1024; }
http { access_log off; sendfile on; keepalive_requests 100000000; open_file_cache max=1000; types { } default_type text/plain;
server { listen 127.0.0.1:18443 ssl http2; ssl_certificate $PWD/c.pem; ssl_certificate_key $PWD/k.pem; root $PWD/root; } }
N
nginx -c $PWD/nginx.conf 2>logs/n & NG=$!
"$millrace" serve root --ftp off --http off --https 127.0.0.1:18444 --tls-cert c.pem --tls-key k.pem --anonymous ro --quiet --workers 1 >logs/m 2>&1 & MR=$!
trap "kill $NG $MR 2>/dev/null; rm -rf $PWD" EXIT; sleep 1.5
for i in $(seq 1 50); do echo /f$i; done > paths
cpu() { awk '{print $14+$15}' /proc/$1/stat; }
W=$(pgrep -P $NG | head -1)
once() { # name port pid clients streams requests
  sed "s|^|https://127.0.0.1:$2|" paths > urls; b=$(cpu $3)
  r=$(h2load -i urls -n $6 -c $4 -m $5 -t 1 2>/dev/null); a=$(cpu $3)
  echo "$1 $4x$5 $(echo "$r" | sed -n 's/^finished in .*, \(.*\) req\/s.*/\1/p') req/s $(echo "$a $b $6" | awk '{printf "%.2f", ($1-$2)*10000/$3}') us $(echo "$r" | sed -n 's/^status codes: //p')"
}
for round in $(seq 1 ${ROUNDS:-3}); do for load in "$@"; do
  once nginx 18443 $W $load; once millrace 18444 $MR $load; done; done | tee runs
awk '{k=$2; if ($1=="nginx") {n[k]=$3; c[k]=$5} else {i=++seen[k]; r[k,i]=$3/n[k]; p[k,i]=$5/c[k]}}
  function median(v, k, m,  i, j, t, w) { for (i=1;i<=m;i++) w[i]=v[k,i]; for (i=1;i<=m;i++) for (j=i+1;j<=m;j++) if (w[j]<w[i]) {t=w[i];w[i]=w[j];w[j]=t}; return m%2 ? w[(m+1)/2] : (w[m/2]+w[m/2+1])/2 }
  END {for (k in seen) printf "%s, %d rounds: rate %.2f, processor time %.2f of those of nginx\n", k, seen[k], median(r,k,seen[k]), median(p,k,seen[k])}' runs
