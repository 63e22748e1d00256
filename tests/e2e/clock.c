/* Makes the wall clock wrong: it is behind by the seconds in the file that TEST_CLOCK names. The
 * wall clock is right while the file does not exist. Other clocks do not change. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
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

/* PostgreSQL reads the clock with gettimeofday and time. */
int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  int ended = clock_gettime(CLOCK_REALTIME, &now);
  (void)zone;
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return ended;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
