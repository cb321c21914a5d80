/* See states.h. */
#include "store/states.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "base/alloc.h"
#include "base/file.h"

#define MAGIC "brimsta2"
#define MAGIC_BEFORE "brimstat" /* of files of brim 0.12.0, which have no checksums */
#define ALIGNMENT 64u           /* slots start at multiples of this */
#define HEADER_BYTES 64u
#define STAMPS_READ 1024 /* number of stamps that are read at a time */
#define PART_BYTES 16384 /* bytes of a slot that are read at a time; a multiple of BLOCK_BYTES */

/* The file: a header, a stamp for each slot, the slots. Numbers have the machine's byte order. */
typedef struct header {
  char magic[8];
  uint64_t bytes, hash;
  int64_t slots;
  char unused[HEADER_BYTES - 40];
  uint64_t checksum; /* checksum of the header's bytes before it */
} header;
typedef struct stamp {
  int32_t client, round; /* round: from 1; 0: the slot has no complete state */
  uint64_t checksum;     /* checksum of the slot */
} stamp;

struct brim_states {
  brim_states_layout layout;
  int64_t slots, lowest;    /* lowest: no slot below it is free */
  int32_t *round;           /* [clients] round of the newest state, from 1; 0: none */
  int32_t *newest, *stable; /* [clients] the newest slot, and the slot of the last checkpoint; -1: none */
  int32_t *place;           /* [places] slots that the current round's clients write */
  int64_t placed;
  uint8_t *used; /* a bit for each slot */
  int fd;        /* -1: no file yet */
  bool is_first; /* this rank clears stamps */
  bool copies;   /* the file is a copy of the file at `path` */
  char path[BRIM_PATH_MAX];
};

int64_t brim_states_slots(const brim_states_layout *l)
{
  return 2 * l->clients + l->places;
}

static uint64_t slot_bytes(const brim_states_layout *l)
{
  return brim_round_up(l->bytes, ALIGNMENT);
}

static uint64_t offset_of(const brim_states_layout *l, int64_t slot)
{
  const uint64_t stamps = (uint64_t)brim_states_slots(l) * sizeof(stamp);
  return brim_round_up(HEADER_BYTES + stamps, 4096) + (uint64_t)slot * slot_bytes(l);
}

uint64_t brim_states_file_bytes(const brim_states_layout *l, int64_t slots)
{
  return offset_of(l, slots);
}

uint64_t brim_states_host_bytes(const brim_states_layout *l)
{
  return (uint64_t)l->clients * 3 * sizeof(int32_t) + (uint64_t)l->places * sizeof(int32_t) +
         (uint64_t)brim_states_slots(l) / 8;
}

/* ---- the index ---- */

static bool is_used(const brim_states *s, int64_t slot)
{
  return s->used[slot / 8] >> slot % 8 & 1;
}

static void take(brim_states *s, int64_t slot)
{
  s->used[slot / 8] |= (uint8_t)(1u << slot % 8);
}

static void release(brim_states *s, int64_t slot)
{
  if (slot < 0) return;
  s->used[slot / 8] &= (uint8_t) ~(1u << slot % 8);
  if (slot < s->lowest) s->lowest = slot;
}

static int32_t take_lowest(brim_states *s)
{
  while (is_used(s, s->lowest)) s->lowest++;
  take(s, s->lowest);
  return (int32_t)s->lowest;
}

static void clear_index(brim_states *s)
{
  for (int64_t k = 0; k < s->layout.clients; k++) s->newest[k] = s->stable[k] = -1;
  memset(s->used, 0, (size_t)(s->slots + 7) / 8);
  s->lowest = s->placed = 0;
}

brim_status brim_states_open(const brim_states_layout *layout, brim_states **out)
{
  brim_states *s = brim_try_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the states of clients");
  const size_t clients = (size_t)layout->clients;
  *s = (brim_states){.layout = *layout, .slots = brim_states_slots(layout), .fd = -1};
  s->round = brim_try_calloc(clients, sizeof *s->round);
  s->newest = brim_try_calloc(clients, sizeof *s->newest);
  s->stable = brim_try_calloc(clients, sizeof *s->stable);
  s->place = brim_try_calloc((size_t)layout->places, sizeof *s->place);
  s->used = brim_try_calloc((size_t)(s->slots + 7) / 8, 1);
  if (!s->round || !s->newest || !s->stable || !s->place || !s->used || s->slots > INT32_MAX) {
    brim_states_close(s);
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the states of %" PRId64 " clients", layout->clients);
  }
  clear_index(s);
  *out = s;
  return BRIM_OK;
}

