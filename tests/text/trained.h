/* Small language models of bytes: whole runs on the reference backend, and the runs opened again. */
#ifndef TESTS_TEXT_TRAINED_H
#define TESTS_TEXT_TRAINED_H
#include "base/alloc.h"
#include "builtin/builtin.h"
#include "must.h"
#include "scratch.h"
#include "train/run.h"

#define VOCABULARY 256
#define WORDS_MAX 32

static brim_registry *registry;
static const char *const searched[] = {BRIM_BUILD_DIR "/share/brim/configs"};

static brim_config *load(const char *file, const char *const *words, size_t count)
{
  const brim_config_request request = {.search = searched,
                                       .search_count = 1,
                                       .file = file,
                                       .overrides = words,
                                       .override_count = count,
                                       .first_argument = 1};
  brim_config *config = NULL;
  must(brim_config_load(&request, registry, &config));
  return config;
}

/* Trains into scratch folder `dir`. `common` has the words of all runs of a test; `common` and `words` end with
 * NULL. */
static void train(const char *dir, const char *const *common, const char *const *words)
{
  char run[SCRATCH_PATH * 2], path[SCRATCH_PATH * 2];
  const char *all[WORDS_MAX] = {"dataset=text", "backend=reference", "memory.timing=false", "training.num_workers=0"};
  size_t count = 4;
  snprintf(run, sizeof run, "run.dir=%s", scratch("%s", dir));
  snprintf(path, sizeof path, "dataset.path=%s", scratch("a.txt"));
  all[count++] = run;
  all[count++] = path;
  for (; *common; common++) all[count++] = *common;
  for (; *words; words++) all[count++] = *words;
  brim_config *config = load(NULL, all, count);
  must(brim_run(&(brim_run_options){.config = config, .quiet = true, .start = brim_now()}));
  brim_config_free(config);
}

/* A finished run, opened again with its configuration. */
typedef struct opened {
  brim_config *config;
  brim_drive *drive;
  char checkpoint[SCRATCH_PATH];
} opened;

static opened open_run(const char *dir)
{
  opened o;
  o.config = load(scratch("%s/config.yaml", dir), NULL, 0);
  snprintf(o.checkpoint, sizeof o.checkpoint, "%s", scratch("%s/checkpoints/last", dir));
  must(brim_drive_open(o.config, &(brim_setup_options){.whole = true, .no_timing = true}, &o.drive));
  return o;
}

static void close_run(opened *o)
{
  brim_drive_close(o->drive);
  brim_config_free(o->config);
}

/* Sets up and tears down a group of tests: its text, and the core's plugins. */
static int set_up(void **state)
{
  scratch_setup(state);
  char text[2048];
  for (size_t i = 0; i < sizeof text; i++) text[i] = "the plan of a step is made before it. "[i % 38];
  scratch_write(scratch("a.txt"), text, sizeof text);
  return brim_registry_open(brim_core_plugins, NULL, 0, &registry) == BRIM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
  brim_registry_free(registry);
  return scratch_teardown(state);
}
#endif
