// The load: a worker is a thread with an epoll set and its share of the users; a user is one FTP session in
// a closed loop, which starts its next operation when the last one has ended.
#pragma once
#include "histogram.h"
#include "options.h"

struct tally {
    struct histogram latency;    // of whole operations; for a login, up to the 230
    struct histogram first_byte; // from the transfer command to the first byte of data
    uint64_t bytes;
    uint64_t ended_ns;           // when the last operation ended
    uint64_t errors;
    char first_error[200];
};

struct worker {
    int epoll;
    struct user *users;
    int user_count;
    int busy;              // users in the middle of something
    uint64_t deadline_ns;  // no operation starts after this
    uint64_t ops_left;
    struct tally tally;
};

uint64_t now_ns(void);

// Makes what the uploads send. Call it once, before the first worker.
void load_prepare(void);

void worker_open(struct worker *worker, int first_user, int user_count);

// Logs all users in, a few at a time. Those that fail stay out, and count as errors.
void worker_login(struct worker *worker);

// Runs operations for `seconds`, at least one a user, and waits until all have ended.
void worker_run(struct worker *worker, double seconds, uint64_t ops);

void worker_quit(struct worker *worker);
