#include "tree.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct process {
    pid_t pid, parent;
    long children_user, children_system; // ticks of the children it has waited for
};

static FILE *open_proc(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return fopen(path, "r");
}

static bool read_process(pid_t pid, struct process *p) {
    char text[1024];
    FILE *file = open_proc(pid, "stat");
    if (!file) return false;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    p->pid = pid;
    const char *after_name = strrchr(text, ')'); // the name may hold spaces and parentheses
    return after_name && sscanf(after_name, ") %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %ld %ld", &p->parent,
                                &p->children_user, &p->children_system) == 3;
}

static bool holds(const struct tree *tree, pid_t pid) {
    for (size_t i = 0; i < tree->count; i++) {
        if (tree->pids[i] == pid) return true;
    }
    return false;
}

static void add(struct tree *tree, pid_t pid) {
    tree->pids = realloc(tree->pids, (tree->count + 1) * sizeof *tree->pids);
    if (!tree->pids) abort();
    tree->pids[tree->count++] = pid;
}

// One pass over /proc, which lists pids in rising order: parents nearly always come before their children.
static bool add_children(struct tree *tree) {
    size_t before = tree->count;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        struct process process;
        if (!isdigit((unsigned char)entry->d_name[0]) || !read_process(atoi(entry->d_name), &process)) continue;
        if (holds(tree, process.parent) && !holds(tree, process.pid)) add(tree, process.pid);
    }
    if (proc) closedir(proc);
    return tree->count > before;
}

struct tree tree_find(pid_t root) {
    struct tree tree = {0};
    add(&tree, root);
    while (add_children(&tree)) {}
    return tree;
}

void tree_free(struct tree *tree) {
    free(tree->pids);
    *tree = (struct tree){0};
}

// The process's own clock counts nanoseconds. /proc/PID/stat counts ticks: a hundred processes that each
// worked for less than one would seem to have done nothing.
static double own_cpu_us(pid_t pid) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
    return used.tv_sec * 1e6 + used.tv_nsec / 1e3;
}

double tree_cpu_us(const struct tree *tree) {
    double total_us = 0, tick_us = 1e6 / sysconf(_SC_CLK_TCK);
    for (size_t i = 0; i < tree->count; i++) {
        struct process p;
        if (!read_process(tree->pids[i], &p)) continue;
        total_us += own_cpu_us(p.pid) + (p.children_user + p.children_system) * tick_us;
    }
    return total_us;
}

static double pss_kib(pid_t pid) {
    char line[256];
    double kib = 0;
    FILE *file = open_proc(pid, "smaps_rollup");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Pss: %lf", &kib) == 1) break;
    }
    if (file) fclose(file);
    return kib;
}

double tree_pss_kib(const struct tree *tree) {
    double kib = 0;
    for (size_t i = 0; i < tree->count; i++) kib += pss_kib(tree->pids[i]);
    return kib;
}
