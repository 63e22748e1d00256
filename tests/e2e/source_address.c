/* Makes connections to the port TEST_PORT come from the loopback address TEST_ADDRESS, so a judge
 * knows which of two processes sent a request. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>

int connect(int fd, const struct sockaddr *to, socklen_t length) {
  const char *port = getenv("TEST_PORT"), *address = getenv("TEST_ADDRESS");
  const struct sockaddr_in *target = (const struct sockaddr_in *)to;
  if (port && address && to->sa_family == AF_INET && ntohs(target->sin_port) == atoi(port)) {
    struct sockaddr_in from = {.sin_family = AF_INET};
    inet_pton(AF_INET, address, &from.sin_addr);
    bind(fd, (struct sockaddr *)&from, sizeof from);
  }
  return ((int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect"))(fd, to, length);
}
