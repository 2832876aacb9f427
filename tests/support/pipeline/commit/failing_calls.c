/* Counts a process's file system calls below some folders, and fails chosen ones. Preloaded; see assets_failing_calls.py.

   The calls of Python and of Arrow are the same to it: it stands between them and libc.
   What a call is about is the path that it names, or that its descriptor has in /proc.
   Requests for much memory count too: a small one that is refused is seldom survived, by libraries least of all. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FOLDERS 4
#define LOG_BYTES (1 << 22)
#define MUCH_MEMORY (1 << 16)
#define CREATES (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static char folders[MAX_FOLDERS][PATH_MAX];
static int num_folders;
static int armed; /* 0: nothing is counted */
static const char *fail_kind;
static long fail_at; /* counts down the calls of that kind, to 0 at the one that fails */
static int fail_with, fail_after;
static const char *fail_on; /* kinds that go on to fail after the first, each with blanks around it; NULL: none */
static char log_text[LOG_BYTES];
static size_t log_used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Begins to count. `below`: folders, one a line. The `at`-th call of `kind` fails with `error`; with `after`, once it is
   done. Then all those of the kinds `on` fail; from the first call where `at` is 0. */
void calls_begin(const char *below, const char *kind, long at, int error, int after, const char *on) {
    num_folders = 0;
    while (*below && num_folders < MAX_FOLDERS) {
        size_t length = strcspn(below, "\n");
        memcpy(folders[num_folders], below, length);
        folders[num_folders++][length] = 0;
        below += length + (below[length] == '\n');
    }
    fail_kind = kind, fail_at = at, fail_with = error, fail_after = after, fail_on = on, log_used = 0, log_text[0] = 0;
    void *here[1];
    backtrace(here, 1); /* it asks for memory at first */
    __atomic_store_n(&armed, 1, __ATOMIC_SEQ_CST);
}

/* Ends it; returns whether a call has failed. */
int calls_end(void) {
    __atomic_store_n(&armed, 0, __ATOMIC_SEQ_CST);
    return fail_kind && fail_at <= 0;
}

/* The counted calls: a kind and a path in each line. */
const char *calls_log(void) { return log_text; }

static int is_below(const char *path) {
    for (int number = 0; number < num_folders; number++) {
        size_t length = strlen(folders[number]);
        if (!strncmp(path, folders[number], length) && (path[length] == '/' || !path[length])) return 1;
    }
    return 0;
}

