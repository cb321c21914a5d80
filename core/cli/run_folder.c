/* See run_folder.h. These functions only read, because the run may still be in progress. */
#include "cli/run_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/gguf.h"
#include "base/log.h"
#include "base/text.h"
#include "config/config.h"
#include "store/checkpoint.h"
#include "store/checkpoint_choose.h"
#include "store/rundir.h"

/* Whether the folder contains only the lock, and no file that a run writes after it has a configuration. */
static bool ended_before_it_began(const char *run)
{
  static const char *const marks[] = {"metrics.jsonl", BRIM_CHECKPOINTS_NAME, "summary.json"};
  char path[PATH_MAX];
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
    if (snprintf(path, sizeof path, "%s/%s", run, marks[i]) < (int)sizeof path && access(path, F_OK) == 0) return false;
  return snprintf(path, sizeof path, "%s/%s", run, BRIM_RUN_LOCK_NAME) < (int)sizeof path && access(path, F_OK) == 0;
}

/* Rejects --config-name, which has no effect here; folders of --config-path have, for chosen options and name maps. */
static brim_status check_globals(const brim_cli *cli, const char *run)
{
  if (cli->config_name)
    return brim_fail(BRIM_ECONFIG,
                     "--config-name %s cannot be used here: the configuration is that of the run '%s'\n"
                     "leave it out, or start from that configuration: brim --config-name %s train",
                     cli->config_name, run, cli->config_name);
  static bool warned; /* a command may call this function twice */
  for (size_t i = 0; i < cli->config_paths.count && !warned; i++)
    brim_log(BRIM_LOG_INFO,
             "--config-path %s: the configuration is that of the run '%s'; only options that are chosen on this line, "
             "and name maps of weights, are searched there",
             cli->config_paths.path[i], run);
  warned = true;
  return BRIM_OK;
}

/* Whether the path is a language model in the format of Hugging Face or llama.cpp. */
static bool is_model(const char *path)
{
  char config[PATH_MAX];
  if (brim_is_gguf(path)) return true;
  return snprintf(config, sizeof config, "%s/config.json", path) < (int)sizeof config && access(config, F_OK) == 0;
}

brim_status brim_cli_run_config(const brim_cli *cli, const char *run, char *path, size_t room)
{
  BRIM_TRY(check_globals(cli, run));
  const int length = snprintf(path, room, "%s/config.yaml", run);
  if (length < 0 || (size_t)length >= room) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", run);
  if (access(path, R_OK) == 0) return BRIM_OK;
  if (errno == ENOENT && ended_before_it_began(run))
    return brim_fail(BRIM_ELOAD,
                     "the run in '%s' ended before its configuration was written: there is nothing to resume\n"
                     "start it again, in the same folder if you like: brim train run.dir=%s",
                     run, BRIM_QUOTED(run));
  if (access(run, F_OK) != 0) return brim_fail(BRIM_ELOAD, "there is no run '%s': %s", run, strerror(errno));
  if (brim_ends_with(run, ".safetensors"))
    return brim_fail(BRIM_ELOAD,
                     "'%s' is a file of weights, not the folder of a run\n"
                     "to make a run of it: brim train MODEL AND DATA model.weights=%s training.epochs=0",
                     run, BRIM_QUOTED(run));
  brim_fail(BRIM_ELOAD, "'%s' is not the folder of a run: it has no readable config.yaml", run);
  if (!is_model(run)) return BRIM_ELOAD;
  return brim_fail_add(BRIM_ELOAD,
                       "it is the folder of a model: brim generate accepts it, and brim eval with --text or --choices\n"
                       "to make a run of it: brim train model=hf model.weights=%s DATA training.epochs=0",
                       BRIM_QUOTED(run));
}

brim_status brim_cli_refuse_weights(const char *run, const brim_config *config, const char *const *word, size_t count)
{
  if (brim_config_backbone(config)) return BRIM_OK;
  for (size_t i = 0; i < count; i++) {
    const char *bare = word[i] + strspn(word[i], "+");
    if (brim_starts_with(bare, "model.weights="))
      return brim_fail(
          BRIM_ECONFIG,
          "%s has no effect here: the parameters are those of the run's checkpoint\n"
          "to make a run from other parameters: brim train --from %s %s training.steps=0 training.epochs=0",
          bare, BRIM_QUOTED(run), BRIM_QUOTED(bare));
  }
  return BRIM_OK;
}

brim_status brim_cli_check_edits(const brim_cli *cli, const char *run, const brim_config *now)
{
  char path[PATH_MAX];
  brim_config *was = NULL;
  const int length = snprintf(path, sizeof path, "%s/sources.yaml", run);
  if (length < 0 || (size_t)length >= sizeof path) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", run);
  if (brim_cli_config(cli, path, NULL, NULL, 0, &was) != BRIM_OK) {
    brim_log(BRIM_LOG_WARN, "cannot find out whether %s/config.yaml was edited: %s", run, brim_error_text());
    return BRIM_OK;
  }
  const brim_status status = brim_config_check_edits(was, now, run);
  brim_config_free(was);
  return status;
}

brim_status brim_cli_run_checkpoint(const char *run, const char *which, char *path, size_t room)
{
  int hold; /* held until the process ends, because a process reads one checkpoint */
  return brim_checkpoint_choose(run, which, path, room, &hold);
}
