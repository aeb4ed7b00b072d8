// Preloaded into the programs of a fault cell (LD_PRELOAD): makes a disk fail, steps the clock, and leads connections
// to Unix sockets through a relay, whenever the driver asks for it while the program runs.
//
// The driver (control.py) makes a folder $TANDEM_FAULTS_CONTROL with a file per process, "trainer-1", whose
// first bytes are a struct Control. The file is mapped: what the driver writes holds at once. A connection to
// a socket "rollout-1.sock" goes to "$TANDEM_FAULTS_CONTROL/trainer-1~rollout-1.sock" where there is one.
//
// What the driver itself starts, a launcher and a reward service, is killed when the driver ends, however it does: its process id is
// $TANDEM_FAULTS_DRIVER.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct Control {
  volatile int64_t clock_ns;     // added to the wall clock
  volatile int32_t disk_errno;   // what writing to files returns; 0: nothing fails
  volatile int32_t unused;
  volatile int64_t disk_failed;  // how many calls have failed
  volatile int64_t clock_reads;  // how often the stepped clock was read
  char disk_path[256];           // writing fails for files with this text in their path
};

static struct Control* control;
static char control_folder[200];
static char process_name[64];  // "trainer-1"

// "/x/bin/tandem-trainer ... --rank 1 ..." is "trainer-1".
static void NameThisProcess(void) {
  char line[16384];
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t size = syscall(SYS_read, fd, line, sizeof(line) - 1);
  close(fd);
  if (size <= 0) return;
  line[size] = '\0';
  const char* slash = strrchr(line, '/');
  const char* program = slash != NULL ? slash + 1 : line;
  if (strncmp(program, "tandem-", 7) != 0) return;
  const char* rank = "0";
  for (const char* word = line; word < line + size; word += strlen(word) + 1) {
    if (strcmp(word, "--rank") == 0 && word + 7 < line + size) rank = word + 7;
  }
  snprintf(process_name, sizeof(process_name), "%s-%s", program + 7, rank);
}

static void EndWithTheDriver(void) {
  const char* driver = getenv("TANDEM_FAULTS_DRIVER");
  if (driver == NULL) return;
  if (strncmp(process_name, "launcher-", 9) != 0 && strncmp(process_name, "letter-rewards-", 15) != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != atoi(driver)) _exit(127);  // it has ended before
}

__attribute__((constructor)) static void MapControl(void) {
  const char* folder = getenv("TANDEM_FAULTS_CONTROL");
  if (folder == NULL || strlen(folder) >= sizeof(control_folder)) return;
  NameThisProcess();
  EndWithTheDriver();
  if (process_name[0] == '\0') return;
  strcpy(control_folder, folder);
  char path[300];
  snprintf(path, sizeof(path), "%s/%s", control_folder, process_name);
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* mapped = mmap(NULL, sizeof(struct Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) control = mapped;
}

// The function that `name` would be without this library.
#define NEXT(name)                                                     \
  static __typeof__(&name) next;                                       \
  if (next == NULL) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

// ---- The disk ----

static int PathFails(const char* path) {
  if (control == NULL || control->disk_errno == 0) return 0;
  if (strstr(path, control->disk_path) == NULL) return 0;
  __atomic_add_fetch(&control->disk_failed, 1, __ATOMIC_RELAXED);
  errno = control->disk_errno;
  return 1;
}

static int FileFails(int fd) {
  if (control == NULL || control->disk_errno == 0) return 0;
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size <= 0) return 0;
  path[size] = '\0';
  return PathFails(path);
}

#define FAILS_BY_FILE(result, name, parameters, arguments) \
  result name parameters {                                 \
    NEXT(name);                                            \
    return FileFails(fd) ? -1 : next arguments;            \
  }
