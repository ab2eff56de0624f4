"""The operations that are measured, by parts: a node for each."""
import base64, threading, time

from bench import Ftp, Http, Node, Receiver

WEBDAV = b"""<D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockinfo>"""
DISCOVERY = b"""<D:propfind xmlns:D="DAV:"><D:prop><D:lockdiscovery/></D:prop></D:propfind>"""
PROPERTY = b"""<D:propertyupdate xmlns:D="DAV:"><D:set><D:prop><x xmlns="urn:x">1</x></D:prop></D:set></D:propertyupdate>"""
TUS = "Tus-Resumable: 1.0.0"


def plain(bench):
    node = Node(bench, "plain")
    bench.rest(node)
    client = Ftp(node.ftp).logged_in()
    bench.measure(node, "FTP session without a limit", 200, lambda _: Ftp(node.ftp).logged_in().close())
    bench.measure(node, "RETR of 1 KiB", 300, lambda _: client.transfer("RETR small"))
    bench.measure(node, "LIST of a few files", 300, lambda _: client.transfer("LIST"))
    bench.measure(node, "STOR of 1 KiB", 200, lambda turn: client.transfer(f"STOR f{turn % 20}", b"7" * 1024))
    quota = Ftp(node.ftp, "quota").logged_in()
    bench.measure(node, "STOR of 1 KiB, tree with a quota", 200, lambda turn: quota.transfer(f"STOR f{turn % 20}", b"7" * 1024))

    def slowly(turn):
        quota.transfer(f"STOR g{turn}", b"7" * 1024)
        time.sleep(2.5)

    bench.measure(node, "the same, one every 2.5 s", 8, slowly)
    bench.measure(node, "DELE, tree with a quota", 20, lambda turn: quota.say(f"DELE f{turn}"))

    def guess(turn):
        clients = [threading.Thread(target=lambda user=f"u{turn}-{one}": Ftp(node.ftp, user, "wrong")) for one in range(10)]
        [client.start() for client in clients]
        [client.join() for client in clients]

    bench.measure(node, "ten failed logins at once", 2, guess, settles=4)
    node.stop()


def limits(bench):
    keys = 'sessions = 100000\nsessions-per-address = 100000\nuser-sessions = "100000"\ndownload-limit = "20M"\n'
    node = Node(bench, "limits", keys)
    bench.rest(node)
    held = []
    bench.measure(node, "FTP login that takes places of server, address and user", 200,
                  lambda _: held.append(Ftp(node.ftp).logged_in()), settles=0)
    bench.measure(node, "end of such a session", 200, lambda _: held.pop().close())
    bench.measure(node, "such a session behind another one", 200, lambda _: Ftp(node.ftp).logged_in().close())
    client = Ftp(node.ftp).logged_in()
    bench.measure(node, "a second of a download at a shared rate", 1, lambda _: client.transfer("RETR large"), settles=0, is_rate=True)
    node.stop()


def web(bench):
    node = Node(bench, "web")
    bench.rest(node)
    client = Http(node.http)
    bench.measure(node, "GET of 1 KiB", 300, lambda _: client.ask("GET /small", expect=(200,)))
    bench.measure(node, "PROPFIND of a folder", 200, lambda _: client.ask("PROPFIND /", ["Depth: 1"], expect=(207,)))
    bench.measure(node, "PUT of 1 KiB, no locks anywhere", 200, lambda turn: client.ask(f"PUT /f{turn % 20}", body=b"7" * 1024, expect=(201, 204)))
    tokens = {}

    def lock(turn):
        tokens[turn] = client.ask(f"LOCK /l{turn}", ["Timeout: Second-600"], WEBDAV, (200, 201))[1]["lock-token"].strip("<>")

    bench.measure(node, "LOCK", 200, lock)
    bench.measure(node, "PUT of 1 KiB, there are locks", 200, lambda turn: client.ask(f"PUT /f{turn % 20}", body=b"7" * 1024, expect=(204,)))
    bench.measure(node, "PUT of 1 KiB by who has the lock", 100, lambda turn: client.ask(
        f"PUT /l{turn}", [f"If: (<{tokens[turn]}>)"], b"7" * 1024, (201, 204)))
    bench.measure(node, "LOCK, refresh", 100, lambda turn: client.ask(
        f"LOCK /l{turn}", [f"If: (<{tokens[turn]}>)", "Timeout: Second-900"], expect=(200,)))
    bench.measure(node, "PROPFIND of a folder with lockdiscovery", 100, lambda _: client.ask("PROPFIND /", ["Depth: 1"], DISCOVERY, (207,)))
    bench.measure(node, "PROPPATCH", 100, lambda turn: client.ask(f"PROPPATCH /f{turn % 20}", (), PROPERTY, (207,)))
    bench.measure(node, "MOVE", 20, lambda turn: client.ask(f"MOVE /f{turn}", [f"Destination: /m{turn}"], expect=(201,)))
    bench.measure(node, "UNLOCK", 200, lambda turn: client.ask(f"UNLOCK /l{turn}", [f"Lock-Token: <{tokens[turn]}>"], expect=(204,)))
    piece = ["Content-Type: application/offset+octet-stream", TUS]
    uploads = {}

    def create(turn):
        name = base64.b64encode(f"t{turn}".encode()).decode()
        uploads[turn] = client.ask("POST /", [TUS, f"Upload-Metadata: filename {name}", "Upload-Length: 3072"], expect=(201,))[1]["location"]

    def patch(turn, offset):
        client.ask(f"PATCH {uploads[turn]}", [*piece, f"Upload-Offset: {offset}"], b"7" * 1024, (204,))

    bench.measure(node, "tus: a new upload", 100, create)
    bench.measure(node, "tus: a piece", 100, lambda turn: patch(turn, 0))
    bench.measure(node, "tus: HEAD", 100, lambda turn: client.ask(f"HEAD {uploads[turn]}", [TUS], expect=(200,)))
    [patch(turn, 1024) for turn in range(100)]
    bench.measure(node, "tus: the last piece", 100, lambda turn: patch(turn, 2048))
    node.stop()


