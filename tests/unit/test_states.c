/* Tests the file of client states: transactions, and its contents after a kill at any moment. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "brim/random.h"
#include "must.h"
#include "scratch.h"
#include "store/states.h"

enum { CLIENTS = 7, PLACES = 3, VALUES = 1500 }; /* VALUES: so that a state does not end at the end of a page */

static const brim_states_layout layout = {CLIENTS, PLACES, VALUES * sizeof(int32_t), 1234};

static brim_states *open_states(enum brim_states_access access)
{
  brim_states *s;
  must(brim_states_open(&layout, &s));
  must(brim_states_attach(s, scratch("."), access));
  return s;
}

/* Returns a value that shows its client and round. */
static int32_t value_of(int64_t client, int32_t round)
{
  return (int32_t)(1000 * round + client);
}

static void write_state(const brim_states *s, int64_t place, int64_t client, int64_t round)
{
  int32_t values[VALUES];
  for (int i = 0; i < VALUES; i++) values[i] = value_of(client, (int32_t)round + 1);
  must(brim_states_unstamp(s, place));
  must(brim_states_write(s, place, 0, values, 400));
  must(brim_states_write(s, place, 400, values, sizeof values - 400));
  must(brim_states_stamp(s, place, client, round));
}

static void expect_states(brim_states *s, const int32_t *round)
{
  for (int64_t k = 0; k < CLIENTS; k++) {
    int32_t values[VALUES];
    assert_int_equal(brim_states_rounds(s)[k], round[k]);
    assert_int_equal(brim_states_has(s, k), round[k] > 0);
    if (round[k] == 0) continue;
    must(brim_states_check(s, k));
    must(brim_states_read(s, k, 0, values, sizeof values));
    for (int i = 0; i < VALUES; i++) assert_int_equal(values[i], value_of(k, round[k]));
  }
}

/* Plays a round of some clients, which commits, fails, or is still being written when the process ends. */
static void play_round(brim_states *s, int64_t round, uint32_t random, int32_t *last, bool is_committed)
{
  const int64_t first = random % CLIENTS;
  brim_states_begin(s, PLACES);
  for (int64_t place = 0; place < PLACES; place++)
    if (is_committed || (random >> 8 >> place & 1)) write_state(s, place, (first + place) % CLIENTS, round);
  for (int64_t place = 0; place < PLACES && is_committed; place++) {
    brim_states_commit(s, place, (first + place) % CLIENTS, round);
    last[(first + place) % CLIENTS] = (int32_t)(round + 1);
  }
}

static void resume(brim_states *s, const int32_t *checkpoint)
{
  memcpy(brim_states_rounds(s), checkpoint, CLIENTS * sizeof *checkpoint);
  must(brim_states_find(s, "step-00000001"));
}

/* Plays random rounds, failures, checkpoints and kills. After each, the newest states are readable; after a kill, those
 * of the last checkpoint. */
static void states_are_those_of_the_last_commit_or_of_the_last_checkpoint(void **state)
{
  for (uint32_t run = 0; run < 20; run++) {
    brim_states *s = open_states(BRIM_STATES_CREATE);
    int32_t last[CLIENTS] = {0}, checkpoint[CLIENTS] = {0};
    int64_t round = 0, saved = 0;
    for (uint32_t i = 0; i < 200; i++) {
      const brim_philox r = brim_random4(run, 1, 2, i, 3);
      switch (r.v[0] % 8) {
      case 0:
        play_round(s, round, r.v[1], last, false);
        break;
      case 1:
        must(brim_states_sync(s));
        brim_states_checkpointed(s);
        memcpy(checkpoint, last, sizeof last);
        saved = round;
        break;
      case 2:
        play_round(s, round, r.v[1], last, false); /* the process is killed within the round */
        brim_states_close(s);
        s = open_states(BRIM_STATES_SHARE);
        resume(s, checkpoint);
        memcpy(last, checkpoint, sizeof last);
        round = saved;
        break;
      default:
        play_round(s, round++, r.v[1], last, true);
      }
      expect_states(s, last);
    }
    brim_states_close(s);
  }
}

