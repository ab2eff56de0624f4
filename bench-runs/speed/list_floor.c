// The least that a listing costs: getdents64, with "stat" also a statx of each entry, and nothing else; with "stat2" a
// second thread makes the statx calls of half of each buffer.
//
//   cc -O2 -pthread -o list_floor list_floor.c; ./list_floor FOLDER [stat|stat2]
//
// Prints the entries, and microseconds of the clock and of the processor for each.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int folder;
static double entries;

struct part {
    char *at, *end;
    bool looks;
};

static void *visit(void *argument) {
    struct part *part = argument;
    long seen = 0;
    while (part->at < part->end) {
        struct dirent64 *entry = (void *)part->at;
        struct statx status;
        if (part->looks) statx(folder, entry->d_name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &status);
        part->at += entry->d_reclen;
        seen++;
    }
    return (void *)seen;
}

int main(int argc, char **argv) {
    static char buffer[64 * 1024];
    folder = argc > 1 ? open(argv[1], O_RDONLY | O_DIRECTORY) : -1;
    if (folder < 0) return fprintf(stderr, "usage: list_floor FOLDER [stat|stat2]\n"), 2;
    bool looks = argc > 2, shares = looks && !strcmp(argv[2], "stat2");
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (ssize_t got; (got = getdents64(folder, buffer, sizeof buffer)) > 0;) {
        char *middle = buffer;
        while (shares && middle < buffer + got / 2) middle += ((struct dirent64 *)(void *)middle)->d_reclen;
        struct part first = {buffer, middle, looks}, second = {middle, buffer + got, looks};
        pthread_t helper;
        void *seen = 0;
        if (shares) pthread_create(&helper, 0, visit, &first);
        entries += (long)visit(&second);
        if (shares) pthread_join(helper, &seen);
        entries += (long)seen;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    double clock = (end.tv_sec - begin.tv_sec) * 1e6 + (end.tv_nsec - begin.tv_nsec) / 1e3;
    double processor = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 + use.ru_utime.tv_usec + use.ru_stime.tv_usec;
    printf("%.0f entries, %.3f us, %.3f us of the processor\n", entries, clock / entries, processor / entries);
}
