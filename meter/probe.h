// The probe: one more session that times NOOP, once a millisecond, while a load runs.
#pragma once
#include "histogram.h"

#include <stdatomic.h>
#include <stdbool.h>

struct probe {
    atomic_bool stop; // set it, then join the thread
    struct histogram latency;
    bool failed;
};

// The thread's body; `probe` is a struct probe.
void *probe_run(void *probe);
