/* Tests a look at hosts: its JSON form, the expected start of queue places, and advice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/backend.h"
#include "monitor/look.h"

#define MIB ((uint64_t)1 << 20)

/* Two hosts (one failed), a device with a process, a run that waits for it and one that trains on it. */
static const char two_hosts[] =
    "{\"brim_look\":1,"
    "\"hosts\":[{\"name\":\"lab7\",\"time\":1795811271.373,\"load\":1.5,\"processors\":8,\"ram_used_bytes\":1048576,"
    "\"ram_total_bytes\":8388608,\"swap_used_bytes\":0,\"swap_total_bytes\":0,\"failure\":null},"
    "{\"name\":\"lab8\",\"time\":null,\"load\":null,\"processors\":null,\"ram_used_bytes\":null,"
    "\"ram_total_bytes\":null,\"swap_used_bytes\":null,\"swap_total_bytes\":null,\"failure\":\"no route\"}],"
    "\"devices\":[{\"host\":0,\"device\":\"cuda:0\",\"name\":\"H100\",\"uuid\":\"GPU-1\",\"is_host\":false,"
    "\"total_bytes\":1000,\"mine_bytes\":100,\"brim_bytes\":200,\"libraries_bytes\":50,\"other_bytes\":50,"
    "\"free_bytes\":600,\"load_percent\":87,\"celsius\":61,\"watts\":412.5,\"watts_max\":700,\"idle_seconds\":null,"
    "\"processes\":[{\"pid\":7,\"bytes\":null,\"brim\":true,\"mine\":false,\"user\":\"ann\",\"name\":\"brim\"}]}],"
    "\"queue\":[{\"host\":0,\"place\":1,\"claimed\":null,\"run\":1,\"pid\":9,\"user\":\"ann\",\"mine\":true,"
    "\"process\":\"brim\",\"backend\":\"cuda\",\"wish\":\"any\",\"need_bytes\":700,\"since\":1795811200,"
    "\"starts\":null,\"accepts\":[0]}],"
    "\"runs\":[{\"host\":0,\"name\":\"runs/a\",\"state\":\"training\",\"pid\":7,\"user\":\"ann\",\"mine\":true,"
    "\"rank\":0,\"ranks\":1,\"device_index\":0,\"device\":\"cuda:0\",\"command\":\"train\",\"started\":1795811000,"
    "\"since\":1795811001,\"changed\":1795811271.25,\"silent_seconds\":30,\"stopped\":true,\"step\":205,\"steps\":220,"
    "\"federated\":false,\"rate\":1300,"
    "\"counts_tokens\":false,\"seconds_left\":3.5,\"device_bytes\":100,\"libraries_bytes\":50,"
    "\"memory\":[{\"class\":\"parameters\",\"bytes\":60},{\"class\":\"activations\",\"bytes\":40}],"
    "\"folder\":\"/home/ann/runs/a\",\"model\":\"vit\",\"dataset\":\"cifar\",\"loss\":0.48,\"score\":0.838,"
    "\"score_name\":\"accuracy\",\"epoch\":2,\"epochs\":5,\"queue_seconds\":12.5,"
    "\"curves\":[{\"curve\":\"train loss\",\"step\":[50,100,150],\"value\":[2.3,null,0.48]}],"
    "\"events\":[{\"time\":1795811001,\"step\":0,\"event\":\"started\",\"text\":null}],\"retries\":1,\"decisions\":2,"
    "\"decided\":[{"
    "\"policy\":\"auto_plan\",\"kind\":\"choice\",\"count\":2}],"
    "\"micro_batch\":64,\"batch\":128,\"step_seconds\":0.029,\"predicted_step_seconds\":0.019,\"loader_share\":0.31,"
    "\"workers\":1,\"smaller_micro_batch\":32,\"smaller_bytes\":70,\"elastic\":true},"
    "{\"host\":0,\"name\":\"pid 9\",\"state\":\"waiting\",\"pid\":9,\"user\":\"ann\",\"mine\":true,\"rank\":0,"
    "\"ranks\":1,\"device_index\":null,\"device\":null,\"command\":\"train\",\"started\":1795811100,\"since\":"
    "1795811200,"
    "\"changed\":1795811200,\"silent_seconds\":null,\"stopped\":false,\"step\":0,\"steps\":-1,\"federated\":false,"
    "\"rate\":null,\"counts_tokens\":false,"
    "\"seconds_left\":null,\"device_bytes\":700,\"libraries_bytes\":null,\"memory\":[],\"folder\":null,\"model\":null,"
    "\"dataset\":null,\"loss\":null,\"score\":null,\"score_name\":null,\"epoch\":null,\"epochs\":null,"
    "\"queue_seconds\":null,\"curves\":[],\"events\":[],\"retries\":0,\"decisions\":0,\"decided\":[],\"micro_batch\":0,"
    "\"batch\":0,"
    "\"step_seconds\":null,\"predicted_step_seconds\":null,\"loader_share\":null,\"workers\":0,\"smaller_micro_batch\":"
    "0,"
    "\"smaller_bytes\":null,\"elastic\":false}],"
    "\"advice\":[{\"text\":\"a at micro-batch 32 needs 70 B\",\"command\":\"brim train --resume a policy+=elastic\"}],"
    "\"problems\":[\"slot 3 is of another version\"]}";

