"""pyftpdlib as the race starts it: its own sendfile server, its fast asynchronous model, no limits, no log.

usage: pyftpdlib_server.py ROOT PORT USER PASSWORD PASSIVE_FIRST PASSIVE_LAST [CERTIFICATE_AND_KEY]
"""

import logging
import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer


def encrypted(certificate_and_key: str) -> type[FTPHandler]:
    from pyftpdlib.handlers import TLS_FTPHandler  # there with pyOpenSSL only

    TLS_FTPHandler.certfile = certificate_and_key
    return TLS_FTPHandler


def main() -> None:
    root, port, user, password, first, last, *certificate = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    authorizer = DummyAuthorizer()
    authorizer.add_user(user, password, root, perm="elradfmwMT")
    handler = encrypted(*certificate) if certificate else FTPHandler
    handler.authorizer = authorizer
    handler.passive_ports = range(int(first), int(last) + 1)
    handler.timeout = 0
    server = FTPServer(("127.0.0.1", int(port)), handler, backlog=4096)
    server.max_cons = 20000
    server.max_cons_per_ip = 0
    server.serve_forever()


if __name__ == "__main__":
    main()
