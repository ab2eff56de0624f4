"""How often PostgreSQL answers each statement of a cluster on this machine, which pgbench shares with it, for 100 nodes."""
import re, subprocess, time

from bench import Node, PLAIN

EPOCHS = 100
FIRST = 1_000_000
NODE = "\\set e random(%d, %d)\n" % (FIRST + 1, FIRST + EPOCHS)
SERVER, ADDRESS, USER = (r"'\x01'::bytea", r"'\x02'::bytea || convert_to('10.0.0.' || :a, 'UTF8')",
                         r"'\x03'::bytea || convert_to('u' || :u, 'UTF8')")
MOST = "1000000000"
PLACES = "\\set u random(1, 100000)\n\\set a random(1, 250)\n"
RENEW = "SELECT millrace_cluster.renew(:e, 100, false, ARRAY[]::bytea[], ARRAY[]::bigint[]);\n"
BANS = """SELECT network, "user", extract(epoch FROM until - now())::float8, lifted, edition FROM millrace_cluster.ban
 WHERE edition > 0 ORDER BY edition;\n""".replace("\n ", " ")
TREES = "SELECT tree, number FROM millrace_cluster.tree WHERE number > 1000000 ORDER BY number;\n"
LOCKS = """SELECT NULL::bytea, NULL::bytea[], 0::float8, 0::bigint,
 EXISTS (SELECT FROM millrace_cluster.dav_lock AS l WHERE l.until > clock_timestamp())
 OR EXISTS (SELECT FROM millrace_cluster.dav_properties) UNION ALL SELECT l.place, l.above,
 extract(epoch FROM l.until - clock_timestamp())::float8, l.edition, true
 FROM millrace_cluster.dav_lock AS l WHERE l.edition > 0 AND l.until > clock_timestamp();\n""".replace("\n ", " ")
FAILURES = """SELECT * FROM ((SELECT edition, kind, network, "user",
 failures * 0.5 ^ (greatest(extract(epoch FROM clock_timestamp() - made)::float8, 0) / 600), forgiven
 FROM millrace_cluster.failure WHERE edition > 0 AND origin <> :e AND made > clock_timestamp() - interval '10 minutes'
 ORDER BY edition LIMIT 4096) UNION ALL (SELECT edition, 4, network, "user",
 extract(epoch FROM until - clock_timestamp())::float8, false FROM millrace_cluster.familiar WHERE edition > 0
 ORDER BY edition LIMIT 4096)) AS x ORDER BY edition;\n""".replace("\n ", " ")
ERRANDS = "UPDATE millrace_cluster.errand SET taken = true WHERE epoch = :e AND NOT taken RETURNING number, text;\n"
RECEIVER = "SELECT * FROM millrace_cluster.take_receiver(:e, ARRAY[]::text[]);\n"
# A node renews every other second.
IDLE = NODE + "\\set r random(0, 1)\n\\if :r = 0\n" + RENEW + "\\endif\n" + BANS + TREES + LOCKS + FAILURES + ERRANDS
SHARE = "SELECT millrace_cluster.tell_share(:e, '%s', ARRAY[0,0,1000,1,1], ARRAY[%s,false,false], NULL);\n"
RATES = r"SELECT millrace_cluster.share_rates(:e, ARRAY['\x6473'::bytea], ARRAY[1000000000], ARRAY[1000000000], ARRAY[3]);" + "\n"

