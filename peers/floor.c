// The floor: the least that a server can do for an FTP client, to measure real servers against.
//
//   floor ROOT PORT [PASSIVE_FIRST-PASSIVE_LAST] [staged|careful]
//
// With "staged" an upload goes into an unnamed file, is flushed, and takes its name in one step, by the calls that
// Millrace makes by default; otherwise the file itself is emptied and written. With "careful" a download makes the further
// calls that Millrace makes, each for a reason: the path is kept beneath the root, the port is looked at for what an earlier
// client left there, both ends of the file must be in the page cache, and a client that has sent something is read before
// the socket is closed, at the end and, after more than 16 KiB, once more later.
//
// One blocking thread a session and, for each command, only the calls that no server can avoid. A session
// binds one passive listener, at an explicit port, and keeps it: bind(0) scans the ephemeral range once
// TIME_WAIT sockets fill it. It trusts its clients: any name and password, any path, loopback only.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINE = 1024, CHUNK = 256 * 1024, STACK = 64 * 1024, BACKLOG = 4096 };

struct session {
    int control;
    int listener;             // -1 until the first PASV or EPSV, then kept
    int passive_port;
    struct sockaddr_in active; // where PORT said to connect; sin_port 0 means passive
    char *chunk;              // for uploads; allocated by the first one
    size_t filled;
    int leaving;              // careful: the socket of the last download, or -1
    char line[LINE];
};

static int passive_first = 30000, passive_last = 31999;
static bool staged, careful;
static atomic_uint staged_drawn;
static atomic_uint passive_drawn;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

// A listening socket, or -1 if the port is taken. Accepted sockets inherit TCP_NODELAY.
static int listen_on(int port, int backlog) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = loopback(port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, backlog) == 0) return fd;
    close(fd);
    return -1;
}

static void reply(struct session *s, const char *format, ...) {
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (send(s->control, text, length, MSG_NOSIGNAL) < 0) shutdown(s->control, SHUT_RDWR);
}

static bool bind_listener(struct session *s) {
    int ports = passive_last - passive_first + 1;
    for (int tries = 0; s->listener < 0 && tries < ports; tries++) {
        s->passive_port = passive_first + atomic_fetch_add(&passive_drawn, 1) % ports;
        s->listener = listen_on(s->passive_port, 4);
    }
    return s->listener >= 0;
}

static void passive(struct session *s, bool extended) {
    s->active.sin_port = 0;
    if (!bind_listener(s)) {
        reply(s, "425 No passive port is free.\r\n");
    } else if (extended) {
        reply(s, "229 Entering extended passive mode (|||%d|).\r\n", s->passive_port);
    } else {
        reply(s, "227 Entering passive mode (127,0,0,1,%d,%d).\r\n", s->passive_port >> 8, s->passive_port & 255);
    }
}

static void port(struct session *s, const char *argument) {
    unsigned a, b, c, d, high, low;
    if (sscanf(argument, "%u,%u,%u,%u,%u,%u", &a, &b, &c, &d, &high, &low) != 6) {
        reply(s, "501 PORT needs six numbers.\r\n");
        return;
    }
    s->active = loopback(high << 8 | low);
    reply(s, "200 PORT is set.\r\n");
}

static int open_data(struct session *s) {
    if (s->active.sin_port == 0) return accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&s->active, sizeof s->active) == 0) return fd;
    close(fd);
    return -1;
}

static bool send_file(int data, int file, off_t size) {
    for (off_t offset = 0; offset < size;) {
        if (sendfile(data, file, &offset, size - offset) <= 0) return false;
    }
    return true;
}

static bool receive_file(struct session *s, int data, int file) {
    if (!s->chunk && !(s->chunk = malloc(CHUNK))) return false;
    ssize_t got;
    while ((got = recv(data, s->chunk, CHUNK, 0)) > 0) {
        if (write(file, s->chunk, got) != got) return false;
    }
    return got == 0;
}

static bool is_cached(int file, off_t size) {
    char byte;
    struct iovec one = {&byte, 1};
    return preadv2(file, &one, 1, 0, RWF_NOWAIT) == 1 && preadv2(file, &one, 1, size - 1, RWF_NOWAIT) == 1;
}

// Ends a download as a careful server does.
static void see_off(struct session *s, int data, off_t size) {
    char junk[256];
    if (s->leaving >= 0) {
        recv(s->leaving, junk, sizeof junk, MSG_DONTWAIT);
        close(s->leaving);
    }
    recv(data, junk, sizeof junk, MSG_DONTWAIT);
    s->leaving = -1;
    if (size <= 16 * 1024) close(data);
    else shutdown(s->leaving = data, SHUT_WR);
}

static int open_for(const char *path, bool upload) {
    struct open_how beneath = {.flags = O_CLOEXEC | O_RDONLY, .resolve = RESOLVE_BENEATH};
    if (!upload && careful) return syscall(SYS_openat2, AT_FDCWD, path + (*path == '/'), &beneath, sizeof beneath);
    if (!upload) return open(path, O_CLOEXEC | O_RDONLY);
    if (!staged) return open(path, O_CLOEXEC | O_WRONLY | O_CREAT | O_TRUNC, 0644);
    return open(".", O_CLOEXEC | O_RDWR | O_TMPFILE, 0644);
}

