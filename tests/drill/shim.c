/* Loaded into every process of the drill (LD_PRELOAD): counts what the process does to files of one folder, and strikes
 * at the operation that the drill chose. It sees what Python cannot: the journal of SQLite, each write, each fsync.
 *
 *   drill_arm(folder, log, at, fault, jump)
 *
 * folder: operations on other files do not count. log: gets a line for each operation, "file" or, if it changes nothing
 * that another process can see, such as fsync, "idle". at: the number of the operation
 * to strike at; 0 never. fault: -1 kills the process before the operation; an errno fails this and all later operations
 * that a full or read-only disk would fail, while the file "fault" is in the folder; 0 lets them pass. jump: seconds by
 * which the clock is wrong from that operation on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char folder[PATH_MAX];
static size_t length;
static int log_file = -1, fault;
static long at, count, jump;

void drill_arm(const char *of, const char *log, long number, int kind, long seconds) {
    length = 0;
    log_file = open(log, O_WRONLY | O_APPEND | O_CLOEXEC);
    snprintf(folder, sizeof folder, "%s", of);
    at = number, fault = kind, jump = seconds, count = 0;
    length = strlen(folder);
}

static int inside(const char *path) {
    return length && path && (path[0] != '/' || (!strncmp(path, folder, length) && path[length] == '/'));
}

/* The size of a file, -1 if there is none. */
static off_t size_of(int dir, const char *path) {
    struct stat about;
    return fstatat(dir, path, &about, AT_SYMLINK_NOFOLLOW) ? -1 : about.st_size;
}

/* Counts one operation; the errno that it must fail with, or 0. `frees`: it needs no space, so a full disk lets it. */
static int strike(const char *what, const char *path, int changes, int frees) {
    if (!inside(path)) return 0;
    long number = __sync_add_and_fetch(&count, 1);
    path += path[0] == '/' ? length + 1 : 0;
    dprintf(log_file, "%s %ld %s %s\n", changes ? "file" : "idle", number, what, path);
    if (!at || number < at) return 0;
    if (fault == -1) kill(getpid(), SIGKILL), pause();
    if (fault <= 0 || (frees && fault == ENOSPC)) return 0;
    char flag[PATH_MAX + 8];
    snprintf(flag, sizeof flag, "%s/fault", folder);
    return access(flag, F_OK) ? 0 : fault;
}

static int strike_fd(const char *what, int fd, int changes) {
    if (!length || fd == log_file) return 0;
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0 || path[0] != '/') return 0;
    path[size] = 0;
    return strike(what, path, changes, 0);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(call) do { int error_ = (call); if (error_) { errno = error_; return -1; } } while (0)
#define MODE mode_t mode = 0; va_list rest; va_start(rest, flags); \
    if (flags & (O_CREAT | O_TMPFILE)) { mode = va_arg(rest, mode_t); } va_end(rest)
#define WRITES (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))

static int strike_open(int dir, const char *path, int flags) {
    if (!WRITES || !inside(path)) return 0;
    off_t size = size_of(dir, path);
    return strike("open", path, size < 0 ? flags & O_CREAT : size > 0 && flags & O_TRUNC, 0);
}
static int strike_rename(const char *from, const char *to) {
    char both[2 * PATH_MAX + 8];
    snprintf(both, sizeof both, "%s <- %s", to, inside(from) && from[0] == '/' ? from + length + 1 : from);
    return strike("rename", both, 1, 0);
}
static int strike_unlink(int dir, const char *path) { return strike("unlink", path, size_of(dir, path) >= 0, 1); }
static int strike_truncate(int fd, off_t size) {
    struct stat about;
    return strike_fd("truncate", fd, fstat(fd, &about) || about.st_size != size);
}

int open(const char *path, int flags, ...) {
    MODE; FAIL(strike_open(AT_FDCWD, path, flags)); return REAL(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) {
    MODE; FAIL(strike_open(AT_FDCWD, path, flags)); return REAL(open64)(path, flags, mode); }
int openat(int dir, const char *path, int flags, ...) {
    MODE; FAIL(strike_open(dir, path, flags)); return REAL(openat)(dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) {
    MODE; FAIL(strike_open(dir, path, flags)); return REAL(openat64)(dir, path, flags, mode); }
ssize_t write(int fd, const void *data, size_t size) {
    FAIL(strike_fd("write", fd, 1)); return REAL(write)(fd, data, size); }
ssize_t writev(int fd, const struct iovec *data, int parts) {
    FAIL(strike_fd("write", fd, 1)); return REAL(writev)(fd, data, parts); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t where) {
    FAIL(strike_fd("write", fd, 1)); return REAL(pwrite)(fd, data, size, where); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
    FAIL(strike_fd("write", fd, 1)); return REAL(pwrite64)(fd, data, size, where); }
int fsync(int fd) { FAIL(strike_fd("fsync", fd, 0)); return REAL(fsync)(fd); }
int fdatasync(int fd) { FAIL(strike_fd("fsync", fd, 0)); return REAL(fdatasync)(fd); }
int ftruncate(int fd, off_t size) { FAIL(strike_truncate(fd, size)); return REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { FAIL(strike_truncate(fd, size)); return REAL(ftruncate64)(fd, size); }
int rename(const char *from, const char *to) { FAIL(strike_rename(from, to)); return REAL(rename)(from, to); }
int renameat(int a, const char *from, int b, const char *to) {
    FAIL(strike_rename(from, to)); return REAL(renameat)(a, from, b, to); }
int unlink(const char *path) { FAIL(strike_unlink(AT_FDCWD, path)); return REAL(unlink)(path); }
int unlinkat(int dir, const char *path, int flags) {
    FAIL(strike_unlink(dir, path)); return REAL(unlinkat)(dir, path, flags); }
int rmdir(const char *path) { FAIL(strike("rmdir", path, 1, 1)); return REAL(rmdir)(path); }
int mkdir(const char *path, mode_t mode) {
    FAIL(strike("mkdir", path, size_of(AT_FDCWD, path) < 0, 0)); return REAL(mkdir)(path, mode); }

static long shift(void) { return at && count >= at ? jump : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
    int found = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += shift();
    return found;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int found = REAL(gettimeofday)(now, zone);
    now->tv_sec += shift();
    return found;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
