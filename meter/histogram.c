#include "histogram.h"

// Buckets count in units of 256 ns: finer than anything measured here, and 32 powers of two reach hours.
static const int UNIT_BITS = 8, STEP_BITS = 6;

static unsigned bucket_of(uint64_t ns) {
    uint64_t units = ns >> UNIT_BITS;
    if (units < 1u << STEP_BITS) return units;
    int shift = 63 - __builtin_clzll(units) - STEP_BITS;
    unsigned bucket = ((shift + 1) << STEP_BITS) + ((units >> shift) & ((1 << STEP_BITS) - 1));
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static double middle_of(unsigned bucket) {
    unsigned step = bucket & ((1 << STEP_BITS) - 1);
    int shift = (int)(bucket >> STEP_BITS) - 1;
    if (shift < 0) return (step + 0.5) * (1 << UNIT_BITS);
    return (((uint64_t)(1 << STEP_BITS) + step + 0.5) * (1ull << shift)) * (1 << UNIT_BITS);
}

void histogram_record(struct histogram *histogram, uint64_t ns) {
    histogram->counts[bucket_of(ns)]++;
    histogram->total++;
    if (ns > histogram->max_ns) histogram->max_ns = ns;
}

void histogram_add(struct histogram *sum, const struct histogram *other) {
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) sum->counts[i] += other->counts[i];
    sum->total += other->total;
    if (other->max_ns > sum->max_ns) sum->max_ns = other->max_ns;
}

double histogram_ms(const struct histogram *histogram, double share) {
    if (share >= 1) return histogram->max_ns / 1e6;
    uint64_t wanted = share * histogram->total, seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen > wanted) {
            double ns = middle_of(i);
            return (ns < histogram->max_ns ? ns : histogram->max_ns) / 1e6;
        }
    }
    return 0;
}
