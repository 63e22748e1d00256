/* Stands between a program and the C library, and spoils what is written below one folder.
 *
 * FAULT_FOLDER names the folder. FAULT_PLAN names a file of six 64-bit numbers that the test
 * shares with the program: it may look at the counts and lift the fault at any time.
 *
 *   0  writes so far (also growing, cutting and reserving a file)
 *   1  syncs so far
 *   2  what to do, an `action`
 *   3  at which write or sync
 *   4  1: from then on, 0: that once
 *   5  how often it was done
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum action { NOTHING, KILL_BEFORE_SYNC, KILL_AFTER_SYNC, KILL_IN_WRITE, FAIL_WRITE, FAIL_SYNC,
              NO_ROOM };
struct plan { uint64_t writes, syncs, action, nth, on, done; };

static struct plan *plan;
static const char *folder;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAULT_PLAN");
  folder = getenv("FAULT_FOLDER");
  if (!path || !folder) return;
  int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (fd < 0) abort();
  plan = mmap(0, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (plan == MAP_FAILED) abort();
  syscall(SYS_close, fd);
}

static int is_ours(int fd) {
  char link[64], path[4096];
  int saved = errno;
  if (!plan) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  errno = saved;
  size_t wanted = strlen(folder);
  return length > (ssize_t)wanted && !strncmp(path, folder, wanted) && path[wanted] == '/';
}

static int is_its_turn(uint64_t *counter, int meant) {
  uint64_t now = __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
  int turn = meant && (plan->on ? now >= plan->nth : now == plan->nth);
  if (turn) __atomic_add_fetch(&plan->done, 1, __ATOMIC_SEQ_CST);
  return turn;
}

static void end(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

/* The part of a write that still happens: half of it when it is spoilt, as a crash or a full disk
 * may leave it. `*error` is what to say after it, 0 when all is well. */
static size_t part(int fd, size_t length, int *killed, int *error) {
  *killed = *error = 0;
  if (!is_ours(fd)) return length;
  enum action action = plan->action;
  int meant = action == KILL_IN_WRITE || action == FAIL_WRITE || action == NO_ROOM;
  if (!is_its_turn(&plan->writes, meant)) return length;
  if (action == KILL_IN_WRITE) *killed = 1;
  else *error = action == NO_ROOM ? ENOSPC : EIO;
  return length / 2;
}

#define SPOILT(CALL)                          \
  int killed, error;                          \
  size_t some = part(fd, length, &killed, &error); \
  ssize_t written = CALL;                     \
  if (killed) end();                          \
  if (error) { errno = error; return -1; }    \
  return written;

ssize_t write(int fd, const void *bytes, size_t length) {
  SPOILT(syscall(SYS_write, fd, bytes, some))
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
  SPOILT(syscall(SYS_pwrite64, fd, bytes, some, at))
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
  return pwrite64(fd, bytes, length, at);
}

/* Changes of a file's length: done whole, or not at all. */
static int refused(int fd) {
  int killed, error;
  part(fd, 2, &killed, &error);
  if (killed) end();
  return error;
}
int ftruncate64(int fd, off64_t length) {
  int error = refused(fd);
  if (error) { errno = error; return -1; }
  return syscall(SYS_ftruncate, fd, length);
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }
int fallocate64(int fd, int mode, off64_t at, off64_t length) {
  int error = refused(fd);
  if (error) { errno = error; return -1; }
  return syscall(SYS_fallocate, fd, mode, at, length);
}
int fallocate(int fd, int mode, off_t at, off_t length) {
  return fallocate64(fd, mode, at, length);
}
int posix_fallocate64(int fd, off64_t at, off64_t length) {
  return fallocate64(fd, 0, at, length) ? errno : 0;
}
int posix_fallocate(int fd, off_t at, off_t length) { return posix_fallocate64(fd, at, length); }

static int synced(int fd, long number) {
  if (!is_ours(fd)) return syscall(number, fd);
  enum action action = plan->action;
  int meant = action == KILL_BEFORE_SYNC || action == KILL_AFTER_SYNC || action == FAIL_SYNC;
  int turn = is_its_turn(&plan->syncs, meant);
  if (turn && action == KILL_BEFORE_SYNC) end();
  if (turn && action == FAIL_SYNC) { errno = EIO; return -1; }
  int answer = syscall(number, fd);
  if (turn && action == KILL_AFTER_SYNC) end();
  return answer;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