static void other_ranks_see_what_a_rank_wrote(void **state)
{
  brim_states *first = open_states(BRIM_STATES_CREATE), *second = open_states(BRIM_STATES_JOIN), *copy;
  brim_states *const both[] = {first, second};
  int32_t last[CLIENTS] = {0};
  for (int64_t round = 0; round < 30; round++) {
    const int64_t begin = round * 2 % CLIENTS;
    for (int k = 0; k < 2; k++) brim_states_begin(both[k], PLACES);
    for (int64_t place = 0; place < PLACES; place++)
      write_state(both[(round + place) % 2], place, (begin + place) % CLIENTS, round);
    for (int64_t place = 0; place < PLACES; place++) {
      for (int k = 0; k < 2; k++) brim_states_commit(both[k], place, (begin + place) % CLIENTS, round);
      last[(begin + place) % CLIENTS] = (int32_t)round + 1;
    }
    for (int k = 0; k < 2; k++) expect_states(both[k], last);
    for (int k = 0; k < 2 && round % 4 == 0; k++) brim_states_checkpointed(both[k]);
  }
  copy = open_states(BRIM_STATES_COPY); /* the copy of a rank on another host */
  resume(copy, last);
  expect_states(copy, last);
  brim_states_begin(copy, 1);
  write_state(copy, 0, 2, 77);
  brim_states_commit(copy, 0, 2, 77);
  expect_states(first, last);
  for (int k = 0; k < 2; k++) brim_states_close(both[k]);
  brim_states_close(copy);
}

static void a_client_takes_at_most_two_slots_and_the_file_is_sparse(void **state)
{
  struct stat info;
  brim_states *s = open_states(BRIM_STATES_CREATE);
  int32_t last[CLIENTS] = {0};
  play_round(s, 0, 0, last, true);
  assert_int_equal(stat(scratch("./" BRIM_STATES_NAME), &info), 0);
  assert_int_equal(info.st_size, brim_states_file_bytes(&layout, brim_states_slots(&layout)));
  assert_true((uint64_t)info.st_blocks * 512 <= brim_states_file_bytes(&layout, PLACES) + 2 * 4096);
  for (int64_t round = 1; round < 99; round++) play_round(s, round, (uint32_t)round, last, true);
  assert_int_equal(stat(scratch("./" BRIM_STATES_NAME), &info), 0);
  assert_true((uint64_t)info.st_blocks * 512 <= brim_states_file_bytes(&layout, CLIENTS + PLACES) + 2 * 4096);
  brim_states_close(s);
}

static void a_checkpoint_whose_states_are_gone_is_refused(void **state)
{
  brim_states *s = open_states(BRIM_STATES_CREATE);
  int32_t last[CLIENTS] = {0}, old[CLIENTS];
  play_round(s, 0, 0, last, true);
  memcpy(old, last, sizeof last);
  brim_states_checkpointed(s);
  for (int64_t round = 1; round < 9; round++) {
    play_round(s, round, 0, last, true);
    brim_states_checkpointed(s);
  }
  brim_states_close(s);
  s = open_states(BRIM_STATES_SHARE);
  memcpy(brim_states_rounds(s), old, sizeof old);
  assert_int_equal(brim_states_find(s, "step-00000001"), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "no longer has the state of client 0 from round 1"));
  brim_states_close(s);
}

static void a_file_of_another_run_is_refused(void **state)
{
  brim_states_layout other = layout;
  brim_states *s;
  brim_states_close(open_states(BRIM_STATES_CREATE));
  other.hash++;
  must(brim_states_open(&other, &s));
  assert_int_equal(brim_states_attach(s, scratch("."), BRIM_STATES_SHARE), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "a model with other parameters"));
  brim_states_close(s);
  other = layout;
  other.bytes += 4;
  must(brim_states_open(&other, &s));
  assert_int_equal(brim_states_attach(s, scratch("."), BRIM_STATES_SHARE), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "states of 6000 bytes, but those of this run have 6004"));
  brim_states_close(s);
  other = layout;
  other.clients++;
  must(brim_states_open(&other, &s));
  assert_int_equal(brim_states_attach(s, scratch("."), BRIM_STATES_SHARE), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "room for 17 client states, but this run needs 19"));
  brim_states_close(s);
  unlink(scratch("./" BRIM_STATES_NAME));
  must(brim_states_open(&layout, &s));
  assert_int_equal(brim_states_attach(s, scratch("."), BRIM_STATES_SHARE), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "resume such a run with the version"));
  brim_states_close(s);
}

