// What the command line asks for. Set once, before any thread starts.
#pragma once
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum op { OP_RETR, OP_STOR, OP_LIST, OP_NLST, OP_MLSD, OP_NOOP, OP_LOGIN, OP_IDLE, OP_FIRST_BYTE, OP_COUNT };
enum mode { MODE_PASV, MODE_EPSV, MODE_PORT, MODE_COUNT };

struct options {
    enum op op;
    enum op listing; // what OP_FIRST_BYTE asks for
    enum mode mode;
    struct sockaddr_in server;
    const char *user, *password;
    const char *file;  // "%d" in it becomes the user's number
    bool fresh_names;  // a new name for each upload
    uint64_t size;     // of an upload; what a download must have, 0 for any
    int users, threads;
    double seconds, warmup, patience;
    uint64_t ops;      // at most this many in the measured phase; 0 for no limit
    pid_t server_pid;  // 0: do not measure the server
    bool noop_probe;
};

extern struct options options;
extern const char *const op_names[OP_COUNT], *const mode_names[MODE_COUNT];

void options_parse(int argc, char **argv);
