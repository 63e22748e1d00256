/* A disk that does not answer: while the file that TEST_HANG names is there, whoever
 * syncs waits for its end. The first wait makes a file with the same name and `.met`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_for_the_disk(void) {
  const char *hangs = getenv("TEST_HANG");
  char met[4096];
  if (!hangs || access(hangs, F_OK) != 0) return;
  snprintf(met, sizeof met, "%s.met", hangs);
  close(creat(met, 0600));
  while (access(hangs, F_OK) == 0) usleep(1000);
}

int fsync(int fd) {
  wait_for_the_disk();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
  wait_for_the_disk();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
