// The plant: put this before the first function of peers/floor.c, and call it first thing in RETR; then
// cc -O2 -pthread -DSPIN_NS=1400 -o planted/floor. 1,400 ns and what the clock takes are a twentieth of the 32 us that the
// floor takes for a download of 1 KiB.
#include <time.h>
static void spin(void) {
    struct timespec begun, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < SPIN_NS);
}
