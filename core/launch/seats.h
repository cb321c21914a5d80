/* The launcher's end of the ranks' connections (line.h): a seat for each rank. Distributes the messages of exchanges,
 * and records which ranks have connected, sent BYE, or disappeared without BYE. */
#ifndef BRIM_LAUNCH_SEATS_H
#define BRIM_LAUNCH_SEATS_H
#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "brim/comm.h"
#include "dist/line.h"

typedef struct brim_seat {
  int fd;        /* -1: not connected yet, or disconnected */
  pid_t pid;     /* 0 if unknown */
  bool is_child; /* a child of the launcher; otherwise of mpirun */
  bool is_over;  /* the process has ended, with `wait_status` */
  int wait_status;
  bool came, is_lost; /* came: the rank has sent HELLO; is_lost: its connection closed without BYE */
  bool left;          /* the rank has said goodbye */
  int exit_status;    /* reported with goodbye */
  bool waits;         /* in an exchange */
  bool has_stop;      /* the stop signal was sent to it */
  /* the message being read */
  brim_line_head head;
  size_t have;
  char data[BRIM_EXCHANGE_BYTES];
} brim_seat;

typedef struct brim_seats {
  int32_t count;
  brim_seat *seat;                  /* by rank */
  bool own_streams;                 /* the ranks inherited the launcher's streams */
  int32_t waiting;                  /* ranks in the exchange */
  double since;                     /* time at which the first rank's message arrived */
  double patience;                  /* time limit of the exchange, in seconds */
  uint32_t bytes;                   /* size of each rank's message in the exchange; other sizes are rejected */
  int32_t speaker;                  /* the rank that may report why the job ends; -1: none has asked */
  int32_t ended_by, end_status;     /* the rank that ended the job with BRIM_LINE_END; -1: none */
  double left_at;                   /* time at which the first rank sent BYE */
  char folder[BRIM_EXCHANGE_BYTES]; /* the run's folder; empty if unknown */
  struct pollfd *poll;
} brim_seats;

void brim_seats_open(brim_seats *seats, int32_t count);
void brim_seats_close(brim_seats *seats);
/* [step] Waits at most `milliseconds` for a rank's message or for one of the `count` files in `more`, whose events are
 * in more[].revents afterwards, and handles the messages that have arrived. */
void brim_seats_serve(brim_seats *seats, struct pollfd *more, size_t count, int milliseconds);
/* Accepts a connection, whose HELLO contains its rank. Rejects processes of other users. */
void brim_seats_admit(brim_seats *seats, int listener);
/* The first rank that disappeared without BYE; -1: none. */
int32_t brim_seats_lost(const brim_seats *seats);
/* The number of ranks that have sent BYE; and the number that have sent HELLO. */
int32_t brim_seats_left(const brim_seats *seats);
int32_t brim_seats_came(const brim_seats *seats);
/* Names the ranks for which the others have waited longer than their limit, as "rank 2 (process 4711)"; false if there
 * is no such rank. */
bool brim_seats_late(const brim_seats *seats, double now, char *names, size_t room);
/* Sends a signal to all known processes that have not ended, except that of rank `but`. */
void brim_seats_kill(const brim_seats *seats, int number, int32_t but);
#endif
