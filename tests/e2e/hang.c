/* Simulates a disk that does not respond. While the file that TEST_HANG names exists, fsync and
 * fdatasync wait. The first wait creates a file with the same name and the ending `.met`. */
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