FAILS_BY_FILE(ssize_t, write, (int fd, const void* data, size_t size), (fd, data, size))
FAILS_BY_FILE(ssize_t, pwrite, (int fd, const void* data, size_t size, off_t at), (fd, data, size, at))
FAILS_BY_FILE(ssize_t, pwrite64, (int fd, const void* data, size_t size, off64_t at), (fd, data, size, at))
FAILS_BY_FILE(ssize_t, writev, (int fd, const struct iovec* parts, int count), (fd, parts, count))
FAILS_BY_FILE(int, fsync, (int fd), (fd))
FAILS_BY_FILE(int, fdatasync, (int fd), (fd))
FAILS_BY_FILE(int, ftruncate, (int fd, off_t size), (fd, size))
FAILS_BY_FILE(int, ftruncate64, (int fd, off64_t size), (fd, size))

int rename(const char* from, const char* to) {
  NEXT(rename);
  return PathFails(to) ? -1 : next(from, to);
}
int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  return PathFails(path) ? -1 : next(path, mode);
}

// ---- The wall clock ----

static int64_t Offset(void) {
  if (control == NULL || control->clock_ns == 0) return 0;
  __atomic_add_fetch(&control->clock_reads, 1, __ATOMIC_RELAXED);
  return control->clock_ns;
}
static void Add(struct timespec* time, int64_t ns) {
  const int64_t sum = time->tv_nsec + ns % 1000000000 + 1000000000;
  time->tv_sec += ns / 1000000000 + sum / 1000000000 - 1;
  time->tv_nsec = sum % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  NEXT(clock_gettime);
  const int result = next(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    Add(time, Offset());
  }
  return result;
}
int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

// The kernel does not know the stepped clock. A wait until a time of day is cut into short ones, after each of
// which the clock is looked at again: then a step shortens or lengthens the wait, as the kernel's would.
enum { kSliceNs = 50000000 };
// The next end of such a wait, in the kernel's time; 0 if the whole wait is over.
static int NextSlice(const struct timespec* until, struct timespec* slice) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t left = (until->tv_sec - now.tv_sec) * 1000000000LL + until->tv_nsec - now.tv_nsec;
  if (left <= 0) return 0;
  Add(&now, (left < kSliceNs ? left : kSliceNs) - (control != NULL ? control->clock_ns : 0));
  *slice = now;
  return 1;
}

int pthread_cond_timedwait(pthread_cond_t* restrict condition,
                           pthread_mutex_t* restrict mutex,
                           const struct timespec* restrict until) {
  NEXT(pthread_cond_timedwait);
  // The library cannot see which clock the condition has: one of the monotonic clock waits by pthread_cond_clockwait
  // in libstdc++, and Abseil's by futex.
  struct timespec slice;
  if (control == NULL || control->clock_ns == 0) return next(condition, mutex, until);
  if (!NextSlice(until, &slice)) return ETIMEDOUT;
  const int result = next(condition, mutex, &slice);
  return result == ETIMEDOUT ? 0 : result;  // woken for no reason, which is allowed
}

long syscall(long number, ...) {
  NEXT(syscall);
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  const int waits = number == SYS_futex && ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET);
  if (!waits || !(a[1] & FUTEX_CLOCK_REALTIME) || a[3] == 0 || control == NULL || control->clock_ns == 0) {
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  struct timespec slice;
  if (!NextSlice((const struct timespec*)a[3], &slice)) {
    errno = ETIMEDOUT;
    return -1;
  }
  const long result = next(number, a[0], a[1], a[2], (long)&slice, a[4], a[5]);
  if (result < 0 && errno == ETIMEDOUT) errno = EINTR;
  return result;
}

// ---- Sockets ----

int connect(int fd, const struct sockaddr* address, socklen_t size) {
  NEXT(connect);
  struct sockaddr_un relay = {.sun_family = AF_UNIX};
  const struct sockaddr_un* wanted = (const struct sockaddr_un*)address;
  if (control == NULL || address->sa_family != AF_UNIX || wanted->sun_path[0] == '\0') {
    return next(fd, address, size);
  }
  const char* slash = strrchr(wanted->sun_path, '/');
  const int length = snprintf(relay.sun_path, sizeof(relay.sun_path), "%s/%s~%s", control_folder, process_name,
                              slash != NULL ? slash + 1 : wanted->sun_path);
  if (length >= (int)sizeof(relay.sun_path) || access(relay.sun_path, F_OK) != 0) return next(fd, address, size);
  return next(fd, (const struct sockaddr*)&relay, sizeof(relay));
}
