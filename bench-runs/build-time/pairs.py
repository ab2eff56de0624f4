import subprocess,time,os,sys,re,statistics,json,signal
bins={'before':sys.argv[1],'after':sys.argv[2]}; rounds=int(sys.argv[3])
d='/dev/shm/pairs'; os.makedirs(d,exist_ok=True)
open(d+'/f1666','wb').write(os.urandom(1666)); open(d+'/f1k','wb').write(os.urandom(1024)); open(d+'/f100k','wb').write(os.urandom(102400))
def cpu(pid):
    f=open(f'/proc/{pid}/stat').read().rsplit(')',1)[1].split(); return (int(f[11])+int(f[12]))/os.sysconf('SC_CLK_TCK')
def serve(b,port):
    e=dict(os.environ,XDG_STATE_HOME='/tmp/pairs-state',XDG_DATA_HOME='/tmp/pairs-data')
    p=subprocess.Popen([b,'serve',d,'--ftp',f'127.0.0.1:{port}','--http',f'127.0.0.1:{port+1}','--https',f'127.0.0.1:{port+2}','--tls-self-signed','--quiet'],stderr=subprocess.DEVNULL,stdout=subprocess.DEVNULL,env=e)
    time.sleep(1.0); return p
def load(kind,b,port):
    if kind=='http-kept':
        o=subprocess.run(['wrk','-t1','-c50','-d2s',f'http://127.0.0.1:{port+1}/f1666'],capture_output=True,text=True).stdout
        return int(re.search(r'(\d+) requests in',o).group(1))
    if kind=='http2-1':
        o=subprocess.run(['h2load','-t1','-c50','-m1','-D2',f'https://127.0.0.1:{port+2}/f1666'],capture_output=True,text=True).stdout
        return int(re.search(r'(\d+) succeeded',o).group(1))
    if kind=='http2-100':
        o=subprocess.run(['h2load','-t1','-c10','-m100','-D2',f'https://127.0.0.1:{port+2}/f1666'],capture_output=True,text=True).stdout
        return int(re.search(r'(\d+) succeeded',o).group(1))
    f={'retr-1k':'f1k','retr-100k':'f100k'}[kind]
    o=subprocess.run([bins['before'],'bench',f'ftp://127.0.0.1:{port}/','--ops','retr','--file',f,'--users','20','--duration','2s','--json','/dev/shm/pairs.json'],capture_output=True,text=True)
    j=json.load(open('/dev/shm/pairs.json'))
    c=(j.get('cells') or j['run']['cells'])[0]
    return c.get('ops') or c.get('total_ops') or c['operations']
port=23000; res={}
kinds=sys.argv[4].split(',')
for k in kinds:
    for r in range(rounds):
        for side in (['before','after'] if r%2==0 else ['after','before']):
            port+=10; p=serve(bins[side],port); 
            try:
                c0=cpu(p.pid); t=time.time(); n=load(k,bins[side],port); t=time.time()-t; c=cpu(p.pid)-c0
            finally:
                p.terminate(); p.wait()
            res.setdefault((k,side),[]).append((n/t,c/n*1e6))
    b,a=res[(k,'before')],res[(k,'after')]
    m=lambda x:statistics.median(x)
    print(f"{k}: rate {m([x[0] for x in b]):.0f} -> {m([x[0] for x in a]):.0f} ({m([y[0]/x[0] for x,y in zip(b,a)]):.2f}), cpu us {m([x[1] for x in b]):.2f} -> {m([x[1] for x in a]):.2f} ({m([y[1]/x[1] for x,y in zip(b,a)]):.2f}; {min(y[1]/x[1] for x,y in zip(b,a)):.2f}-{max(y[1]/x[1] for x,y in zip(b,a)):.2f})",flush=True)
