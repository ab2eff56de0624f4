#!/usr/bin/env python3
"""HTTP of two builds of Millrace, in turn: pairs.py BEFORE AFTER ROUNDS [LOAD,...]

Each round starts a server of each build on a fresh port, and one of AFTER without the sandbox, in changing order, and loads
it for two seconds by wrk. Prints the medians of requests a second and of microseconds of the server's processor time a
request (its programs included), and the medians and ranges of the ratios to BEFORE, of the same round. CGI needs cc.
"""
import os, re, statistics, subprocess, sys, tempfile, time

before, after, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
SIDES = {'before': (before, []), 'after': (after, []), 'after, sandbox off': (after, ['--sandbox', 'off'])}
LOADS = {
    'http-kept': ['-c215', 'http://127.0.0.1:{http}/f1666'],
    'http-new': ['-c50', '-HConnection: close', 'http://127.0.0.1:{http}/f1666'],
    'http-100k': ['-c50', 'http://127.0.0.1:{http}/f100k'],
    'https-kept': ['-c50', 'https://127.0.0.1:{https}/f1666'],
    'cgi': ['-c10', 'http://127.0.0.1:{http}/cgi-bin/copy'],
}
here = os.path.dirname(os.path.abspath(__file__))
work = tempfile.mkdtemp(dir='/dev/shm')
site = work + '/site'
os.makedirs(site + '/cgi-bin')
for name, size in ('f1666', 1666), ('f100k', 102400):
    open(f'{site}/{name}', 'wb').write(os.urandom(size))
open(site + '/cgi-bin/file', 'w').write('x' * 1666)
subprocess.run(['cc', '-O2', '-o', site + '/cgi-bin/copy', here + '/../cgi/copy.c'], check=True)
TICK = os.sysconf('SC_CLK_TCK')

def processor(pid):
    """Ticks of a process and of its children, ended ones included."""
    pids, total = [pid], 0
    pids += map(int, subprocess.run(['pgrep', '-P', str(pid)], capture_output=True, text=True).stdout.split())
    for one in pids:
        fields = open(f'/proc/{one}/stat').read().rsplit(')', 1)[1].split()
        total += sum(map(int, fields[11:15]))
    return total / TICK

def measure(side, load, port):
    program, flags = SIDES[side]
    state = f'{work}/state-{port}'
    environment = dict(os.environ, XDG_STATE_HOME=state, XDG_DATA_HOME=state)
    command = [program, 'serve', site, '--ftp', 'off', '--http', f'127.0.0.1:{port}', '--https', f'127.0.0.1:{port + 1}',
               '--tls-self-signed', '--cgi', 'cgi-bin', '--anonymous', 'ro', '--quiet', *flags]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        url = LOADS[load][-1].format(http=port, https=port + 1)
        for _ in range(50):
            if subprocess.run(['curl', '-skfo', '/dev/null', url]).returncode == 0:
                break
            time.sleep(0.1)
        used, begun = processor(server.pid), time.time()
        told = subprocess.run(['wrk', '-t1', '-d2s', *LOADS[load][:-1], url], capture_output=True, text=True).stdout
        if load == 'cgi':
            time.sleep(0.2)
        count, elapsed = int(re.search(r'(\d+) requests in', told).group(1)), time.time() - begun
        if 'Non-2xx' in told:
            sys.exit(told)
        return count / elapsed, (processor(server.pid) - used) / count * 1e6
    finally:
        server.terminate()
        server.wait()

port = 23000
for load in sys.argv[4].split(',') if len(sys.argv) > 4 else LOADS:
    figures = {side: [] for side in SIDES}
    for number in range(rounds):
        order = list(SIDES)
        order = order[number % 3:] + order[:number % 3]
        for side in order:
            port += 10
            figures[side].append(measure(side, load, port))
    for side, rows in figures.items():
        line = f'{load}, {side}: {statistics.median(row[0] for row in rows):,.0f}/s, {statistics.median(row[1] for row in rows):.1f} us'
        for at, word in (0, 'rate'), (1, 'CPU'):
            ratios = [row[at] / base[at] for row, base in zip(rows, figures['before'])]
            line += f'; {word} {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})'
        print(line, flush=True)
