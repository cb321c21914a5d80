/* A look is a snapshot of one or several hosts: their devices, the queue for them, the runs, and advice. Commands draw
 * it, print it as JSON and export it as metrics. They can also read the JSON form back, so they draw the look of
 * another host, or a recorded one, in the same way.
 *
 * The sources are the boards in the shared folder (claims, ledgers and live slots), the backends, the driver, and the
 * run folders that this user may read. brim trusts none of them: texts may contain anything (see brim_text_add_shown),
 * and all counts are bounded. */
#ifndef BRIM_MONITOR_LOOK_H
#define BRIM_MONITOR_LOOK_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "brim/status.h"

#define BRIM_LOOK_VERSION 1 /* version of the JSON form; readers accept it and all earlier ones */

/* Limits of a look; if a source has more, brim leaves out the rest and adds a line to `problem`. */
#define BRIM_LOOK_HOSTS_MAX 64
#define BRIM_LOOK_DEVICES_MAX 256
#define BRIM_LOOK_OWNERS_MAX 256 /* owners of a device */
#define BRIM_LOOK_TICKETS_MAX 1024
#define BRIM_LOOK_RUNS_MAX 1024
#define BRIM_LOOK_CLASSES_MAX 16 /* classes of a run's memory */
#define BRIM_LOOK_CURVES_MAX 4   /* curves of a run */
#define BRIM_LOOK_POINTS_MAX 128 /* points of a curve */
#define BRIM_LOOK_EVENTS_MAX 16  /* the newest events of a run */
#define BRIM_LOOK_DECISIONS_MAX 16
#define BRIM_LOOK_PROBLEMS_MAX 16
#define BRIM_LOOK_ADVICE_MAX 3
#define BRIM_LOOK_NONE SIZE_MAX /* an index: none */

/* An unknown number is NAN, unknown bytes are BRIM_BYTES_UNKNOWN, an unknown text is "". Times are seconds since
 * 1970. */

typedef struct brim_look_host {
  const char *name;
  double time;             /* time at which the look was taken */
  double load, processors; /* load: runnable threads, mean over a minute; processors: logical ones */
  /* Memory of the control group if that has limits, else of the machine. */
  uint64_t ram_used_bytes, ram_total_bytes, swap_used_bytes, swap_total_bytes;
  const char *failure; /* why there is no information about the host; "": there is */
} brim_look_host;

/* A process that uses a device. */
typedef struct brim_look_owner {
  int64_t pid;
  uint64_t bytes;
  bool is_brim, is_mine;
  const char *user, *name; /* user and name of the process; name: "" for a process in another container */
} brim_look_owner;

typedef struct brim_look_device {
  size_t host;
  const char *label;       /* "cuda:0", in the numbering of processes without CUDA_VISIBLE_DEVICES */
  const char *name, *uuid; /* "NVIDIA H100 80GB HBM3"; "GPU-8a5f2b1c-..." */
  /* total_bytes is the sum of the others: plans of this user's runs, plans of other users' runs, other memory of these
   * processes (contexts, libraries), other processes, and free memory */
  uint64_t total_bytes, mine_bytes, brim_bytes, libraries_bytes, other_bytes, free_bytes;
  bool is_host; /* this "device" is the memory of the host, which all processes use */
  double load;  /* percent: of the time in which a kernel ran (GPUs), or of the processors in use (the host) */
  double celsius, watts, watts_max;
  double idle_seconds;    /* seconds for which the load has been 0 while processes had memory */
  brim_look_owner *owner; /* most memory first */
  size_t owners;
} brim_look_device;

/* A place in the queue: a run that waits, or one that has claimed a device and has not placed its plan yet. */
typedef struct brim_look_ticket {
  size_t host;
  size_t place;  /* from 1, among the runs that wait on this host; 0: it has claimed a device */
  size_t device; /* claimed; BRIM_LOOK_NONE: waits */
  size_t run;    /* index of this ticket's run, if known */
  int64_t pid;
  uint64_t need_bytes;
  double since;
  double starts; /* expected start; NAN if the duration of a run before it is not known */
  bool is_mine;
  const char *user, *process, *backend, *wish; /* wish: "any" device of the backend, or "cuda:1" */
  size_t *accepts;                             /* devices */
  size_t accept_count;
} brim_look_ticket;

enum brim_look_state {
  /* The states of a living process, in the order of brim_live_state. */
  BRIM_LOOK_PLANNING,
  BRIM_LOOK_WAITING,
  BRIM_LOOK_TRAINING,
  BRIM_LOOK_EVALUATING,
  BRIM_LOOK_CHECKPOINT,
  BRIM_LOOK_RECOVERING,
  BRIM_LOOK_STOPPING,
  BRIM_LOOK_WORKING, /* predicts, generates or exports: see `command` */
  /* The states that only the folder shows. */
  BRIM_LOOK_FINISHED,
  BRIM_LOOK_INTERRUPTED,
  BRIM_LOOK_FAILED,
  BRIM_LOOK_KILLED, /* there is no summary, and no process holds the run's lock */
  BRIM_LOOK_STATES
};
extern const char *const brim_look_state_names[BRIM_LOOK_STATES]; /* "planning", ... */
bool brim_look_is_live(enum brim_look_state state);

