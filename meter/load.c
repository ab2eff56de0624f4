#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, LINE = 2048, LOGINS_AT_ONCE = 32, DISCARD = 16 << 20, UPLOAD_BLOCK = 1 << 20 };
// PORT listens on explicit ports, in turn, below Linux's ephemeral range: bind(0) becomes slow once
// TIME_WAIT sockets fill that, and a server that connects from one fixed port cannot meet a port again soon.
enum { ACTIVE_FIRST = 10000, ACTIVE_COUNT = 20000 };

enum state {
    CLOSED,
    GREETING,  // connected, waits for 220
    NAMING,    // has sent USER
    PROVING,   // has sent PASS
    TYPING,    // has sent TYPE I
    READY,
    ARRANGING, // has sent PASV, EPSV or PORT
    MOVING,    // has sent the transfer command
    PINGING,   // has sent NOOP
    LEAVING,   // has sent QUIT
};

struct source {
    enum { CONTROL, DATA, LISTENER } kind;
    int fd; // -1 when closed
    struct user *user;
};

struct user {
    struct worker *worker;
    int number;
    enum state state;
    struct source control, data, listener;
    bool started; // the 150 has come
    bool replied; // the 226 has come
    bool ended;   // the data connection has ended
    uint64_t moved, uploads;
    uint64_t begun_ns, commanded_ns;
    size_t filled;
    char line[LINE];
};

static char discard[DISCARD]; // never written: MSG_TRUNC drops the bytes in the kernel
static int upload_file;

static void begin(struct user *u);

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void close_source(struct source *source) {
    if (source->fd >= 0) close(source->fd);
    source->fd = -1;
}

static void watch(struct source *source, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = source};
    epoll_ctl(source->user->worker->epoll, EPOLL_CTL_ADD, source->fd, &event);
}

// The user is between operations; the next one begins if there is time.
static void end(struct user *u) {
    struct worker *w = u->worker;
    w->busy--;
    close_source(&u->data);
    close_source(&u->listener);
    bool able = options.op == OP_LOGIN ? u->state == CLOSED : u->state == READY;
    if (able && w->ops_left && now_ns() < w->deadline_ns) begin(u);
}

__attribute__((format(printf, 3, 4)))
static void fail(struct user *u, enum state next, const char *format, ...) {
    struct tally *tally = &u->worker->tally;
    if (tally->errors++ == 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(tally->first_error, sizeof tally->first_error, format, arguments);
        va_end(arguments);
    }
    if (u->state == READY) u->worker->busy++; // it held still: count this as an operation that failed
    u->state = next;
    if (next == CLOSED) close_source(&u->control);
    end(u);
}

static void record(struct user *u) {
    struct tally *tally = &u->worker->tally;
    tally->ended_ns = now_ns();
    tally->bytes += u->moved;
    histogram_record(&tally->latency, tally->ended_ns - u->begun_ns);
}

__attribute__((format(printf, 3, 4)))
static void command(struct user *u, enum state next, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    u->state = next;
    send(u->control.fd, text, length, MSG_NOSIGNAL); // a lost connection shows at the next read
}

static int new_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) perror("meter: socket"), exit(1);
    return fd;
}

