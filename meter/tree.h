// What a server costs the machine: a process and all its descendants, read from /proc.
#pragma once
#include <stddef.h>
#include <sys/types.h>

struct tree {
    pid_t *pids;
    size_t count;
};

// The processes that descend from `root`, itself included, at this moment.
struct tree tree_find(pid_t root);
void tree_free(struct tree *tree);

// CPU time that these used since they started, in microseconds. Children that ended count once their
// parent has waited for them, to a clock tick (10 ms).
double tree_cpu_us(const struct tree *tree);

// Proportional set size, in KiB: shared pages are divided among those that share them.
double tree_pss_kib(const struct tree *tree);