void brim_states_close(brim_states *s)
{
  if (!s) return;
  if (s->fd >= 0) close(s->fd);
  free(s->round);
  free(s->newest);
  free(s->stable);
  free(s->place);
  free(s->used);
  free(s);
}

int32_t *brim_states_rounds(brim_states *s)
{
  return s->round;
}

void brim_states_begin(brim_states *s, int64_t count)
{
  for (int64_t i = 0; i < s->placed; i++) release(s, s->place[i]);
  for (s->placed = 0; s->placed < count; s->placed++) s->place[s->placed] = take_lowest(s);
}

void brim_states_commit(brim_states *s, int64_t place, int64_t client, int64_t round)
{
  if (s->newest[client] != s->stable[client]) release(s, s->newest[client]);
  s->newest[client] = s->place[place];
  s->round[client] = (int32_t)(round + 1);
  s->place[place] = -1; /* the slot belongs to the client now */
}

void brim_states_checkpointed(brim_states *s)
{
  for (int64_t k = 0; k < s->layout.clients; k++) {
    if (s->stable[k] == s->newest[k]) continue;
    release(s, s->stable[k]);
    s->stable[k] = s->newest[k];
  }
}

/* ---- checksums ---- */

enum { SUMS = 4, BLOCK_BYTES = SUMS * sizeof(uint64_t) };

/* Four sums are computed side by side, so that a multiplication need not wait for the one before. Each step is a
 * bijection both of the sum, for a fixed word, and of the word, for a fixed sum. So a change of one word always changes
 * the result. */
typedef struct checksum {
  uint64_t sum[SUMS];
} checksum;

static uint64_t mix(uint64_t sum, uint64_t word)
{
  sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
  return sum ^ sum >> 29;
}

/* `bytes` is a multiple of BLOCK_BYTES. */
static void add_blocks(checksum *c, const char *data, size_t bytes)
{
  for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
    uint64_t word[SUMS];
    memcpy(word, data + at, sizeof word);
    for (int i = 0; i < SUMS; i++) c->sum[i] = mix(c->sum[i], word[i]);
  }
}

static uint64_t finish(const checksum *c, uint64_t bytes)
{
  uint64_t sum = mix(0, bytes);
  for (int i = 0; i < SUMS; i++) sum = mix(sum, c->sum[i]);
  return sum;
}

static uint64_t checksum_of(const header *h)
{
  checksum c = {{0}};
  char block[2 * BLOCK_BYTES] = {0};
  memcpy(block, h, offsetof(header, checksum));
  add_blocks(&c, block, sizeof block);
  return finish(&c, offsetof(header, checksum));
}

/* ---- the file ---- */

static uint64_t stamp_at(int64_t slot)
{
  return HEADER_BYTES + (uint64_t)slot * sizeof(stamp);
}

static brim_status write_stamp(const brim_states *s, int64_t slot, stamp value)
{
  return brim_file_write_at(s->fd, s->path, &value, sizeof value, stamp_at(slot));
}

/* If the last part is incomplete, the missing bytes count as 0. */
static brim_status find_checksum(const brim_states *s, int64_t slot, uint64_t *out)
{
  char part[PART_BYTES];
  checksum c = {{0}};
  for (uint64_t at = 0; at < s->layout.bytes; at += sizeof part) {
    const uint64_t rest = s->layout.bytes - at, bytes = rest < sizeof part ? rest : sizeof part,
                   whole = brim_round_up(bytes, BLOCK_BYTES);
    BRIM_TRY(brim_file_read_at(s->fd, s->path, part, bytes, offset_of(&s->layout, slot) + at));
    memset(part + bytes, 0, whole - bytes);
    add_blocks(&c, part, whole);
  }
  *out = finish(&c, s->layout.bytes);
  return BRIM_OK;
}

/* Makes a sparse file: holes read as zeros, so no slot has a stamp. */
static brim_status make_file(const brim_states *s)
{
  header h = {.bytes = s->layout.bytes, .hash = s->layout.hash, .slots = s->slots};
  memcpy(h.magic, MAGIC, sizeof h.magic);
  h.checksum = checksum_of(&h);
  BRIM_TRY(brim_file_set_length(s->fd, s->path, offset_of(&s->layout, s->slots)));
  return brim_file_write_at(s->fd, s->path, &h, sizeof h, 0);
}