static void flip_bit(long byte, int bit)
{
  FILE *file = fopen(scratch("./" BRIM_STATES_NAME), "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, byte, SEEK_SET), 0);
  const int value = fgetc(file);
  assert_int_equal(fseek(file, byte, SEEK_SET), 0);
  assert_true(fputc(value ^ 1 << bit, file) != EOF);
  assert_int_equal(fclose(file), 0);
}

/* Flips bits of the state and of its stamp, one at a time, and expects the check to find each. */
static void a_damaged_state_is_found_when_it_is_checked(void **state)
{
  brim_states *s = open_states(BRIM_STATES_CREATE);
  int32_t last[CLIENTS] = {0};
  play_round(s, 0, 0, last, true);
  const long first = (long)brim_states_file_bytes(&layout, 1), end = first + (long)layout.bytes;
  for (long byte = first; byte < end; byte += byte % 97 + 1) {
    const int bit = (int)(byte % 8);
    flip_bit(byte, bit);
    assert_int_equal(brim_states_check(s, 1), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), "the state of client 1 from round 1"));
    must(brim_states_check(s, 0));
    flip_bit(byte, bit);
    must(brim_states_check(s, 1));
  }
  for (long byte = 64 + 16; byte < 64 + 32; byte++) {
    flip_bit(byte, 3);
    assert_int_equal(brim_states_check(s, 1), BRIM_ELOAD);
    flip_bit(byte, 3);
  }
  brim_states_close(s);
}

static void a_damaged_header_is_named(void **state)
{
  brim_states *s;
  brim_states_close(open_states(BRIM_STATES_CREATE));
  must(brim_states_open(&layout, &s));
  for (long byte = 0; byte < 64; byte++) {
    flip_bit(byte, 5);
    assert_int_equal(brim_states_attach(s, scratch("."), BRIM_STATES_SHARE), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), "header"));
    assert_non_null(strstr(brim_error_text(), "is damaged"));
    flip_bit(byte, 5);
  }
  must(brim_states_attach(s, scratch("."), BRIM_STATES_SHARE));
  brim_states_close(s);
}

static void a_file_without_checksums_is_of_an_earlier_version(void **state)
{
  brim_states *s;
  brim_states_close(open_states(BRIM_STATES_CREATE));
  FILE *file = fopen(scratch("./" BRIM_STATES_NAME), "r+b");
  assert_non_null(file);
  assert_int_equal(fwrite("brimstat", 1, 8, file), 8);
  assert_int_equal(fclose(file), 0);
  must(brim_states_open(&layout, &s));
  assert_int_equal(brim_states_attach(s, scratch("."), BRIM_STATES_SHARE), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "earlier version"));
  brim_states_close(s);
}

static void without_a_folder_the_file_has_no_name(void **state)
{
  brim_states *s;
  int32_t last[CLIENTS] = {0};
  must(brim_states_open(&layout, &s));
  assert_false(brim_states_is_attached(s));
  must(brim_states_attach(s, NULL, BRIM_STATES_CREATE));
  play_round(s, 0, 5, last, true);
  expect_states(s, last);
  brim_states_close(s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(states_are_those_of_the_last_commit_or_of_the_last_checkpoint),
      cmocka_unit_test(other_ranks_see_what_a_rank_wrote),
      cmocka_unit_test(a_client_takes_at_most_two_slots_and_the_file_is_sparse),
      cmocka_unit_test(a_checkpoint_whose_states_are_gone_is_refused),
      cmocka_unit_test(a_file_of_another_run_is_refused),
      cmocka_unit_test(a_damaged_state_is_found_when_it_is_checked),
      cmocka_unit_test(a_damaged_header_is_named),
      cmocka_unit_test(a_file_without_checksums_is_of_an_earlier_version),
      cmocka_unit_test(without_a_folder_the_file_has_no_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
