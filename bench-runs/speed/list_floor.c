// The least that a listing costs: getdents64, with "stat" also a statx of each entry, and nothing else.
//
//   cc -O2 -o list_floor list_floor.c; ./list_floor FOLDER [stat]
//
// Prints the entries, and microseconds of the clock and of the processor for each.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char buffer[32 * 1024];
    int folder = argc > 1 ? open(argv[1], O_RDONLY | O_DIRECTORY) : -1;
    if (folder < 0) return fprintf(stderr, "usage: list_floor FOLDER [stat]\n"), 2;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    double entries = 0;
    for (ssize_t got; (got = getdents64(folder, buffer, sizeof buffer)) > 0;) {
        for (ssize_t at = 0; at < got;) {
            struct dirent64 *entry = (void *)(buffer + at);
            struct statx status;
            if (argc > 2) statx(folder, entry->d_name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &status);
            at += entry->d_reclen;
            entries++;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    double clock = (end.tv_sec - begin.tv_sec) * 1e6 + (end.tv_nsec - begin.tv_nsec) / 1e3;
    double processor = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 + use.ru_utime.tv_usec + use.ru_stime.tv_usec;
    printf("%.0f entries, %.3f us, %.3f us of the processor\n", entries, clock / entries, processor / entries);
}