static brim_status make_unlinked(brim_states *s)
{
  const char *folder = getenv("TMPDIR");
  snprintf(s->path, sizeof s->path, "%s/brim-states-XXXXXX", folder && folder[0] ? folder : "/tmp");
  s->fd = mkostemp(s->path, O_CLOEXEC);
  if (s->fd < 0) return brim_fail(BRIM_EIO, "cannot create '%s' for client states: %s", s->path, strerror(errno));
  unlink(s->path);
  return make_file(s);
}

static bool has_magic(const header *h, const char *magic)
{
  return memcmp(h->magic, magic, sizeof h->magic) == 0;
}

static brim_status check_header(const brim_states *s, const char *path, const header *h)
{
  if (has_magic(h, MAGIC_BEFORE))
    return brim_fail(BRIM_ELOAD,
                     "'%s' is of an earlier version of brim, without checksums\nresume the run with the version that "
                     "started it",
                     path);
  if (!has_magic(h, MAGIC) || h->checksum != checksum_of(h))
    return brim_fail(
        BRIM_ELOAD,
        "the header of '%s', the file of client states, is damaged\nrestore the file from a copy, or start "
        "the run again",
        path);
  if (h->bytes != s->layout.bytes)
    return brim_fail(BRIM_ELOAD,
                     "'%s' has client states of %" PRIu64 " bytes, but those of this run have %" PRIu64
                     ": it belongs to another model or precision",
                     path, h->bytes, s->layout.bytes);
  if (h->slots != s->slots)
    return brim_fail(BRIM_ELOAD,
                     "'%s' has room for %" PRId64 " client states, but this run needs %" PRId64
                     ": it belongs to another total_clients or clients_per_round",
                     path, h->slots, s->slots);
  if (h->hash != s->layout.hash)
    return brim_fail(BRIM_ELOAD, "'%s' has client states of a model with other parameters", path);
  return BRIM_OK;
}

static brim_status open_existing(const brim_states *s, const char *path, int *fd)
{
  header h;
  *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (*fd < 0)
    return brim_fail(BRIM_ELOAD,
                     "cannot open '%s', the file of client states: %s\nruns of brim before 0.12.0 kept these states in "
                     "checkpoints: resume such a run with the version that started it",
                     path, strerror(errno));
  BRIM_TRY(brim_file_read_at(*fd, path, &h, sizeof h, 0));
  return check_header(s, path, &h);
}

brim_status brim_states_attach(brim_states *s, const char *folder, enum brim_states_access access)
{
  char path[BRIM_PATH_MAX];
  if (s->fd >= 0) close(s->fd);
  s->fd = -1;
  s->is_first = access == BRIM_STATES_CREATE || access == BRIM_STATES_SHARE;
  s->copies = folder && access == BRIM_STATES_COPY;
  if (!folder) return make_unlinked(s);
  BRIM_TRY(brim_path_join(path, folder, BRIM_STATES_NAME));
  if (s->copies) {
    BRIM_TRY(make_unlinked(s));
    snprintf(s->path, sizeof s->path, "%s", path); /* the file to copy when a checkpoint is read */
    return BRIM_OK;
  }
  snprintf(s->path, sizeof s->path, "%s", path);
  if (access == BRIM_STATES_CREATE) {
    BRIM_TRY(brim_file_create(path, &s->fd));
    close(s->fd);
    s->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd < 0) return brim_fail(BRIM_EIO, "cannot open '%s': %s", path, strerror(errno));
    return make_file(s);
  }
  return open_existing(s, path, &s->fd);
}

bool brim_states_is_attached(const brim_states *s)
{
  return s->fd >= 0;
}

brim_status brim_states_sync(const brim_states *s)
{
  return s->fd >= 0 ? brim_file_sync(s->fd, s->path) : BRIM_OK;
}

static brim_status read_stamp(const brim_states *s, int fd, int64_t slot, stamp *out)
{
  return brim_file_read_at(fd, s->path, out, sizeof *out, stamp_at(slot));
}

brim_status brim_states_check(const brim_states *s, int64_t client)
{
  const int64_t slot = s->newest[client];
  stamp t;
  uint64_t sum;
  BRIM_TRY(read_stamp(s, s->fd, slot, &t));
  BRIM_TRY(find_checksum(s, slot, &sum));
  if (t.client == client && t.round == s->round[client] && t.checksum == sum) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "the state of client %" PRId64 " from round %d in '%s' is damaged: its checksum does not match its "
                   "contents\nrestore the file from a copy and resume, or start the run again",
                   client, (int)s->round[client], s->path);
}

brim_status brim_states_read(const brim_states *s, int64_t client, uint64_t at, void *data, uint64_t bytes)
{
  return brim_file_read_at(s->fd, s->path, data, bytes, offset_of(&s->layout, s->newest[client]) + at);
}