static brim_status add(const char *text, brim_look *look)
{
  json_error_t error;
  json_t *root = json_loads(text, 0, &error);
  if (!root) fail_msg("%s at %d", error.text, error.position);
  const brim_status status = brim_look_add_json(root, look);
  json_decref(root);
  return status;
}

static char *dump(const brim_look *look)
{
  json_t *root = brim_look_json(look);
  char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15));
  json_decref(root);
  return text;
}

/* ---- JSON ---- */

static void json_reads_back_equal(void **state)
{
  brim_look look = {0};
  assert_int_equal(add(two_hosts, &look), BRIM_OK);
  char *text = dump(&look);
  assert_string_equal(text, two_hosts);
  free(text);
  brim_look_release(&look);
}

static void what_is_missing_is_unknown(void **state)
{
  brim_look look = {0};
  assert_int_equal(add("{\"brim_look\":1,\"later\":[1],\"hosts\":[{\"name\":\"a\"}],"
                       "\"runs\":[{\"host\":0,\"state\":\"failed\"}],\"queue\":[{\"host\":0}]}",
                       &look),
                   BRIM_OK);
  const brim_look_run *run = &look.run[0];
  assert_true(isnan(look.host[0].load) && isnan(run->loss));
  assert_true(run->device_bytes == BRIM_BYTES_UNKNOWN && run->device == BRIM_LOOK_NONE);
  assert_string_equal(run->model, "");
  assert_false(brim_look_is_live(run->state));
  assert_true(look.ticket[0].device == BRIM_LOOK_NONE);
  brim_look_release(&look);
}

static void hosts_are_joined(void **state)
{
  brim_look look = {0};
  assert_int_equal(add(two_hosts, &look), BRIM_OK);
  assert_int_equal(add(two_hosts, &look), BRIM_OK);
  assert_int_equal(look.hosts, 4);
  assert_int_equal(look.run[2].host, 2);
  assert_int_equal(look.run[2].device, 1);
  assert_int_equal(look.ticket[1].run, 3);
  assert_int_equal(look.ticket[1].accepts[0], 1);
  assert_int_equal(look.device[0].host, 0);
  brim_look_release(&look);
}

static void damaged_and_foreign_json_is_named(void **state)
{
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"[]", "it is not JSON of `brim monitor --json`"},
      {"{\"devices\":[]}", "it is not JSON of `brim monitor --json`"},
      {"{\"brim_look\":\"1\"}", "it is not JSON of `brim monitor --json`"},
      {"{\"brim_look\":2}", "its format is version 2"},
      {"{\"brim_look\":1,\"runs\":{}}", "runs: an array is expected"},
      {"{\"brim_look\":1,\"hosts\":[7]}", "hosts[0]: an object is expected"},
      {"{\"brim_look\":1,\"hosts\":[{\"load\":\"high\"}]}", "hosts[0].load: a number is expected"},
      {"{\"brim_look\":1,\"hosts\":[{\"name\":1}]}", "hosts[0].name: a text is expected"},
      {"{\"brim_look\":1,\"devices\":[{\"host\":0}]}", "devices[0].host: an index into the 0 hosts"},
      {"{\"brim_look\":1,\"devices\":[{}]}", "devices[0].host is missing"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"devices\":[{\"host\":0,\"free_bytes\":-1}]}", "devices[0].free_bytes"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"sleeping\"}]}", "runs[0].state: a state"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"step\":1.5}]}",
       "runs[0].step: a whole number"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"mine\":1}]}",
       "runs[0].mine: true or false"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"device_index\":0}]}",
       "runs[0].device_index: an index into the 0 devices"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"curves\":[{\"step\":[1,2],"
       "\"value\":[1]}]}]}",
       "runs[0].curves[0].value: 1 points"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"curves\":[{}]}]}",
       "runs[0].curves[0].step is missing"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"queue\":[{\"host\":0,\"accepts\":[0]}]}", "queue[0].accepts: an index"},
      {"{\"brim_look\":1,\"advice\":[{},{},{},{}]}", "advice: 4 are more than the maximum, 3"},
  };
  brim_look look = {0};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(add(cases[i].text, &look), BRIM_ELOAD);
    if (!strstr(brim_error_text(), cases[i].message)) fail_msg("%s: %s", cases[i].message, brim_error_text());
    assert_int_equal(look.hosts + look.devices + look.tickets + look.runs, 0);
  }
  brim_look_release(&look);
}

