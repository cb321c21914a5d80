/* Looks at another host, by running `brim monitor --json` there through ssh. If the remote monitor repeats its look,
 * the connection stays open, and each look here uses the newest one that has arrived. */
#ifndef BRIM_MONITOR_REMOTE_H
#define BRIM_MONITOR_REMOTE_H
#include <sys/types.h>

#include "base/text.h"
#include "monitor/look.h"

#define BRIM_REMOTE_BYTES_MAX ((size_t)16 << 20) /* limit for a look */
#define BRIM_REMOTE_CONNECT_SECONDS 10

typedef struct brim_remote {
  const char *host; /* the host as the user wrote it: "ann@lab7" */
  double every;     /* seconds between two looks; 0: one look */
  pid_t pid;        /* pid of ssh; 0: it has ended */
  int out, err;     /* ssh's output and errors; -1: closed */
  brim_text text, errors;
  json_t *newest;           /* the newest look; NULL: none yet, or the host does not answer */
  double started, answered; /* brim_now() */
  char failure[512];        /* "": connecting, or it answers */
} brim_remote;

/* [init] Starts ssh. `host` must outlive the result, and must have passed brim_remote_check. */
void brim_remote_open(brim_remote *remote, const char *host, double every);
void brim_remote_close(brim_remote *remote);
/* ECONFIG for a word that ssh would not interpret as a host. */
brim_status brim_remote_check(const char *host);
/* Reads the output that has arrived, without waiting; if ssh has ended, starts it again after some time. */
void brim_remote_update(brim_remote *remote);
/* Whether the host has answered or failed. */
bool brim_remote_is_settled(const brim_remote *remote);
/* Adds the newest look to `look`, or else a host with the reason why there is none. */
void brim_remote_add(const brim_remote *remote, brim_look *look);
#endif
