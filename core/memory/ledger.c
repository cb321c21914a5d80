/* The ledger's entries on a board: which process uses how much of which device. See brim/ledger.h. */
#include "brim/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "memory/board.h"

#define MAGIC UINT64_C(0x3152474C4D495242) /* "BRIMLGR1" */
#define ENDING ".ledger"

typedef struct entry {
  int64_t pid;
  uint64_t bytes;
  int32_t device;
  char name[60]; /* name of the process */
} entry;

struct brim_ledger {
  brim_board board;
  int devices;
  uint64_t bytes;  /* bytes of each device */
  uint64_t last[]; /* use of each device when last read, plus one; 0: not read yet */
};

brim_status brim_ledger_open(const char *name, int devices, uint64_t bytes, brim_ledger **out)
{
  char file[256];
  brim_ledger *ledger = brim_try_calloc(1, sizeof *ledger + (size_t)devices * sizeof ledger->last[0]);
  if (!ledger) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a ledger");
  ledger->devices = devices;
  ledger->bytes = bytes;
  snprintf(file, sizeof file, "%s-%dx%" PRIu64 ENDING, name, devices, bytes);
  const brim_status status = brim_board_open(&ledger->board, file, MAGIC, sizeof(entry), BRIM_BOARD_SECONDS);
  if (status != BRIM_OK) {
    free(ledger);
    return status;
  }
  *out = ledger;
  return BRIM_OK;
}

void brim_ledger_close(brim_ledger *ledger)
{
  if (!ledger) return;
  brim_board_close_and_tidy(&ledger->board, ENDING); /* ledgers for shares of any size: killed processes leave them */
  free(ledger);
}

/* The use of one device, found by reading the whole board. */
typedef struct found {
  uint64_t used;
  int32_t free_slot; /* -1: none */
  brim_device_user *user;
  size_t room, count;
} found;

static brim_status look_at_slots(brim_ledger *ledger, int device, found *f)
{
  uint64_t bytes[BRIM_BOARD_SLOTS] = {0};
  f->free_slot = -1;
  for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++) {
    entry e;
    bool alive;
    BRIM_TRY(brim_board_read(&ledger->board, i, &e, &alive));
    if (!alive && f->free_slot < 0 && brim_board_is_free(&ledger->board, i)) f->free_slot = (int32_t)i;
    if (!alive || e.pid <= 0 || e.bytes > ledger->bytes || e.device != device) continue;
    bytes[i] = e.bytes;
    if (f->count < f->room) {
      brim_device_user *u = &f->user[f->count];
      *u = (brim_device_user){.pid = e.pid, .bytes = e.bytes};
      snprintf(u->name, sizeof u->name, "%.*s", (int)sizeof e.name, e.name);
    }
    f->count++;
  }
  /* brim's own entries never exceed the limit. So if an entry does not fit beside this process and the slots before it,
   * another program wrote it, and it does not count. */
  for (int own = 1; own >= 0; own--)
    for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++)
      if ((ledger->board.own[i] != NULL) == own && bytes[i] <= ledger->bytes - f->used) f->used += bytes[i];
  return BRIM_OK;
}

static brim_status look_alone(brim_ledger *ledger, int device, found *f)
{
  BRIM_TRY(brim_board_lock(&ledger->board));
  const brim_status status = look_at_slots(ledger, device, f);
  brim_board_unlock(&ledger->board);
  return status;
}

#define USERS_LISTED 4

static brim_status refuse(const brim_ledger *ledger, int device, uint64_t bytes, const found *f)
{
  char a[32], b[32];
  brim_fail(BRIM_ENOMEM_DEVICE, "%s needed, but device %d has %s left", brim_format_bytes(a, sizeof a, bytes), device,
            brim_format_bytes(b, sizeof b, ledger->bytes - f->used));
  brim_text text = {0};
  brim_text_printf(&text, "of its %s", brim_format_bytes(a, sizeof a, ledger->bytes));
  for (size_t i = 0; i < f->count && i < USERS_LISTED; i++)
    brim_text_printf(&text, "%s %s (pid %" PRId64 ") has %s", i ? "," : "", f->user[i].name, f->user[i].pid,
                     brim_format_bytes(a, sizeof a, f->user[i].bytes));
  if (f->count > USERS_LISTED) brim_text_printf(&text, ", and %zu more processes the rest", f->count - USERS_LISTED);
  if (f->count > 0) brim_fail_add(BRIM_ENOMEM_DEVICE, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return BRIM_ENOMEM_DEVICE;
}

static brim_status take_bytes(brim_ledger *ledger, int device, uint64_t bytes, int32_t *slot)
{
  brim_device_user user[USERS_LISTED];
  found f = {.user = user, .room = USERS_LISTED};
  entry e = {.pid = getpid(), .bytes = bytes, .device = device};
  BRIM_TRY(look_at_slots(ledger, device, &f));
  if (bytes > ledger->bytes || f.used > ledger->bytes - bytes) return refuse(ledger, device, bytes, &f);
  if (f.free_slot < 0)
    return brim_fail(BRIM_ENOMEM_DEVICE, "%d processes already share these devices, which is the maximum",
                     BRIM_BOARD_SLOTS);
  brim_process_name(e.name, sizeof e.name);
  BRIM_TRY(brim_board_write(&ledger->board, (size_t)f.free_slot, &e));
  *slot = f.free_slot;
  return BRIM_OK;
}

brim_status brim_ledger_take(brim_ledger *ledger, int device, uint64_t bytes, int32_t *slot)
{
  BRIM_TRY(brim_board_lock(&ledger->board));
  const brim_status status = take_bytes(ledger, device, bytes, slot);
  brim_board_unlock(&ledger->board);
  return status;
}

void brim_ledger_give(brim_ledger *ledger, int32_t slot)
{
  if (brim_board_lock(&ledger->board) != BRIM_OK) return; /* the lock is released when the process ends */
  (void)brim_board_clear(&ledger->board, (size_t)slot);
  brim_board_unlock(&ledger->board);
}

/* If the ledger cannot be locked, returns the last known value, so that a run that has its share continues. */
brim_status brim_ledger_used(brim_ledger *ledger, int device, uint64_t *bytes)
{
  found f = {0};
  const brim_status status = look_alone(ledger, device, &f);
  if (status == BRIM_OK) ledger->last[device] = f.used + 1;
  if (ledger->last[device] == 0) return status;
  *bytes = ledger->last[device] - 1;
  return BRIM_OK;
}

brim_status brim_ledger_users(brim_ledger *ledger, int device, brim_device_user *out, size_t room, size_t *count)
{
  found f = {.user = out, .room = room};
  BRIM_TRY(look_alone(ledger, device, &f));
  *count = f.count;
  return BRIM_OK;
}
