// The meter: puts a closed loop of FTP users on one server and prints what came of it as a line of JSON.
//
// Phases: log in, warm up, measure, leave. Every operation lies within one phase: a phase ends when its last
// operation has, so that the work, the time and the CPU that are divided by one another belong together.

#include "load.h"
#include "probe.h"
#include "tree.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct sample {
    uint64_t at_ns;
    double server_us, client_us; // CPU since the start of each
};

struct growth { // of the server's memory during a listing
    pthread_t thread;
    atomic_bool stop;
    double before_kib, peak_kib;
};

static struct worker *workers;
static pthread_barrier_t barrier;
static struct sample begun, ended;
static double pss_kib; // of the server, while the idle sessions are held
static struct growth growth;
static struct probe probe;

static struct sample take_sample(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    struct sample sample = {
        .client_us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec,
    };
    if (options.server_pid) {
        struct tree server = tree_find(options.server_pid);
        sample.server_us = tree_cpu_us(&server);
        tree_free(&server);
    }
    sample.at_ns = now_ns();
    return sample;
}

static void hold_idle(void) {
    sleep(1);
    struct tree server = tree_find(options.server_pid);
    pss_kib = tree_pss_kib(&server);
    tree_free(&server);
}

static void *watch_growth(void *unused) {
    struct tree server = tree_find(options.server_pid);
    while (!atomic_load(&growth.stop)) {
        double kib = tree_pss_kib(&server);
        if (kib > growth.peak_kib) growth.peak_kib = kib;
        usleep(5000);
    }
    tree_free(&server);
    return unused;
}

// A listing apart from the timed one, which sampling would disturb. It also serves as its warm-up.
static void run_sampled(struct worker *worker) {
    struct tree server = tree_find(options.server_pid);
    growth.before_kib = growth.peak_kib = tree_pss_kib(&server);
    tree_free(&server);
    pthread_create(&growth.thread, NULL, watch_growth, NULL);
    worker_run(worker, 0, 1);
    atomic_store(&growth.stop, true);
    pthread_join(growth.thread, NULL);
}

static void warm_up(struct worker *worker) {
    if (options.op == OP_FIRST_BYTE) run_sampled(worker);
    else if (options.warmup > 0) worker_run(worker, options.warmup, UINT64_MAX);
    worker->tally.latency = worker->tally.first_byte = (struct histogram){0};
    worker->tally.bytes = 0;
}

static void measure(struct worker *worker, bool leads) {
    pthread_t thread;
    if (leads) begun = take_sample();
    if (leads && options.noop_probe) pthread_create(&thread, NULL, probe_run, &probe);
    pthread_barrier_wait(&barrier);
    worker_run(worker, options.seconds, options.ops ? options.ops / options.threads : UINT64_MAX);
    pthread_barrier_wait(&barrier);
    if (leads) ended = take_sample();
    if (leads && options.noop_probe) {
        atomic_store(&probe.stop, true);
        pthread_join(thread, NULL);
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    bool leads = worker == workers;
    if (options.op != OP_LOGIN) worker_login(worker);
    pthread_barrier_wait(&barrier);
    if (options.op == OP_IDLE) {
        if (leads) hold_idle();
        pthread_barrier_wait(&barrier);
    } else {
        warm_up(worker);
        pthread_barrier_wait(&barrier);
        measure(worker, leads);
    }
    worker_quit(worker);
    return NULL;
}

static void run_workers(void) {
    pthread_t threads[options.threads];
    workers = calloc(options.threads, sizeof *workers);
    pthread_barrier_init(&barrier, NULL, options.threads);
    for (int i = 0, first = 0; i < options.threads; i++) {
        int count = options.users / options.threads + (i < options.users % options.threads);
        worker_open(&workers[i], first, count);
        first += count;
    }
    for (int i = 0; i < options.threads; i++) pthread_create(&threads[i], NULL, work, &workers[i]);
    for (int i = 0; i < options.threads; i++) pthread_join(threads[i], NULL);
}

static struct tally add_up(void) {
    struct tally sum = {0};
    for (int i = 0; i < options.threads; i++) {
        const struct tally *one = &workers[i].tally;
        histogram_add(&sum.latency, &one->latency);
        histogram_add(&sum.first_byte, &one->first_byte);
        sum.bytes += one->bytes;
        if (one->ended_ns > sum.ended_ns) sum.ended_ns = one->ended_ns;
        if (one->errors && !sum.errors) strcpy(sum.first_error, one->first_error);
        sum.errors += one->errors;
    }
    return sum;
}

static void print_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static void print_load(const struct tally *sum) {
    double ops = sum->latency.total, divisor = ops ? ops : 1;
    double seconds = sum->ended_ns > begun.at_ns ? (sum->ended_ns - begun.at_ns) / 1e9 : 1e-9;
    printf(", \"seconds\": %.3f, \"ops\": %.0f, \"ops_per_s\": %.1f, \"mb_per_s\": %.2f", seconds, ops, ops / seconds,
           sum->bytes / seconds / 1e6);
    printf(", \"bytes_per_op\": %.0f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f", sum->bytes / divisor,
           histogram_ms(&sum->latency, 0.5), histogram_ms(&sum->latency, 0.99), histogram_ms(&sum->latency, 1));
    printf(", \"first_byte_p50_ms\": %.3f", histogram_ms(&sum->first_byte, 0.5));
    printf(", \"server_us_per_op\": %.1f, \"client_us_per_op\": %.1f", (ended.server_us - begun.server_us) / divisor,
           (ended.client_us - begun.client_us) / divisor);
}

static void print_result(const struct tally *sum) {
    printf("{\"op\": \"%s\", \"mode\": \"%s\", \"users\": %d, \"threads\": %d, \"size\": %llu", op_names[options.op],
           mode_names[options.mode], options.users, options.threads, (unsigned long long)options.size);
    if (options.op == OP_IDLE) printf(", \"pss_kib\": %.0f", pss_kib);
    else print_load(sum);
    if (options.op == OP_FIRST_BYTE) printf(", \"pss_growth_kib\": %.0f", growth.peak_kib - growth.before_kib);
    if (options.noop_probe) {
        printf(", \"noop_probes\": %llu, \"noop_p50_ms\": %.3f, \"noop_p99_ms\": %.3f, \"noop_max_ms\": %.3f",
               (unsigned long long)probe.latency.total, histogram_ms(&probe.latency, 0.5),
               histogram_ms(&probe.latency, 0.99), histogram_ms(&probe.latency, 1));
    }
    printf(", \"errors\": %llu, \"first_error\": ", (unsigned long long)(sum->errors + probe.failed));
    print_text(probe.failed && !sum->errors ? "the NOOP probe failed" : sum->first_error);
    printf("}\n");
}

int main(int argc, char **argv) {
    options_parse(argc, argv);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN); // sendfile has no MSG_NOSIGNAL
    load_prepare();
    run_workers();
    struct tally sum = add_up();
    print_result(&sum);
    return sum.errors || probe.failed ? 1 : 0;
}
