/* A wall clock that is wrong: behind by the seconds that the file TEST_CLOCK holds, and
 * right while it is not there. The other clocks are left alone. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
  int ended = (int)syscall(SYS_clock_gettime, clock, at);
  const char *path = clock == CLOCK_REALTIME ? getenv("TEST_CLOCK") : NULL;
  FILE *file = path ? fopen(path, "r") : NULL;
  long behind = 0;
  if (!file) return ended;
  if (fscanf(file, "%ld", &behind) == 1) at->tv_sec -= behind;
  fclose(file);
  return ended;
}