/* ---- a made look: a host at time 1000 with two shares of 64 MiB, of backend cpu ---- */

enum { CPU0, CPU1 };
static brim_look made;
static size_t cpu0[] = {CPU0}, cpu1[] = {CPU1}, both[] = {CPU0, CPU1};

static int make_look(void **state)
{
  brim_look_release(&made);
  brim_arena *arena = &made.arena;
  made.host = BRIM_ARENA_NEW(arena, brim_look_host, 1);
  made.host[made.hosts++] = (brim_look_host){.name = "lab7", .time = 1000, .failure = ""};
  made.device = BRIM_ARENA_NEW(arena, brim_look_device, 2);
  for (; made.devices < 2; made.devices++)
    made.device[made.devices] = (brim_look_device){.label = made.devices ? "cpu:1" : "cpu:0",
                                                   .name = "",
                                                   .uuid = "",
                                                   .total_bytes = 64 * MIB,
                                                   .free_bytes = 64 * MIB,
                                                   .load = NAN,
                                                   .idle_seconds = NAN};
  made.run = BRIM_ARENA_NEW(arena, brim_look_run, 8);
  made.ticket = BRIM_ARENA_NEW(arena, brim_look_ticket, 8);
  return 0;
}

static int drop_look(void **state)
{
  brim_look_release(&made);
  return 0;
}

/* Adds a run of this user that trains on the device and has placed `mib` MiB. */
static brim_look_run *add_run(const char *name, size_t device, uint64_t mib, double seconds_left)
{
  brim_look_run *run = &made.run[made.runs++];
  *run = (brim_look_run){.state = BRIM_LOOK_TRAINING,
                         .name = name,
                         .folder = "/data/my runs/a",
                         .pid = 100 + (int64_t)made.runs,
                         .is_mine = true,
                         .device = device,
                         .device_bytes = mib * MIB,
                         .seconds_left = seconds_left,
                         .changed = 999,
                         .step_seconds = 0.02,
                         .predicted_step_seconds = NAN,
                         .loader_share = NAN,
                         .smaller_bytes = BRIM_BYTES_UNKNOWN};
  made.device[device].free_bytes -= mib * MIB;
  return run;
}

/* Adds a run of this user that waits for `mib` MiB. */
static brim_look_ticket *add_ticket(const char *wish, uint64_t mib, size_t *accepts, size_t count)
{
  brim_look_ticket *t = &made.ticket[made.tickets++];
  *t = (brim_look_ticket){.place = made.tickets,
                          .device = BRIM_LOOK_NONE,
                          .run = BRIM_LOOK_NONE,
                          .pid = 200 + (int64_t)made.tickets,
                          .need_bytes = mib * MIB,
                          .since = 900,
                          .starts = NAN,
                          .is_mine = true,
                          .user = "ann",
                          .process = "brim",
                          .backend = "cpu",
                          .wish = wish,
                          .accepts = accepts,
                          .accept_count = count};
  return t;
}

/* ---- expected start ---- */

static void assert_starts(size_t ticket, double expected)
{
  const double found = made.ticket[ticket].starts;
  if (!(found == expected || (isnan(found) && isnan(expected)))) fail_msg("ticket %zu: %g", ticket, found);
}