/* Path of a descriptor, then `name` where it is relative; 0 where there is none. */
static int path_of(int fd, const char *name, char *path) {
    char link[64];
    ssize_t length = 0;
    if (!name || name[0] != '/') {
        if (fd == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
        if (length <= 0) return 0;
    }
    path[length] = 0;
    if (name && *name) snprintf(path + length, PATH_MAX - length, "%s%s", length ? "/" : "", name);
    return 1;
}

/* Counts a call on `what`. 1: it fails; 2: it is done, and fails; 0: it is done. */
static int counted(const char *kind, const char *what) {
    char quoted[32];
    int result = 0;
    snprintf(quoted, sizeof quoted, " %s ", kind);
    pthread_mutex_lock(&lock);
    if (log_used + PATH_MAX + 32 < LOG_BYTES) log_used += sprintf(log_text + log_used, "%s %s\n", kind, what);
    if (fail_kind && fail_at <= 0) result = fail_on && strstr(fail_on, quoted);
    else if (fail_kind && !strcmp(kind, fail_kind) && !--fail_at) result = 1 + fail_after;
    pthread_mutex_unlock(&lock);
    return result;
}

/* The same for a file system call, if it is below the folders. errno stays. */
static int verdict(const char *kind, int fd, const char *name) {
    char path[PATH_MAX];
    int before = errno, result = 0;
    if (!__atomic_load_n(&armed, __ATOMIC_SEQ_CST)) return 0;
    if (path_of(fd, name, path) && is_below(path)) result = counted(kind, path);
    errno = before;
    return result;
}

#define CALL(kind, fd, name, failed, real)                      \
    do {                                                        \
        int judged = verdict(kind, fd, name);                   \
        if (judged == 2) (void)(real);                          \
        if (!judged) return (real);                             \
        errno = fail_with;                                      \
        return failed;                                          \
    } while (0)

static const char *open_kind(int flags) {
    return (flags & CREATES) || (flags & O_ACCMODE) != O_RDONLY ? "create" : "open";
}

#define MODE(flags, mode)                                       \
    mode_t mode = 0;                                            \
    if ((flags) & CREATES) {                                    \
        va_list rest;                                           \
        va_start(rest, flags);                                  \
        mode = va_arg(rest, mode_t);                            \
        va_end(rest);                                           \
    }

int open(const char *name, int flags, ...) {
    MODE(flags, mode)
    CALL(open_kind(flags), AT_FDCWD, name, -1, NEXT(open)(name, flags, mode));
}
int open64(const char *name, int flags, ...) {
    MODE(flags, mode)
    CALL(open_kind(flags), AT_FDCWD, name, -1, NEXT(open64)(name, flags, mode));
}
int openat(int fd, const char *name, int flags, ...) {
    MODE(flags, mode)
    CALL(open_kind(flags), fd, name, -1, NEXT(openat)(fd, name, flags, mode));
}
int openat64(int fd, const char *name, int flags, ...) {
    MODE(flags, mode)
    CALL(open_kind(flags), fd, name, -1, NEXT(openat64)(fd, name, flags, mode));
}
FILE *fopen(const char *name, const char *mode) {
    CALL(mode[0] == 'r' ? "open" : "create", AT_FDCWD, name, NULL, NEXT(fopen)(name, mode));
}
FILE *fopen64(const char *name, const char *mode) {
    CALL(mode[0] == 'r' ? "open" : "create", AT_FDCWD, name, NULL, NEXT(fopen64)(name, mode));
}

ssize_t read(int fd, void *data, size_t size) { CALL("read", fd, NULL, -1, NEXT(read)(fd, data, size)); }
ssize_t pread(int fd, void *data, size_t size, off_t at) {
    CALL("read", fd, NULL, -1, NEXT(pread)(fd, data, size, at));
}
ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    CALL("read", fd, NULL, -1, NEXT(pread64)(fd, data, size, at));
}
ssize_t write(int fd, const void *data, size_t size) { CALL("write", fd, NULL, -1, NEXT(write)(fd, data, size)); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    CALL("write", fd, NULL, -1, NEXT(pwrite)(fd, data, size, at));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    CALL("write", fd, NULL, -1, NEXT(pwrite64)(fd, data, size, at));
}
int ftruncate(int fd, off_t size) { CALL("truncate", fd, NULL, -1, NEXT(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { CALL("truncate", fd, NULL, -1, NEXT(ftruncate64)(fd, size)); }
int fsync(int fd) {
    struct stat status;
    int is_folder = !syscall(SYS_fstat, fd, &status) && S_ISDIR(status.st_mode);
    CALL(is_folder ? "fsync_folder" : "fsync", fd, NULL, -1, NEXT(fsync)(fd));
}
/* Closed it is in any case. A network file system may report here that it could not write, but never of what was read. */
int close(int fd) {
    int before = errno, flags = fcntl(fd, F_GETFL);
    errno = before;
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return NEXT(close)(fd);
    int failed = verdict("close", fd, NULL);
    int result = NEXT(close)(fd);
    if (!failed) return result;
    errno = fail_with;
    return -1;
}
int fdatasync(int fd) { CALL("fsync", fd, NULL, -1, NEXT(fdatasync)(fd)); }
int flock(int fd, int how) { CALL("flock", fd, NULL, -1, NEXT(flock)(fd, how)); }

/* Never by dlsym: the loader and malloc call it first of all. */
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (fd < 0) return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
    CALL("mmap", fd, NULL, MAP_FAILED, (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset));
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    return mmap(at, size, protection, flags, fd, offset);
}

int link(const char *from, const char *to) { CALL("link", AT_FDCWD, to, -1, NEXT(link)(from, to)); }
int linkat(int from_fd, const char *from, int fd, const char *to, int flags) {
    CALL("link", fd, to, -1, NEXT(linkat)(from_fd, from, fd, to, flags));
}
int rename(const char *from, const char *to) { CALL("rename", AT_FDCWD, to, -1, NEXT(rename)(from, to)); }
int renameat(int from_fd, const char *from, int fd, const char *to) {
    CALL("rename", fd, to, -1, NEXT(renameat)(from_fd, from, fd, to));
}
int unlink(const char *name) { CALL("unlink", AT_FDCWD, name, -1, NEXT(unlink)(name)); }
int unlinkat(int fd, const char *name, int flags) {
    CALL(flags & AT_REMOVEDIR ? "rmdir" : "unlink", fd, name, -1, NEXT(unlinkat)(fd, name, flags));
}
int mkdir(const char *name, mode_t mode) { CALL("mkdir", AT_FDCWD, name, -1, NEXT(mkdir)(name, mode)); }
int mkdirat(int fd, const char *name, mode_t mode) { CALL("mkdir", fd, name, -1, NEXT(mkdirat)(fd, name, mode)); }
int rmdir(const char *name) { CALL("rmdir", AT_FDCWD, name, -1, NEXT(rmdir)(name)); }

DIR *opendir(const char *name) { CALL("list", AT_FDCWD, name, NULL, NEXT(opendir)(name)); }
DIR *fdopendir(int fd) { CALL("list", fd, NULL, NULL, NEXT(fdopendir)(fd)); }
/* The names of a small folder come in one call to the kernel, the first. */
struct dirent *readdir(DIR *folder) {
    if (telldir(folder)) return NEXT(readdir)(folder);
    CALL("names", dirfd(folder), NULL, NULL, NEXT(readdir)(folder));
}
struct dirent64 *readdir64(DIR *folder) {
    if (telldir(folder)) return NEXT(readdir64)(folder);
    CALL("names", dirfd(folder), NULL, NULL, NEXT(readdir64)(folder));
}

int stat(const char *name, struct stat *status) { CALL("stat", AT_FDCWD, name, -1, NEXT(stat)(name, status)); }
int stat64(const char *name, struct stat64 *status) { CALL("stat", AT_FDCWD, name, -1, NEXT(stat64)(name, status)); }
int lstat(const char *name, struct stat *status) { CALL("stat", AT_FDCWD, name, -1, NEXT(lstat)(name, status)); }
int lstat64(const char *name, struct stat64 *status) {
    CALL("stat", AT_FDCWD, name, -1, NEXT(lstat64)(name, status));
}
int fstat(int fd, struct stat *status) { CALL("fstat", fd, NULL, -1, NEXT(fstat)(fd, status)); }
int fstat64(int fd, struct stat64 *status) { CALL("fstat", fd, NULL, -1, NEXT(fstat64)(fd, status)); }
int fstatat(int fd, const char *name, struct stat *status, int flags) {
    CALL("stat", fd, name, -1, NEXT(fstatat)(fd, name, status, flags));
}
int fstatat64(int fd, const char *name, struct stat64 *status, int flags) {
    CALL("stat", fd, name, -1, NEXT(fstatat64)(fd, name, status, flags));
}
int access(const char *name, int mode) { CALL("access", AT_FDCWD, name, -1, NEXT(access)(name, mode)); }
ssize_t readlink(const char *name, char *target, size_t size) {
    CALL("readlink", AT_FDCWD, name, -1, NEXT(readlink)(name, target, size));
}

/* Never by dlsym, which itself asks for memory. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *at, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
/* OpenCV does not look whether it was refused an array: its crash is that of a process which is killed. */
static int is_opencv(void) {
    void *callers[24];
    Dl_info library;
    for (int number = backtrace(callers, 24); number--;)
        if (dladdr(callers[number], &library) && library.dli_fname && strstr(library.dli_fname, "/cv2")) return 1;
    return 0;
}
static int is_refused(size_t size) {
    char text[32];
    if (size < MUCH_MEMORY || !__atomic_load_n(&armed, __ATOMIC_SEQ_CST) || is_opencv()) return 0;
    snprintf(text, sizeof text, "%zu bytes", size);
    if (!counted("memory", text)) return 0;
    errno = ENOMEM;
    return 1;
}
void *malloc(size_t size) { return is_refused(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return is_refused(count * size) ? NULL : __libc_calloc(count, size); }
void *realloc(void *at, size_t size) { return is_refused(size) ? NULL : __libc_realloc(at, size); }
void *memalign(size_t alignment, size_t size) { return is_refused(size) ? NULL : __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) {
    return is_refused(size) ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void **at, size_t alignment, size_t size) {
    if (is_refused(size)) return ENOMEM;
    void *memory = __libc_memalign(alignment, size);
    if (!memory) return ENOMEM;
    *at = memory;
    return 0;
}

/* The names that libraries have which were built with an older libc. */
int __xstat(int version, const char *name, struct stat *status);
int __xstat64(int version, const char *name, struct stat64 *status);
int __lxstat(int version, const char *name, struct stat *status);
int __lxstat64(int version, const char *name, struct stat64 *status);
int __fxstat(int version, int fd, struct stat *status);
int __fxstat64(int version, int fd, struct stat64 *status);
int __xstat(int version, const char *name, struct stat *status) {
    CALL("stat", AT_FDCWD, name, -1, NEXT(__xstat)(version, name, status));
}
int __xstat64(int version, const char *name, struct stat64 *status) {
    CALL("stat", AT_FDCWD, name, -1, NEXT(__xstat64)(version, name, status));
}
int __lxstat(int version, const char *name, struct stat *status) {
    CALL("stat", AT_FDCWD, name, -1, NEXT(__lxstat)(version, name, status));
}
int __lxstat64(int version, const char *name, struct stat64 *status) {
    CALL("stat", AT_FDCWD, name, -1, NEXT(__lxstat64)(version, name, status));
}
int __fxstat(int version, int fd, struct stat *status) {
    CALL("fstat", fd, NULL, -1, NEXT(__fxstat)(version, fd, status));
}
int __fxstat64(int version, int fd, struct stat64 *status) {
    CALL("fstat", fd, NULL, -1, NEXT(__fxstat64)(version, fd, status));
}