def events(bench):
    receiver = Receiver()
    hook = f'[[hook]]\non = "upload"\nwait = false\nwebhook = "http://127.0.0.1:{receiver.port}/"\n'
    node = Node(bench, "events", 'hooks-queue = "events.db"\n', hook, "share-events = true\n")
    bench.rest(node)
    client = Ftp(node.ftp).logged_in()
    bench.measure(node, "STOR of 1 KiB with an event", 200, lambda turn: client.transfer(f"STOR f{turn % 20}", b"7" * 1024), settles=5)

    def slowly(turn):
        client.transfer(f"STOR f{turn}", b"7" * 1024)
        time.sleep(1.5)

    bench.measure(node, "the same, one every 1.5 s", 10, slowly, settles=4)
    print(f"    {receiver.count} requests of events came")
    node.stop()


def audit(bench):
    node = Node(bench, "audit", 'audit-log = "audit.jsonl"\naudit-files = true\n', "", "share-audit = true\n")
    bench.rest(node)
    client = Ftp(node.ftp).logged_in()
    bench.measure(node, "STOR of 1 KiB with an audit record", 200, lambda turn: client.transfer(f"STOR f{turn % 20}", b"7" * 1024), settles=4)
    node.stop()


def buckets(bench):
    bench.start_store()
    endpoint = f'endpoint = "http://127.0.0.1:{bench.store.port}"\ncredentials-file = "keys"\n'
    index = f'layout = "indexed"\npostgres = "host=127.0.0.1 port={bench.database.port} user=millrace dbname=postgres"\n'
    folders = f'[[folder]]\npath = "/m"\nbucket = "mapped"\n{endpoint}[[folder]]\npath = "/i"\nbucket = "named"\n{endpoint}{index}'
    node = Node(bench, "buckets", "", folders)
    bench.rest(node)
    client = Ftp(node.ftp).logged_in()
    for place, what in (("m", "mapped"), ("i", "names in a database")):
        client.say(f"MKD /{place}/d")
        client.transfer(f"STOR /{place}/d/warm", b"7" * 1024)
        bench.measure(node, f"STOR of 1 KiB, bucket, {what}", 100, lambda turn: client.transfer(f"STOR /{place}/d/f{turn}", b"7" * 1024))
        bench.measure(node, f"RETR of 1 KiB, bucket, {what}", 100, lambda turn: client.transfer(f"RETR /{place}/d/f{turn}"))
        bench.measure(node, f"LIST of 101 files, bucket, {what}", 50, lambda turn: client.transfer(f"LIST /{place}/d"))
        bench.measure(node, f"DELE, bucket, {what}", 100, lambda turn: client.say(f"DELE /{place}/d/f{turn}"))
    node.stop()
    bench.store = None


def errands(bench):
    one, other = Node(bench, "one"), Node(bench, "other")
    bench.rest(one)
    bench.measure(one, "ctl sessions at one of two nodes", 5, lambda _: one.ctl("sessions"), settles=1)
    bench.measure(one, "ctl cluster", 20, lambda _: one.ctl("cluster"), settles=1)
    one.stop()
    other.stop()


PARTS = dict(plain=plain, limits=limits, web=web, events=events, audit=audit, errands=errands, buckets=buckets)