static void a_place_starts_when_enough_runs_have_ended(void **state)
{
  add_run("a", CPU0, 30, 50);
  add_run("b", CPU0, 30, 20);
  add_ticket("cpu:0", 4, cpu0, 1);
  add_ticket("cpu:0", 62, cpu0, 1);
  brim_look_expect(&made);
  assert_starts(0, 1000); /* the device has room already */
  assert_starts(1, NAN);  /* the first run holds the needed memory, and its end is unknown */
  made.ticket[1].need_bytes = 56 * MIB;
  brim_look_expect(&made);
  assert_starts(1, 1050);
  made.ticket[1].need_bytes = 30 * MIB;
  brim_look_expect(&made);
  assert_starts(1, 1020);
}

static void libraries_and_claims_count(void **state)
{
  brim_look_run *run = add_run("a", CPU0, 30, 50);
  run->libraries_bytes = 10 * MIB;
  made.device[CPU0].free_bytes = 20 * MIB;
  add_ticket("cpu:0", 10, cpu0, 1)->device = CPU0; /* the waiting run is about to place its memory */
  add_ticket("cpu:0", 45, cpu0, 1);
  brim_look_expect(&made);
  assert_starts(1, 1050); /* 20 - 10 + 30 + 10 */
  assert_starts(0, NAN);
}

static void the_queue_serves_in_order(void **state)
{
  add_run("a", CPU0, 40, 10);
  add_run("b", CPU1, 40, 60);
  add_ticket("cpu:1", 50, cpu1, 1);
  add_ticket("any", 30, both, 2);
  brim_look_expect(&made);
  assert_starts(0, 1060);
  assert_starts(1, 1010); /* the job cannot start on cpu:1, for which an earlier run waits */
  add_run("c", CPU0, 20, NAN);
  brim_look_expect(&made);
  assert_starts(1, 1010);
}

static void a_run_without_an_end_promises_nothing(void **state)
{
  add_run("a", CPU0, 40, NAN);
  add_run("b", CPU1, 40, 5)->state = BRIM_LOOK_FINISHED;
  add_ticket("any", 50, both, 2);
  brim_look_expect(&made);
  assert_starts(0, NAN);
}

/* ---- advice ---- */

/* Expects this text as the only advice; "": expects no advice. */
static void assert_advice(const char *text, const char *command)
{
  brim_look_advise(&made);
  assert_int_equal(made.advices, text[0] ? 1 : 0);
  if (!text[0]) return;
  assert_string_equal(made.advice[0].text, text);
  assert_string_equal(made.advice[0].command, command);
}

static void advice_names_another_device_with_room(void **state)
{
  add_run("a", CPU0, 44, 50);
  brim_look_ticket *t = add_ticket("cpu:0", 44, cpu0, 1);
  assert_advice("pid 201 (44.0 MiB) fits on cpu:1 now", "kill -INT 201  # then start it with device=cpu:1");
  t->need_bytes = 65 * MIB; /* the run does not fit */
  assert_advice("", "");
  t->need_bytes = 44 * MIB;
  t->is_mine = false;
  assert_advice("", "");
  t->is_mine = true;
  t->backend = "cuda"; /* the run needs another backend */
  assert_advice("", "");
  t->backend = "cpu";
  made.tickets = 0; /* starts again: now an earlier run waits for cpu:1 */
  add_ticket("cpu:1", 64, cpu1, 1)->is_mine = false;
  add_ticket("cpu:0", 44, cpu0, 1);
  assert_advice("", "");
}

static void advice_names_a_smaller_micro_batch_that_lets_others_in(void **state)
{
  brim_look_run *run = add_run("a", CPU0, 44, 50);
  run->smaller_micro_batch = 32;
  run->smaller_bytes = 31 * MIB;
  made.device[CPU1].free_bytes = 0;
  brim_look_ticket *t = add_ticket("any", 33, both, 2);
  t->is_mine = false;
  assert_advice("a at micro-batch 32 needs 31.0 MiB: then pid 201 fits too",
                "kill -INT 101  # then brim train --resume '/data/my runs/a' policy+=elastic");
  t->need_bytes = 34 * MIB; /* the freed memory would not be enough */
  assert_advice("", "");
  t->need_bytes = 33 * MIB;
  run->is_elastic = true; /* an elastic run makes room by itself */
  assert_advice("", "");
}