brim_status brim_states_read_place(const brim_states *s, int64_t place, uint64_t at, void *data, uint64_t bytes)
{
  return brim_file_read_at(s->fd, s->path, data, bytes, offset_of(&s->layout, s->place[place]) + at);
}

brim_status brim_states_unstamp(const brim_states *s, int64_t place)
{
  return write_stamp(s, s->place[place], (stamp){0, 0, 0});
}

brim_status brim_states_write(const brim_states *s, int64_t place, uint64_t at, const void *data, uint64_t bytes)
{
  return brim_file_write_at(s->fd, s->path, data, bytes, offset_of(&s->layout, s->place[place]) + at);
}

brim_status brim_states_stamp(const brim_states *s, int64_t place, int64_t client, int64_t round)
{
  uint64_t sum;
  BRIM_TRY(find_checksum(s, s->place[place], &sum));
  return write_stamp(s, s->place[place], (stamp){(int32_t)client, (int32_t)(round + 1), sum});
}

/* ---- a resume ---- */

static bool is_wanted(const brim_states *s, stamp t)
{
  return t.round > 0 && t.client >= 0 && t.client < s->layout.clients && s->round[t.client] == t.round &&
         s->newest[t.client] < 0;
}

static brim_status find_slot(brim_states *s, int64_t slot, stamp t)
{
  if (!is_wanted(s, t)) return BRIM_OK;
  s->newest[t.client] = s->stable[t.client] = (int32_t)slot;
  take(s, slot);
  return BRIM_OK;
}

/* The run will repeat the rounds after the checkpoint, so brim must not find stamps of other slots later. */
static brim_status clear_slot(brim_states *s, int64_t slot, stamp t)
{
  return t.round != 0 && !is_used(s, slot) ? write_stamp(s, slot, (stamp){0, 0, 0}) : BRIM_OK;
}

static brim_status for_each_stamp(brim_states *s, int fd, brim_status (*handle)(brim_states *s, int64_t slot, stamp t))
{
  stamp some[STAMPS_READ];
  for (int64_t first = 0; first < s->slots; first += STAMPS_READ) {
    const int64_t count = s->slots - first < STAMPS_READ ? s->slots - first : STAMPS_READ;
    BRIM_TRY(brim_file_read_at(fd, s->path, some, (uint64_t)count * sizeof *some, stamp_at(first)));
    for (int64_t i = 0; i < count; i++) BRIM_TRY(handle(s, first + i, some[i]));
  }
  return BRIM_OK;
}

/* Copies the states in use, with their stamps, from the run's file to this rank's own. */
static brim_status copy_states(const brim_states *s, int from)
{
  char part[PART_BYTES];
  stamp t;
  for (int64_t k = 0; k < s->layout.clients; k++) {
    if (s->newest[k] < 0) continue;
    BRIM_TRY(read_stamp(s, from, s->newest[k], &t));
    BRIM_TRY(write_stamp(s, s->newest[k], t));
    for (uint64_t at = 0; at < s->layout.bytes; at += sizeof part) {
      const uint64_t offset = offset_of(&s->layout, s->newest[k]) + at, rest = s->layout.bytes - at,
                     bytes = rest < sizeof part ? rest : sizeof part;
      BRIM_TRY(brim_file_read_at(from, s->path, part, bytes, offset));
      BRIM_TRY(brim_file_write_at(s->fd, s->path, part, bytes, offset));
    }
  }
  return BRIM_OK;
}

static brim_status find_all(brim_states *s)
{
  int fd = s->fd;
  if (!s->copies) return for_each_stamp(s, fd, find_slot);
  brim_status status = open_existing(s, s->path, &fd);
  if (status == BRIM_OK) status = for_each_stamp(s, fd, find_slot);
  if (status == BRIM_OK) status = copy_states(s, fd);
  if (fd >= 0) close(fd);
  return status;
}

brim_status brim_states_find(brim_states *s, const char *checkpoint)
{
  clear_index(s);
  BRIM_TRY(find_all(s));
  for (int64_t k = 0; k < s->layout.clients; k++)
    if (s->round[k] > 0 && s->newest[k] < 0)
      return brim_fail(BRIM_ELOAD,
                       "'%s' no longer has the state of client %" PRId64 " from round %d, which checkpoint '%s' needs: "
                       "only the newest checkpoint can be resumed from",
                       s->path, k, (int)s->round[k], checkpoint);
  return s->is_first ? for_each_stamp(s, s->fd, clear_slot) : BRIM_OK;
}
