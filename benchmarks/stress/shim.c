/* Faults at the n-th write below a folder: a preloaded library between a process and its C library.
 *
 * Calls that change files below $FAULT_FOLDER are counted: opening for writing, write, pwrite, fsync, fdatasync, rename,
 * link, mkdir, ftruncate. `fault_arm(n, kind)` makes the n-th of them from now on
 *
 *     'e'  fail with EIO;
 *     's'  and all later ones fail with ENOSPC, as on a full disk, where renaming still works;
 *     'k'  end the process, a write after half of its bytes.
 *
 * `fault_count()` says how many there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long counted;
static atomic_long fatal;
static atomic_char kind;

void fault_arm(long n, char what) { counted = 0; kind = what; fatal = n; }
long fault_count(void) { return counted; }

static int below(const char *path) {
    const char *folder = getenv("FAULT_FOLDER");
    char full[PATH_MAX * 2];
    if (!folder || !path || !fatal) return 0;
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        snprintf(full, sizeof full, "%s/%s", here, path);
        path = full;
    }
    return strncmp(path, folder, strlen(folder)) == 0;
}

static int below_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!fatal) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

/* 0: go on; 1: errno is set, fail. A call that takes no room does not fail on a full disk. */
static int strikes(int takes_room) {
    long n = ++counted;
    if (n == fatal && kind == 'k') return 2;
    if (n == fatal && kind == 'e') { errno = EIO; return 1; }
    if (n >= fatal && kind == 's' && takes_room) { errno = ENOSPC; return 1; }
    return 0;
}

static void end(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name)) dlsym(RTLD_NEXT, #name)

#define STRUCK(affected, takes_room) \
    if (affected) switch (strikes(takes_room)) { case 1: return -1; case 2: end(); }

ssize_t write(int fd, const void *data, size_t n) {
    REAL(write);
    if (below_fd(fd)) switch (strikes(1)) {
        case 1: return -1;
        case 2: real(fd, data, n / 2); end();
    }
    return real(fd, data, n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { REAL(pwrite); STRUCK(below_fd(fd), 1) return real(fd, data, n, at); }
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) { REAL(pwrite64); STRUCK(below_fd(fd), 1) return real(fd, data, n, at); }
int fdatasync(int fd) { REAL(fdatasync); STRUCK(below_fd(fd), 1) return real(fd); }
int fsync(int fd) { REAL(fsync); STRUCK(below_fd(fd), 1) return real(fd); }
int ftruncate(int fd, off_t n) { REAL(ftruncate); STRUCK(below_fd(fd), 1) return real(fd, n); }
int rename(const char *from, const char *to) { REAL(rename); STRUCK(below(to), 0) return real(from, to); }
int link(const char *from, const char *to) { REAL(link); STRUCK(below(to), 1) return real(from, to); }
int linkat(int at, const char *from, int into, const char *to, int flags) { REAL(linkat); STRUCK(below(to), 1) return real(at, from, into, to, flags); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); STRUCK(below(path), 1) return real(path, mode); }

#define CREATES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT))
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags) REAL(open); STRUCK(CREATES(flags) && below(path), 1) return real(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) REAL(open64); STRUCK(CREATES(flags) && below(path), 1) return real(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) REAL(openat); STRUCK(CREATES(flags) && below(path), 1) return real(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) REAL(openat64); STRUCK(CREATES(flags) && below(path), 1) return real(at, path, flags, mode); }