static void advice_names_memory_of_an_idle_gpu(void **state)
{
  brim_look_owner owner = {.pid = 123, .bytes = 18 * MIB, .user = "bob", .name = "python3"};
  brim_look_device *d = &made.device[CPU0];
  d->owner = &owner;
  d->owners = 1;
  d->label = "cuda:0";
  d->idle_seconds = 720;
  assert_advice("cuda:0 has had no load for 12:00, and pid 123 holds 18.0 MiB", "ps -o user,pid,etime,args -p 123");
  owner.bytes = MIB; /* too little to matter */
  assert_advice("", "");
  owner.bytes = BRIM_BYTES_UNKNOWN;
  assert_advice("", "");
  owner.bytes = 18 * MIB;
  d->idle_seconds = 500;
  assert_advice("", "");
}

static void advice_names_a_run_without_a_sign_of_life(void **state)
{
  brim_look_run *run = add_run("a", CPU0, 44, 50);
  run->silent_seconds = 420;
  assert_advice("a has made no step for 7:00", "ps -o stat,wchan:20,etime,args -p 101");
  run->silent_seconds = 40; /* the monitor sees it, but gives no advice yet */
  assert_advice("", "");
  run->is_stopped = true;
  assert_advice("a is stopped, as by Ctrl-Z, and keeps its memory", "kill -CONT 101");
  run->state = BRIM_LOOK_KILLED;
  assert_advice("", "");
}

static void advice_names_a_slow_loader(void **state)
{
  brim_look_run *run = add_run("a", CPU0, 44, 50);
  run->loader_share = 0.31;
  run->workers = 1;
  assert_advice("a waits for samples 31 % of the step",
                "kill -INT 101  # then brim train --resume '/data/my runs/a' training.num_workers=3");
  made.device[CPU0].uuid = "GPU-1"; /* the GPU computes meanwhile */
  made.device[CPU0].load = 95;
  assert_advice("", "");
  made.device[CPU0].load = 60;
  run->loader_share = 0.1;
  assert_advice("", "");
}

static void advice_names_a_step_that_is_slower_than_predicted(void **state)
{
  brim_look_run *run = add_run("a", CPU0, 44, 50);
  run->step_seconds = 0.029;
  run->predicted_step_seconds = 0.019;
  assert_advice("a step of a takes 29 ms, the device profile says 19 ms",
                "brim devices --forget-times  # the next run measures again");
  run->predicted_step_seconds = 0.025;
  assert_advice("", "");
}

static void there_are_at_most_three_of_different_kinds(void **state)
{
  for (int i = 0; i < 3; i++) {
    brim_look_run *run = add_run("a", CPU0, 10, 50);
    run->silent_seconds = 900;
    run->loader_share = 0.5;
    run->predicted_step_seconds = 0.001;
  }
  add_ticket("cpu:0", 44, cpu0, 1);
  brim_look_advise(&made);
  assert_int_equal(made.advices, 3);
  assert_non_null(strstr(made.advice[0].text, "fits on cpu:1 now"));
  assert_non_null(strstr(made.advice[1].text, "no step"));
  assert_non_null(strstr(made.advice[2].text, "waits for samples"));
}

int main(void)
{
#define WITH_LOOK(test) cmocka_unit_test_setup_teardown(test, make_look, drop_look)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(json_reads_back_equal),
      cmocka_unit_test(what_is_missing_is_unknown),
      cmocka_unit_test(hosts_are_joined),
      cmocka_unit_test(damaged_and_foreign_json_is_named),
      WITH_LOOK(a_place_starts_when_enough_runs_have_ended),
      WITH_LOOK(libraries_and_claims_count),
      WITH_LOOK(the_queue_serves_in_order),
      WITH_LOOK(a_run_without_an_end_promises_nothing),
      WITH_LOOK(advice_names_another_device_with_room),
      WITH_LOOK(advice_names_a_smaller_micro_batch_that_lets_others_in),
      WITH_LOOK(advice_names_memory_of_an_idle_gpu),
      WITH_LOOK(advice_names_a_run_without_a_sign_of_life),
      WITH_LOOK(advice_names_a_slow_loader),
      WITH_LOOK(advice_names_a_step_that_is_slower_than_predicted),
      WITH_LOOK(there_are_at_most_three_of_different_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
