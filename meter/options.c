#include "options.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const op_names[OP_COUNT] = {"retr", "stor", "list", "nlst", "mlsd", "noop", "login", "idle", "first-byte"};
const char *const mode_names[MODE_COUNT] = {"pasv", "epsv", "port"};

struct options options = {
    .op = OP_RETR, .listing = OP_LIST, .user = "bench", .password = "bench", .file = "",
    .users = 1, .threads = 1, .seconds = 2, .warmup = 0.3, .patience = 60,
    .server = {.sin_family = AF_INET},
};

static const char usage[] =
    "usage: meter --port PORT --op retr|stor|list|nlst|mlsd|noop|login|idle|first-byte [options]\n"
    "  --host ADDRESS       the server's IPv4 address [127.0.0.1]\n"
    "  --user, --pass       the account [bench, bench]\n"
    "  --mode MODE          pasv, epsv or port [pasv]\n"
    "  --file PATTERN       the path to transfer or list; %d in it becomes the user's number\n"
    "  --size BYTES         of an upload; for a download, the size to insist on\n"
    "  --names same|fresh   upload to one name a user, or to a new name each time [same]\n"
    "  --list list|nlst|mlsd  what --op first-byte asks for [list]\n"
    "  --users N            sessions at once [1]\n"
    "  --threads N          of this client [1]\n"
    "  --seconds S          how long to start new operations [2]\n"
    "  --ops N              start no more than N operations (split among the threads)\n"
    "  --warmup S           load before that, not counted [0.3]\n"
    "  --patience S         how long to wait for stragglers after that [60]\n"
    "  --server-pid PID     measure the CPU and memory of this process and its descendants\n"
    "  --noop-probe         one more session times NOOP, once a millisecond, during the load\n";

static void refuse(const char *what, const char *value) {
    fprintf(stderr, "meter: %s: '%s' is not possible\n%s", what, value, usage);
    exit(2);
}

static int index_of(const char *what, const char *value, const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        if (!strcmp(names[i], value)) return i;
    }
    refuse(what, value);
    return -1;
}

static double number(const char *what, const char *value) {
    char *end;
    double parsed = strtod(value, &end);
    if (*end || end == value || parsed < 0) refuse(what, value);
    return parsed;
}

enum flag { HOST, PORT, USER, PASS, OP, MODE, FILE_NAME, SIZE, NAMES, LIST, USERS, THREADS, SECONDS, OPS, WARMUP,
            PATIENCE, SERVER_PID, NOOP_PROBE, HELP };

static const struct option flags[] = {
    {"host", 1, 0, HOST}, {"port", 1, 0, PORT}, {"user", 1, 0, USER}, {"pass", 1, 0, PASS},
    {"op", 1, 0, OP}, {"mode", 1, 0, MODE}, {"file", 1, 0, FILE_NAME}, {"size", 1, 0, SIZE},
    {"names", 1, 0, NAMES}, {"list", 1, 0, LIST}, {"users", 1, 0, USERS}, {"threads", 1, 0, THREADS},
    {"seconds", 1, 0, SECONDS}, {"ops", 1, 0, OPS}, {"warmup", 1, 0, WARMUP}, {"patience", 1, 0, PATIENCE},
    {"server-pid", 1, 0, SERVER_PID}, {"noop-probe", 0, 0, NOOP_PROBE}, {"help", 0, 0, HELP}, {0},
};

static void set(int flag, const char *name, const char *value) {
    static const char *const names[] = {"same", "fresh"};
    switch (flag) {
    case HOST: if (!inet_aton(value, &options.server.sin_addr)) refuse(name, value); break;
    case PORT: options.server.sin_port = htons(number(name, value)); break;
    case USER: options.user = value; break;
    case PASS: options.password = value; break;
    case OP: options.op = index_of(name, value, op_names, OP_COUNT); break;
    case MODE: options.mode = index_of(name, value, mode_names, MODE_COUNT); break;
    case FILE_NAME: options.file = value; break;
    case SIZE: options.size = number(name, value); break;
    case NAMES: options.fresh_names = index_of(name, value, names, 2); break;
    case LIST: options.listing = index_of(name, value, op_names, OP_COUNT); break;
    case USERS: options.users = number(name, value); break;
    case THREADS: options.threads = number(name, value); break;
    case SECONDS: options.seconds = number(name, value); break;
    case OPS: options.ops = number(name, value); break;
    case WARMUP: options.warmup = number(name, value); break;
    case PATIENCE: options.patience = number(name, value); break;
    case SERVER_PID: options.server_pid = number(name, value); break;
    case NOOP_PROBE: options.noop_probe = true; break;
    case HELP: fputs(usage, stdout); exit(0);
    default: fputs(usage, stderr); exit(2);
    }
}

void options_parse(int argc, char **argv) {
    options.server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int flag, index = 0;
    while ((flag = getopt_long(argc, argv, "", flags, &index)) != -1) set(flag, flags[index].name, optarg);
    if (optind < argc) refuse("argument", argv[optind]);
    if (!options.server.sin_port) refuse("--port", "");
    if (options.threads < 1 || options.users < options.threads) refuse("--users", "fewer than --threads");
    if (options.op == OP_FIRST_BYTE) options.users = options.threads = 1, options.warmup = options.seconds = 0;
}