// Gives a staged upload its name: by a link, or where the name is taken by a link beside it and a rename.
static bool publish(int file, const char *path) {
    char hidden[32];
    if (fdatasync(file) < 0) return false;
    if (linkat(file, "", AT_FDCWD, path, AT_EMPTY_PATH) == 0) return true;
    snprintf(hidden, sizeof hidden, ".floor-%u", atomic_fetch_add(&staged_drawn, 1));
    return linkat(file, "", AT_FDCWD, hidden, AT_EMPTY_PATH) == 0 && rename(hidden, path) == 0;
}

static void transfer(struct session *s, const char *path, bool upload) {
    if (s->listener < 0 && s->active.sin_port == 0) {
        reply(s, "425 Send PASV, EPSV or PORT first.\r\n");
        return;
    }
    int file = open_for(path, upload);
    struct stat status = {0};
    if (file < 0 || (!upload && fstat(file, &status) < 0)) {
        reply(s, "550 The file cannot be opened.\r\n");
        return;
    }
    struct pollfd port = {.fd = s->listener, .events = POLLIN};
    if (careful && !upload) poll(&port, 1, 0), is_cached(file, status.st_size);
    int data = open_data(s);
    if (data >= 0) {
        reply(s, "150 Here it comes.\r\n");
        bool whole = upload ? receive_file(s, data, file) : send_file(data, file, status.st_size);
        if (whole && upload && staged) whole = publish(file, path);
        if (careful && !upload) see_off(s, data, status.st_size);
        else close(data);
        reply(s, whole ? "226 Done.\r\n" : "426 The transfer broke off.\r\n");
    } else {
        reply(s, "425 No data connection.\r\n");
    }
    close(file);
}

static void size(struct session *s, const char *path) {
    struct stat status;
    if (stat(path, &status) < 0) reply(s, "550 No such file.\r\n");
    else reply(s, "213 %lld\r\n", (long long)status.st_size);
}

// False after QUIT.
static bool obey(struct session *s, char *line) {
    char *argument = strchr(line, ' ');
    if (argument) *argument++ = 0;
    else argument = line + strlen(line);

    if (!strcmp(line, "RETR")) transfer(s, argument, false);
    else if (!strcmp(line, "STOR")) transfer(s, argument, true);
    else if (!strcmp(line, "PASV")) passive(s, false);
    else if (!strcmp(line, "EPSV")) passive(s, true);
    else if (!strcmp(line, "PORT")) port(s, argument);
    else if (!strcmp(line, "NOOP")) reply(s, "200 OK.\r\n");
    else if (!strcmp(line, "TYPE")) reply(s, "200 OK.\r\n");
    else if (!strcmp(line, "USER")) reply(s, "331 Any password will do.\r\n");
    else if (!strcmp(line, "PASS")) reply(s, "230 Logged in.\r\n");
    else if (!strcmp(line, "CWD")) reply(s, "250 All paths count from the root.\r\n");
    else if (!strcmp(line, "SIZE")) size(s, argument);
    else if (!strcmp(line, "QUIT")) return reply(s, "221 Goodbye.\r\n"), false;
    else reply(s, "502 Not in the floor.\r\n");
    return true;
}

// The next line without its CRLF, or NULL at the end. Pipelined commands stay in the buffer.
static char *read_line(struct session *s, size_t *consumed) {
    memmove(s->line, s->line + *consumed, s->filled -= *consumed);
    for (;;) {
        char *end = memchr(s->line, '\n', s->filled);
        if (end) {
            *consumed = end + 1 - s->line;
            if (end > s->line && end[-1] == '\r') end--;
            *end = 0;
            return s->line;
        }
        ssize_t got = recv(s->control, s->line + s->filled, LINE - s->filled, 0);
        if (got <= 0) return NULL;
        s->filled += got;
    }
}

static void *serve(void *control) {
    struct session s = {.control = (int)(intptr_t)control, .listener = -1, .leaving = -1};
    size_t consumed = 0;
    char *line;
    reply(&s, "220 The floor.\r\n");
    while ((line = read_line(&s, &consumed)) && obey(&s, line)) {}
    if (s.listener >= 0) close(s.listener);
    if (s.leaving >= 0) close(s.leaving);
    free(s.chunk);
    close(s.control);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3 || chdir(argv[1]) < 0) {
        fprintf(stderr, "usage: floor ROOT PORT [PASSIVE_FIRST-PASSIVE_LAST] [staged|careful]\n");
        return 2;
    }
    staged = argc > 4 && !strcmp(argv[4], "staged");
    careful = argc > 4 && !strcmp(argv[4], "careful");
    if (argc > 3 && sscanf(argv[3], "%d-%d", &passive_first, &passive_last) != 2) die(argv[3]);
    signal(SIGPIPE, SIG_IGN); // sendfile has no MSG_NOSIGNAL

    int listener = listen_on(atoi(argv[2]), BACKLOG);
    if (listener < 0) die("bind");
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    for (;;) {
        int control = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_t thread;
        if (control < 0) continue;
        if (pthread_create(&thread, &small, serve, (void *)(intptr_t)control) != 0) close(control);
    }
}
