// Latencies in logarithmic buckets: 64 to each power of two, so a percentile is within 1.6 %.
#pragma once
#include <stdint.h>

enum { HISTOGRAM_BUCKETS = 64 * 32 };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    uint64_t max_ns;
};

void histogram_record(struct histogram *histogram, uint64_t ns);
void histogram_add(struct histogram *sum, const struct histogram *other);

// The value that `share` (0 to 1) of the samples do not exceed, in milliseconds; 0 when there are none.
double histogram_ms(const struct histogram *histogram, double share);
