"""pyftpdlib as the race starts it: its own sendfile server, its fast asynchronous model, no limits, no log.

usage: pyftpdlib_server.py ROOT PORT USER PASSWORD PASSIVE_FIRST PASSIVE_LAST
"""

import logging
import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer


def main() -> None:
    root, port, user, password, first, last = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    authorizer = DummyAuthorizer()
    authorizer.add_user(user, password, root, perm="elradfmwMT")
    FTPHandler.authorizer = authorizer
    FTPHandler.passive_ports = range(int(first), int(last) + 1)
    FTPHandler.timeout = 0
    server = FTPServer(("127.0.0.1", int(port)), FTPHandler, backlog=4096)
    server.max_cons = 20000
    server.max_cons_per_ip = 0
    server.serve_forever()


if __name__ == "__main__":
    main()
