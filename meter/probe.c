#include "probe.h"

#include "load.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// Sends a command, or nothing, and waits for the end of the reply; false unless its code begins with `first`.
static bool ask(FILE *control, const char *command, const char *argument, char first) {
    char line[512];
    if (command) dprintf(fileno(control), "%s%s%s\r\n", command, *argument ? " " : "", argument);
    while (fgets(line, sizeof line, control)) {
        if (strlen(line) > 3 && line[3] == ' ') return line[0] == first;
    }
    return false;
}

static FILE *log_in(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    FILE *control = fdopen(fd, "r");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&options.server, sizeof options.server) == 0 && ask(control, NULL, "", '2') &&
        ask(control, "USER", options.user, '3') && ask(control, "PASS", options.password, '2')) {
        return control;
    }
    fclose(control);
    return NULL;
}

void *probe_run(void *argument) {
    struct probe *probe = argument;
    FILE *control = log_in();
    probe->failed = !control;
    while (!probe->failed && !atomic_load(&probe->stop)) {
        uint64_t begun_ns = now_ns();
        probe->failed = !ask(control, "NOOP", "", '2');
        if (!probe->failed) histogram_record(&probe->latency, now_ns() - begun_ns);
        usleep(1000);
    }
    if (!probe->failed) ask(control, "QUIT", "", '2');
    if (control) fclose(control);
    return NULL;
}
