/* A look at hosts: its JSON form, the expected start of queue places, and advice. */
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
    "\"since\":1795811001,\"changed\":1795811271.25,\"step\":205,\"steps\":220,\"federated\":false,\"rate\":1300,"
    "\"counts_tokens\":false,\"seconds_left\":3.5,\"device_bytes\":100,\"libraries_bytes\":50,"
    "\"memory\":[{\"class\":\"parameters\",\"bytes\":60},{\"class\":\"activations\",\"bytes\":40}],"
    "\"folder\":\"/home/ann/runs/a\",\"model\":\"vit\",\"dataset\":\"cifar\",\"loss\":0.48,\"score\":0.838,"
    "\"score_name\":\"accuracy\",\"epoch\":2,\"epochs\":5,\"queue_seconds\":12.5,"
    "\"curves\":[{\"curve\":\"train loss\",\"step\":[50,100,150],\"value\":[2.3,null,0.48]}],"
    "\"events\":[{\"time\":1795811001,\"step\":0,\"event\":\"started\",\"text\":null}],\"retries\":1,\"decisions\":2,"
    "\"micro_batch\":64,\"batch\":128,\"step_seconds\":0.029,\"predicted_step_seconds\":0.019,\"loader_share\":0.31,"
    "\"workers\":1,\"smaller_micro_batch\":32,\"smaller_bytes\":70,\"elastic\":true},"
    "{\"host\":0,\"name\":\"pid 9\",\"state\":\"waiting\",\"pid\":9,\"user\":\"ann\",\"mine\":true,\"rank\":0,"
    "\"ranks\":1,\"device_index\":null,\"device\":null,\"command\":\"train\",\"started\":1795811100,\"since\":"
    "1795811200,"
    "\"changed\":1795811200,\"step\":0,\"steps\":-1,\"federated\":false,\"rate\":null,\"counts_tokens\":false,"
    "\"seconds_left\":null,\"device_bytes\":700,\"libraries_bytes\":null,\"memory\":[],\"folder\":null,\"model\":null,"
    "\"dataset\":null,\"loss\":null,\"score\":null,\"score_name\":null,\"epoch\":null,\"epochs\":null,"
    "\"queue_seconds\":null,\"curves\":[],\"events\":[],\"retries\":0,\"decisions\":0,\"micro_batch\":0,\"batch\":0,"
    "\"step_seconds\":null,\"predicted_step_seconds\":null,\"loader_share\":null,\"workers\":0,\"smaller_micro_batch\":0,"
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
  (void)state;
  brim_look look = {0};
  assert_int_equal(add(two_hosts, &look), BRIM_OK);
  char *text = dump(&look);
  assert_string_equal(text, two_hosts);
  free(text);
  brim_look_release(&look);
}

static void what_is_missing_is_unknown(void **state)
{
  (void)state;
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
  assert_int_equal(brim_look_waiting(&look), 1);
  brim_look_release(&look);
}

static void hosts_are_joined(void **state)
{
  (void)state;
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
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"[]", "it is not JSON of `brim monitor --json`"},
      {"{\"devices\":[]}", "it is not JSON of `brim monitor --json`"},
      {"{\"brim_look\":\"1\"}", "it is not JSON of `brim monitor --json`"},
      {"{\"brim_look\":2}", "it has version 2"},
      {"{\"brim_look\":1,\"runs\":{}}", "runs: an array is expected"},
      {"{\"brim_look\":1,\"hosts\":[7]}", "hosts[0]: an object is expected"},
      {"{\"brim_look\":1,\"hosts\":[{\"load\":\"high\"}]}", "hosts[0].load: a number is expected"},
      {"{\"brim_look\":1,\"hosts\":[{\"name\":1}]}", "hosts[0].name: a text is expected"},
      {"{\"brim_look\":1,\"devices\":[{\"host\":0}]}", "devices[0].host: the number of one of the 0 hosts"},
      {"{\"brim_look\":1,\"devices\":[{}]}", "devices[0].host is missing"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"devices\":[{\"host\":0,\"free_bytes\":-1}]}", "devices[0].free_bytes"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"sleeping\"}]}", "runs[0].state: a state"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"step\":1.5}]}",
       "runs[0].step: a whole number"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"mine\":1}]}",
       "runs[0].mine: true or false"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"device_index\":0}]}",
       "runs[0].device_index: the number of one of the 0 devices"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"curves\":[{\"step\":[1,2],"
       "\"value\":[1]}]}]}",
       "runs[0].curves[0].value: 1 points"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"runs\":[{\"host\":0,\"state\":\"failed\",\"curves\":[{}]}]}",
       "runs[0].curves[0].step is missing"},
      {"{\"brim_look\":1,\"hosts\":[{}],\"queue\":[{\"host\":0,\"accepts\":[0]}]}", "queue[0].accepts: the number"},
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(json_reads_back_equal),
      cmocka_unit_test(what_is_missing_is_unknown),
      cmocka_unit_test(hosts_are_joined),
      cmocka_unit_test(damaged_and_foreign_json_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