static void connect_control(struct user *u) {
    int on = 1;
    u->control.fd = new_socket();
    u->filled = 0;
    u->state = GREETING;
    setsockopt(u->control.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connect(u->control.fd, (struct sockaddr *)&options.server, sizeof options.server);
    watch(&u->control, EPOLLIN);
}

// Replaces the first %d of the pattern; a fresh upload also gets its serial number.
static void write_path(struct user *u, char *path, size_t capacity) {
    const char *hole = strstr(options.file, "%d");
    int length = hole ? snprintf(path, capacity, "%.*s%d%s", (int)(hole - options.file), options.file, u->number, hole + 2)
                      : snprintf(path, capacity, "%s", options.file);
    if (options.fresh_names && length >= 0 && (size_t)length < capacity) {
        snprintf(path + length, capacity - length, "-%llu", (unsigned long long)u->uploads++);
    }
}

static enum op transfer_op(void) { return options.op == OP_FIRST_BYTE ? options.listing : options.op; }

static void command_transfer(struct user *u) {
    static const char *const verbs[] = {"RETR", "STOR", "LIST", "NLST", "MLSD"};
    char path[300];
    write_path(u, path, sizeof path);
    u->commanded_ns = now_ns();
    command(u, MOVING, "%s%s%s\r\n", verbs[transfer_op()], *path ? " " : "", path);
}

static void open_passive(struct user *u, int port) {
    struct sockaddr_in address = options.server;
    address.sin_port = htons(port);
    u->data.fd = new_socket();
    connect(u->data.fd, (struct sockaddr *)&address, sizeof address); // its failure shows in the transfer
    if (transfer_op() != OP_STOR) watch(&u->data, EPOLLIN | EPOLLRDHUP);
}

static void listen_active(struct user *u) {
    static atomic_uint drawn;
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    u->listener.fd = new_socket();
    setsockopt(u->listener.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    for (int tries = 0; tries < ACTIVE_COUNT; tries++) {
        address.sin_port = htons(ACTIVE_FIRST + atomic_fetch_add(&drawn, 1) % ACTIVE_COUNT);
        if (bind(u->listener.fd, (struct sockaddr *)&address, sizeof address) == 0) break;
    }
    listen(u->listener.fd, 1);
    watch(&u->listener, EPOLLIN);
    int port = ntohs(address.sin_port);
    command(u, ARRANGING, "PORT 127,0,0,1,%d,%d\r\n", port >> 8, port & 255);
}

static void begin(struct user *u) {
    u->worker->busy++;
    u->worker->ops_left--;
    u->started = u->replied = u->ended = false;
    u->moved = 0;
    u->begun_ns = now_ns();
    if (options.op == OP_LOGIN) connect_control(u);
    else if (options.op == OP_NOOP) command(u, PINGING, "NOOP\r\n");
    else if (options.mode == MODE_PASV) command(u, ARRANGING, "PASV\r\n");
    else if (options.mode == MODE_EPSV) command(u, ARRANGING, "EPSV\r\n");
    else listen_active(u);
}

// A transfer is over when the data connection has ended and the server has said 226.
static void check_over(struct user *u) {
    if (!u->replied || !u->ended) return;
    if (options.size && u->moved != options.size) {
        fail(u, READY, "%llu bytes instead of %llu", (unsigned long long)u->moved, (unsigned long long)options.size);
        return;
    }
    record(u);
    u->state = READY;
    end(u);
}

static void receive(struct user *u, uint32_t events) {
    for (;;) {
        ssize_t got = recv(u->data.fd, discard, DISCARD, MSG_TRUNC);
        if (got < 0 && errno == EAGAIN) return;
        if (got < 0) {
            fail(u, CLOSED, "data connection: %s", strerror(errno));
            return;
        }
        if (got > 0 && u->moved == 0) {
            histogram_record(&u->worker->tally.first_byte, now_ns() - u->commanded_ns);
        }
        u->moved += got;
        // With the FIN already here, a short read has taken everything: no second call to learn of the end.
        if (got == 0 || (got < DISCARD && (events & EPOLLRDHUP))) break;
    }
    close_source(&u->data);
    u->ended = true;
    check_over(u);
}

static void upload(struct user *u, bool watched) {
    if (!u->started || u->data.fd < 0 || u->ended) return;
    while (u->moved < options.size) {
        off_t offset = u->moved % UPLOAD_BLOCK;
        uint64_t left = options.size - u->moved, block = UPLOAD_BLOCK - offset;
        ssize_t sent = sendfile(u->data.fd, upload_file, &offset, left < block ? left : block);
        if (sent < 0 && errno == EAGAIN) {
            if (!watched) watch(&u->data, EPOLLOUT);
            return;
        }
        if (sent <= 0) {
            fail(u, CLOSED, "data connection: %s", strerror(errno));
            return;
        }
        u->moved += sent;
    }
    close_source(&u->data);
    u->ended = true;
    check_over(u);
}

static void accept_active(struct user *u) {
    u->data.fd = accept4(u->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (u->data.fd < 0) return;
    close_source(&u->listener);
    if (transfer_op() == OP_STOR) upload(u, false);
    else watch(&u->data, EPOLLIN | EPOLLRDHUP);
}

static void logged_in(struct user *u) {
    if (options.op != OP_LOGIN) {
        command(u, TYPING, "TYPE I\r\n");
        return;
    }
    record(u);
    command(u, LEAVING, "QUIT\r\n");
}

static void on_arranged(struct user *u, int code, const char *line) {
    int a, b, c, d, high, low, port;
    const char *numbers = strpbrk(line + 4, "0123456789"), *bars = strstr(line, "|||");
    if (code == 227 && numbers && sscanf(numbers, "%d,%d,%d,%d,%d,%d", &a, &b, &c, &d, &high, &low) == 6) {
        open_passive(u, high << 8 | low);
    } else if (code == 229 && bars && sscanf(bars, "|||%d|", &port) == 1) {
        open_passive(u, port);
    } else if (code != 200) {
        fail(u, READY, "%s", line);
        return;
    }
    command_transfer(u);
}

static void on_moving(struct user *u, int code, const char *line) {
    if (code / 100 == 1) {
        u->started = true;
        if (transfer_op() == OP_STOR) upload(u, false);
    } else if (code / 100 == 2) {
        u->replied = true;
        check_over(u);
    } else {
        fail(u, READY, "%s", line);
    }
}

static void on_reply(struct user *u, int code, const char *line) {
    switch (u->state) {
    case GREETING:
        if (code == 220) command(u, NAMING, "USER %s\r\n", options.user);
        else fail(u, CLOSED, "%s", line);
        break;
    case NAMING:
        if (code == 331) command(u, PROVING, "PASS %s\r\n", options.password);
        else if (code == 230) logged_in(u);
        else fail(u, CLOSED, "%s", line);
        break;
    case PROVING:
        if (code == 230) logged_in(u);
        else fail(u, CLOSED, "%s", line);
        break;
    case TYPING:
        if (code != 200) {
            fail(u, CLOSED, "%s", line);
            break;
        }
        u->state = READY;
        end(u);
        break;
    case ARRANGING: on_arranged(u, code, line); break;
    case MOVING: on_moving(u, code, line); break;
    case PINGING:
        if (code != 200) {
            fail(u, READY, "%s", line);
            break;
        }
        record(u);
        u->state = READY;
        end(u);
        break;
    case LEAVING: break; // the server closes
    default: fail(u, CLOSED, "unexpected: %s", line);
    }
}

// Hands over each complete line that ends a reply: three digits and a space.
static void on_lines(struct user *u) {
    char line[LINE + 1], *end_of_line;
    while ((end_of_line = memchr(u->line, '\n', u->filled))) {
        size_t length = end_of_line + 1 - u->line, text = strcspn(u->line, "\r\n");
        memcpy(line, u->line, text);
        line[text] = 0;
        memmove(u->line, u->line + length, u->filled -= length);
        if (text >= 4 && line[3] == ' ' && atoi(line) >= 100) on_reply(u, atoi(line), line);
    }
}

static void on_control(struct user *u) {
    ssize_t got = recv(u->control.fd, u->line + u->filled, LINE - u->filled, 0);
    if (got > 0) {
        u->filled += got;
        on_lines(u);
    } else if (got == 0 && u->state == LEAVING) {
        close_source(&u->control);
        u->state = CLOSED;
        end(u);
    } else if (got == 0 || errno != EAGAIN) {
        fail(u, CLOSED, "control connection: %s", got == 0 ? "closed by the server" : strerror(errno));
    }
}

static void on_event(struct source *source, uint32_t events) {
    if (source->fd < 0) return; // closed by an earlier event of the same batch
    if (source->kind == CONTROL) on_control(source->user);
    else if (source->kind == LISTENER) accept_active(source->user);
    else if (transfer_op() == OP_STOR) upload(source->user, true);
    else receive(source->user, events);
}

static void give_up(struct worker *w) {
    w->deadline_ns = 0;
    for (int i = 0; i < w->user_count; i++) {
        struct user *u = &w->users[i];
        if (u->state != CLOSED && u->state != READY) fail(u, CLOSED, "no answer in %g s", options.patience);
    }
}

static void wait_for_events(struct worker *w, uint64_t give_up_ns) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(w->epoll, events, EVENTS, 1000);
    for (int i = 0; i < count; i++) on_event(events[i].data.ptr, events[i].events);
    if (now_ns() > give_up_ns) give_up(w);
}

void load_prepare(void) {
    static char block[UPLOAD_BLOCK];
    for (size_t i = 0; i < sizeof block; i++) block[i] = i * 2654435761u >> 13;
    upload_file = memfd_create("upload", MFD_CLOEXEC);
    if (upload_file < 0 || write(upload_file, block, sizeof block) != sizeof block) perror("meter: memfd"), exit(1);
}

void worker_open(struct worker *w, int first_user, int user_count) {
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->users = calloc(user_count, sizeof *w->users);
    w->user_count = user_count;
    if (w->epoll < 0 || !w->users) perror("meter: worker"), exit(1);
    for (int i = 0; i < user_count; i++) {
        struct user *u = &w->users[i];
        *u = (struct user){.worker = w, .number = first_user + i};
        u->control = (struct source){CONTROL, -1, u};
        u->data = (struct source){DATA, -1, u};
        u->listener = (struct source){LISTENER, -1, u};
    }
}

void worker_login(struct worker *w) {
    uint64_t give_up_ns = now_ns() + options.patience * 1e9;
    for (int next = 0; next < w->user_count || w->busy;) {
        while (next < w->user_count && w->busy < LOGINS_AT_ONCE) {
            w->busy++;
            connect_control(&w->users[next++]);
        }
        wait_for_events(w, give_up_ns);
    }
}

void worker_run(struct worker *w, double seconds, uint64_t ops) {
    w->deadline_ns = now_ns() + seconds * 1e9;
    w->ops_left = ops;
    enum state able = options.op == OP_LOGIN ? CLOSED : READY;
    for (int i = 0; i < w->user_count && w->ops_left; i++) {
        if (w->users[i].state == able) begin(&w->users[i]);
    }
    while (w->busy) wait_for_events(w, w->deadline_ns + options.patience * 1e9);
    w->deadline_ns = 0;
}

void worker_quit(struct worker *w) {
    for (int i = 0; i < w->user_count; i++) {
        if (w->users[i].state != READY) continue;
        w->busy++;
        command(&w->users[i], LEAVING, "QUIT\r\n");
    }
    uint64_t give_up_ns = now_ns() + options.patience * 1e9;
    while (w->busy) wait_for_events(w, give_up_ns);
    close(w->epoll);
    free(w->users);
}