SCRIPTS = {
    "a login that takes the place of its user": NODE + PLACES + f"SELECT millrace_cluster.take(:e, ARRAY[{USER}], ARRAY[{MOST}]);\n",
    "a login that takes places of server, address, user":
        NODE + PLACES + f"SELECT millrace_cluster.take(:e, ARRAY[{SERVER}, {ADDRESS}, {USER}], ARRAY[{MOST}, {MOST}, {MOST}]);\n",
    "a renewal": NODE + RENEW,
    "an idle second of a node": IDLE,
    "the same with shared events": IDLE + RECEIVER,
    "a tus piece: lock, and its end": NODE + "\\set k random(1, 1000000)\n"
        "SELECT millrace_cluster.lock_name(:e, 'tus', decode(md5(:k::text), 'hex'), :k);\n"
        "DELETE FROM millrace_cluster.name_lock WHERE tree = 'tus' AND name = decode(md5(:k::text), 'hex') AND number = :k;\n",
    "a share of one tree": NODE + SHARE % ("one", "false"),
    "a share of one of 100 trees": NODE + "\\set t random(1, 100)\n" + SHARE.replace("'%s'", "'t' || :t") % "true",
    "rates of a node": NODE + RATES,
    "LOCK, and UNLOCK": "\\set k random(1, 100000000)\n"
        "SELECT millrace_cluster.give_lock(:k::text, decode(md5(:k::text), 'hex'), ARRAY[decode(md5('up'), 'hex')], '/f', true, false,"
        " NULL, NULL, NULL, 100, 600, ARRAY[100000, 100000000, 100000, 100000000, 100]);\n"
        "SELECT millrace_cluster.release_lock(:k::text);\n",
    "an event, put": "\\set k random(1, 1000000000000)\n"
        "SELECT millrace_cluster.put_events(ARRAY[:k::text], ARRAY['r'], ARRAY['{}'], ARRAY['\\x'::bytea], ARRAY['\\x'::bytea],"
        " ARRAY[NULL::text]);\n",
}


def prepare(bench):
    node = Node(bench, "first")
    time.sleep(2)
    node.stop()
    bench.database.sql(f"""INSERT INTO millrace_cluster.node (epoch, name, version, lease, began, renewed)
        SELECT n, 'n' || n, '1', interval '1 day', now(), now() FROM generate_series({FIRST + 1}, {FIRST + EPOCHS}) AS n""")
    bench.database.sql(f"""SELECT millrace_cluster.tell_share(n, 'one', ARRAY[0,0,0,0,0], ARRAY[true,false,false], NULL)
        FROM generate_series({FIRST + 1}, {FIRST + EPOCHS}) AS n""")
    bench.database.sql("VACUUM ANALYZE")


def run(bench, script, words, seconds):
    """Returns transactions a second, seconds of processor time of the database for one, and the mean time of one in ms."""
    path = f"{bench.folder}/rows/script"
    with open(path, "w") as file:
        file.write(script)
    command = ["pgbench", "-n", "-M", "extended", "-f", path, "-T", str(seconds), *words, "-h", "127.0.0.1", *bench.database.words()[2:]]
    before = bench.database.run_time()
    log = open(f"{bench.folder}/pgbench", "w+")
    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=f"{bench.folder}/rows", **PLAIN)
    last = before
    while process.poll() is None:
        time.sleep(0.3)
        # Backends take their times with them when they end.
        last = max(last, bench.database.run_time())
    log.seek(0)
    out = log.read()
    assert process.returncode == 0, out
    done = int(re.search(r"actually processed: (\d+)", out).group(1))
    latency = float(re.search(r"latency average = ([\d.]+)", out).group(1))
    return done / seconds, (last - before) / max(done, 1), latency


def main(bench, seconds=4):
    prepare(bench)
    for label, script in SCRIPTS.items():
        parts = []
        for clients in (1, 8):
            bench.database.sql("VACUUM")
            rate, cpu, latency = run(bench, script, ["-c", str(clients), "-j", "1"], seconds)
            parts.append(f"{clients}: {rate:.0f}/s, {1e6 * cpu:.0f} us, {latency:.2f} ms")
        print(f"{label}: {'; '.join(parts)}", flush=True)
    for nodes in (1, 10, 100):
        rate, cpu, latency = run(bench, IDLE, ["-c", str(min(nodes, 20)), "-j", "1", "-R", str(nodes)], 4 * seconds)
        print(f"{nodes} idle nodes: {rate:.1f} idle seconds a second, {100 * rate * cpu:.2f} % of a core", flush=True)