typedef struct brim_look_class {
  const char *name; /* "parameters" */
  uint64_t bytes;
} brim_look_class;

/* A curve, thinned to at most BRIM_LOOK_POINTS_MAX points that cover the whole run. */
typedef struct brim_look_curve {
  const char *name; /* "train loss", "validation accuracy" */
  float *step, *value;
  size_t count;
} brim_look_curve;

typedef struct brim_look_event {
  double time;
  int64_t step;
  const char *kind, *text; /* kind: "decision"; text: "auto_plan: micro-batch 64: the largest that fits" */
} brim_look_event;

/* Counts how often a policy has made decisions of one kind. */
typedef struct brim_look_decision {
  const char *policy, *kind; /* "auto_plan", "choice"; "recovery", "cleanup" */
  int64_t count;
} brim_look_decision;

typedef struct brim_look_run {
  size_t host;
  enum brim_look_state state;
  int64_t pid; /* 0: no process */
  bool is_mine;
  const char *user;
  int64_t rank, ranks;
  size_t device;           /* BRIM_LOOK_NONE: none yet, or not known on this host */
  const char *device_text; /* "cuda:0", in the run's numbering; "" before it has a device */
  const char *command;     /* "train"; "" if the run has ended */
  double started;          /* time at which the process began; distinguishes runs with the same pid */
  double since, changed;   /* times at which the state began, and at which the run's slot or folder last changed */
  double silent_seconds;   /* seconds since its last step, if that is much longer than a step takes; else NAN */
  bool is_stopped;         /* the kernel has stopped its process, by a signal such as Ctrl-Z's */
  /* progress; in a federation `step` counts rounds */
  int64_t step, steps; /* -1: not known */
  bool is_federated;
  double rate; /* samples per second, or tokens (counts_tokens) */
  bool counts_tokens;
  double seconds_left;
  uint64_t device_bytes; /* bytes of the placed plan; for a waiting run, the memory that it waits for */
  uint64_t libraries_bytes;
  brim_look_class *memory; /* the plan's peak by class */
  size_t classes;

  /* From the folder, if this user may read it or the run shows it to all users (observe.live=all); else "", NAN. */
  const char *folder; /* absolute */
  const char *name;   /* short and unique in this look: the end of the folder's path, else "pid 1234" */
  const char *model, *dataset;
  double loss, score, epoch, epochs;
  const char *score_name; /* "accuracy" (in [0, 1]), "perplexity", "mae" */
  double queue_seconds;
  brim_look_curve *curve;
  size_t curves;
  brim_look_event *event; /* oldest first */
  size_t events;
  int64_t retries, decisions; /* repetitions after an out-of-memory; decisions of all kinds */
  brim_look_decision *decided;
  size_t decided_count;
  int64_t micro_batch, batch; /* samples; 0: not known */
  double step_seconds, predicted_step_seconds;
  double loader_share; /* fraction of the step in which the run waits for samples */
  int64_t workers;     /* threads that decode samples */
  /* the largest plan with a smaller micro-batch that the planner has computed; 0: none */
  int64_t smaller_micro_batch;
  uint64_t smaller_bytes;
  bool is_elastic; /* policy=elastic may give memory back */
} brim_look_run;

typedef struct brim_look_advice {
  const char *text, *command; /* the shell command that carries out the advice */
} brim_look_advice;

typedef struct brim_look {
  brim_arena arena; /* everything below */
  brim_look_host *host;
  brim_look_device *device;
  brim_look_ticket *ticket; /* sorted by host, then in the order of service */
  brim_look_run *run;       /* sorted by host: living runs by start, then ended runs, newest first */
  brim_look_advice advice[BRIM_LOOK_ADVICE_MAX];
  const char *problem[BRIM_LOOK_PROBLEMS_MAX]; /* errors of reading, one line each */
  size_t hosts, devices, tickets, runs, advices, problems;
} brim_look;

void brim_look_release(brim_look *look);
/* Adds an error of reading; the text is copied. More than BRIM_LOOK_PROBLEMS_MAX are dropped. */
void brim_look_problem(brim_look *look, const char *format, ...) BRIM_PRINTF(2, 3);

/* ---- look_json.c ---- */

/* Returns the JSON form, documented in docs/guide/watching.md; never NULL. */
json_t *brim_look_json(const brim_look *look);
/* Adds the hosts of a JSON form to `look`. ELOAD: `root` is something else, of a later version, or damaged; the text
 * gives the place: "runs[3].step: a number is expected". `look` is then unchanged. */
brim_status brim_look_add_json(const json_t *root, brim_look *look);

/* ---- look_expect.c: pure ---- */

/* Sets `starts` of all tickets. Assumes that the queue is served in order, and that runs end at their predicted
 * times. */
void brim_look_expect(brim_look *look);

/* ---- advise.c: pure ---- */

/* Sets the advice: at most BRIM_LOOK_ADVICE_MAX, the most useful first. */
void brim_look_advise(brim_look *look);
#endif
