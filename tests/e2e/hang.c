/* A disk that does not answer: while the file that TEST_HANG names is there, whoever
 * syncs waits for its end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_for_the_disk(void) {
  const char *hangs = getenv("TEST_HANG");
  while (hangs && access(hangs, F_OK) == 0) usleep(1000);
}

int fsync(int fd) {
  wait_for_the_disk();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
  wait_for_the_disk();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
