// A compiled program of CGI that copies a file: what it is asked for is fixed, so that only its start, its pipe and
// its end are measured.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    char buffer[65536];
    struct stat stat;
    int file = open("file", O_RDONLY);
    if (file < 0 || fstat(file, &stat) < 0) {
        return 1;
    }
    int head = snprintf(buffer, sizeof buffer, "Content-Type: text/plain\r\nContent-Length: %lld\r\n\r\n",
                        (long long)stat.st_size);
    ssize_t count = read(file, buffer + head, sizeof buffer - head);
    return count < 0 || write(1, buffer, head + count) != head + count;
}
