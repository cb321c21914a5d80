/* The launcher's end of the ranks' lines (line.h): a seat for each rank. Serves their exchanges, and records which
 * ranks have connected, said goodbye, or disappeared without. */
#ifndef BRIM_LAUNCH_SEATS_H
#define BRIM_LAUNCH_SEATS_H
#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "brim/comm.h"
#include "dist/line.h"

typedef struct brim_seat {
  int fd;        /* -1: not connected yet, or no longer */
  pid_t pid;     /* 0 if unknown */
  bool is_child; /* of the launcher; otherwise mpirun's */
  bool is_over;  /* the process has ended: `wait_status` */
  int wait_status;
  bool came, is_lost; /* it has said hello; its line closed without goodbye */
  bool left;          /* it has said goodbye */
  int exit_status;    /* reported with goodbye */
  bool waits;         /* in an exchange */
  bool has_stop;      /* it has had the stop signal */
  /* the message being read */
  brim_line_head head;
  size_t have;
  char data[BRIM_EXCHANGE_BYTES];
} brim_seat;

typedef struct brim_seats {
  int32_t count;
  brim_seat *seat;                  /* by rank */
  bool own_streams;                 /* ranks inherited the launcher's streams */
  int32_t waiting;                  /* ranks in the exchange */
  double since;                     /* when the first of them arrived */
  double patience;                  /* time limit of the exchange, in seconds */
  uint32_t bytes;                   /* size of each rank's part of the exchange; other sizes are refused */
  int32_t speaker;                  /* the rank that may report the end of the job; -1: none has asked */
  int32_t ended_by, end_status;     /* the rank that ended the job by BRIM_LINE_END; -1: none */
  double left_at;                   /* when the first rank said goodbye */
  char folder[BRIM_EXCHANGE_BYTES]; /* of the run; empty if unknown */
  struct pollfd *poll;
} brim_seats;

void brim_seats_open(brim_seats *seats, int32_t count);
void brim_seats_close(brim_seats *seats);
/* [step] Waits at most `milliseconds` for a rank's message or for one of the `count` files in `more`, whose events are
 * in more[].revents afterwards, and handles the messages that have arrived. */
void brim_seats_serve(brim_seats *seats, struct pollfd *more, size_t count, int milliseconds);
/* Accepts a connection, whose hello names its rank. Refuses processes of other users. */
void brim_seats_admit(brim_seats *seats, int listener);
/* The first rank that disappeared without goodbye; -1: none. */
int32_t brim_seats_lost(const brim_seats *seats);
/* Numbers of ranks that have said goodbye, and that have said hello. */
int32_t brim_seats_left(const brim_seats *seats);
int32_t brim_seats_came(const brim_seats *seats);
/* The ranks that the others have waited for longer than their limit, as "rank 2 (process 4711)"; false if there are
 * none. */
bool brim_seats_late(const brim_seats *seats, double now, char *names, size_t room);
/* Sends a signal to all known processes that have not ended, except rank `but`'s. */
void brim_seats_kill(const brim_seats *seats, int number, int32_t but);
#endif
