/* The launcher's end of the ranks' lines (line.h): a seat for each rank. It serves their exchanges, and notes who has
 * come, who has said goodbye, and who is gone without. */
#ifndef BRIM_LAUNCH_SEATS_H
#define BRIM_LAUNCH_SEATS_H
#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "brim/comm.h"
#include "dist/line.h"

typedef struct brim_seat {
  int fd;        /* -1: not connected yet, or no more */
  pid_t pid;     /* 0: not known yet */
  bool is_child; /* of the launcher's own; else of mpirun's */
  bool is_over;  /* the process has ended: `wait_status` */
  int wait_status;
  bool came, is_lost; /* it has said hello; its line has ended without goodbye */
  bool left;          /* it has said goodbye */
  int exit_status;    /* that it said then */
  bool waits;         /* in an exchange */
  bool is_told;       /* to stop, by a signal */
  /* the message that is being read */
  brim_line_head head;
  size_t have;
  char data[BRIM_EXCHANGE_BYTES];
} brim_seat;

typedef struct brim_seats {
  int32_t count;
  brim_seat *seat;                  /* by rank */
  bool own_streams;                 /* ranks were born with the launcher's */
  int32_t waiting;                  /* ranks in the exchange */
  double since;                     /* the first of them came */
  double patience;                  /* its seconds */
  uint32_t bytes;                   /* that each gives; others cannot be served */
  int32_t speaker;                  /* that may say what has ended the job; -1: nobody has asked */
  int32_t ended_by, end_status;     /* that ended the job, by BRIM_LINE_END; -1: nobody */
  double left_at;                   /* when the first said goodbye */
  char folder[BRIM_EXCHANGE_BYTES]; /* of the run; empty: not known */
  struct pollfd *poll;
} brim_seats;

void brim_seats_open(brim_seats *seats, int32_t count);
void brim_seats_close(brim_seats *seats);
/* [step] Waits at most `milliseconds` for a rank's message or for one of the `count` files in front, whose events are
 * in more[].revents afterwards, and serves what has come. */
void brim_seats_serve(brim_seats *seats, struct pollfd *more, size_t count, int milliseconds);
/* Somebody at the door, whose hello says who it is. Others than this user's processes are turned away. */
void brim_seats_admit(brim_seats *seats, int listener);
/* The first rank that is gone without goodbye; -1: none. */
int32_t brim_seats_lost(const brim_seats *seats);
/* Ranks that have said goodbye, and those that have said hello. */
int32_t brim_seats_left(const brim_seats *seats);
int32_t brim_seats_came(const brim_seats *seats);
/* The ranks that keep the others waiting for longer than these want to, as "rank 2 (process 4711)"; false: none. */
bool brim_seats_late(const brim_seats *seats, double now, char *names, size_t room);
/* All processes that are known and have not ended, but that of rank `but`. */
void brim_seats_kill(const brim_seats *seats, int number, int32_t but);
#endif
