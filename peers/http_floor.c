// The floor of HTTP: the least that a server can do for a request over a kept connection, to measure real servers against.
//
//   http_floor ROOT PORT
//
// One thread a processor, each with a listener of its own (SO_REUSEPORT) and epoll: one recv and one send a request. A file
// is read when it is first asked for, and its answer, head and all, is kept as bytes and never looked at again. It
// trusts its clients: a request arrives whole, as one GET of at most 4 KiB; any path, loopback only.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REQUEST = 4096, EVENTS = 256, BACKLOG = 4096, MOST_FILES = 64 };

struct answer {
    char path[256];
    char *bytes;
    size_t length;
};

static int port;

static void die(const char *what) {
    perror(what);
    exit(1);
}

// Fills in the answer to a path; false where no file can be read.
static bool read_answer(struct answer *answer, const char *path) {
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) < 0 || !S_ISREG(status.st_mode)) return false;
    size_t named = strlen(path) + 1;
    if (named > sizeof answer->path) return false;
    answer->bytes = malloc(256 + status.st_size);
    int head = sprintf(answer->bytes,
        "HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: application/octet-stream\r\nContent-Length: %lld\r\n\r\n",
        (long long)status.st_size);
    if (read(file, answer->bytes + head, status.st_size) != status.st_size) return false;
    answer->length = head + status.st_size;
    memcpy(answer->path, path, named);
    close(file);
    return true;
}

static struct answer *answer_to(struct answer *answers, const char *path) {
    for (int i = 0; i < MOST_FILES; i++) {
        if (!answers[i].bytes) return read_answer(&answers[i], path) ? &answers[i] : NULL;
        if (!strcmp(answers[i].path, path)) return &answers[i];
    }
    return NULL;
}

// Answers the request that has arrived; false where the connection is to be closed.
static bool serve(struct answer *answers, int client) {
    char request[REQUEST + 1];
    ssize_t got = recv(client, request, REQUEST, 0);
    if (got <= 5) return false;
    request[got] = 0;
    char *path = request + 5, *end = strchr(path, ' ');
    if (!end) return false;
    *end = 0;
    struct answer *answer = answer_to(answers, path);
    if (!answer) return false;
    bool whole = send(client, answer->bytes, answer->length, MSG_NOSIGNAL) == (ssize_t)answer->length;
    return whole && !strcasestr(end + 1, "connection: close");
}

static int listen_on(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0) die("bind");
    return fd;
}

static void *work(void *unused) {
    static __thread struct answer answers[MOST_FILES];
    int listener = listen_on(), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd != listener) {
                if (!serve(answers, fd)) close(fd);
                continue;
            }
            int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (client < 0) continue;
            event.data.fd = client;
            epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event);
        }
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 3 || chdir(argv[1]) < 0) {
        fprintf(stderr, "usage: http_floor ROOT PORT\n");
        return 2;
    }
    port = atoi(argv[2]);
    for (long left = sysconf(_SC_NPROCESSORS_ONLN) - 1; left > 0; left--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0) die("pthread_create");
    }
    work(NULL);
}
