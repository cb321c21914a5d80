/* brim runs: lists the runs in folders, and organizes them. See runs.h. */
#include "cli/runs.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define DEFAULT_COLUMNS "name,status,loss,accuracy,perplexity,mae,tag,steps,started,seconds,model,dataset"

static const struct {
  const char *name;
  brim_runs_verb *run;
} verbs[] = {{"show", brim_runs_show},   {"diff", brim_runs_diff},     {"tag", brim_runs_tag},
             {"note", brim_runs_note},   {"delete", brim_runs_delete}, {"restore", brim_runs_restore},
             {"empty", brim_runs_empty}, {"prune", brim_runs_prune}};

const char *brim_cli_runs_verb(size_t i)
{
  return i < sizeof verbs / sizeof verbs[0] ? verbs[i].name : NULL;
}

/* Whether a list with spaces has the word. */
static bool has_word(const char *words, const char *word)
{
  for (const char *s = words; *s; s += strspn(s, " ")) {
    const size_t length = strcspn(s, " ");
    if (strlen(word) == length && strncmp(s, word, length) == 0) return true;
    s += length;
  }
  return false;
}

/* For a first word that is not a folder, names the command that the user probably meant: another program's name for it,
 * or a typing error. */
static brim_status check_word(brim_runs *runs, const char *word)
{
  static const struct {
    const char *words, *here;
  } others[] = {{"list ls ps all", "brim runs [FOLDER...]"},
                {"rm remove del unlink trash", "brim runs delete RUN..."},
                {"undelete undo recover untrash", "brim runs restore [RUN...]"},
                {"purge expunge wipe", "brim runs empty"},
                {"gc clean cleanup", "brim runs prune, for checkpoints; brim runs empty, for deleted runs"},
                {"cat info view get describe inspect", "brim runs show RUN..."},
                {"compare cmp", "brim runs diff RUN RUN..., or brim compare RUN..."},
                {"search find filter grep query select", "brim runs --where EXPRESSION"},
                {"untag", "brim runs tag TAG RUN... --remove"},
                {"label", "brim runs tag TAG RUN..."},
                {"comment annotate", "brim runs note TEXT RUN..."},
                {"export", "brim runs --csv, or brim export RUN for the weights of one"},
                {"mv move rename", "mv: a run is its folder"},
                {"cp copy", "cp -r: a run is its folder"},
                {"stop kill cancel", "kill -INT PID; brim monitor shows the PID"},
                {"watch top", "brim monitor"},
                {"resume", "brim train --resume RUN"}};
  const char *names[sizeof verbs / sizeof verbs[0]], *meant;
  if (word[0] == '-' || strchr(word, '/') || access(brim_runs_path(runs->arena, word), F_OK) == 0) return BRIM_OK;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (has_word(others[i].words, word))
      return brim_fail(BRIM_ECONFIG, "there is no folder '%s', and no command of this name\nin brim this is: %s", word,
                       others[i].here);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) names[i] = verbs[i].name;
  meant = brim_suggest_of(word, names, sizeof names / sizeof names[0]);
  if (!meant) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "there is no folder '%s', and no command of this name\ndid you mean 'brim runs %s'?",
                   word, meant);
}

static brim_status list(brim_runs *runs, const char *const *operand, size_t operands)
{
  if (operands > 0) BRIM_TRY(check_word(runs, operand[0]));
  BRIM_TRY(brim_runs_select(runs, operand, operands, DEFAULT_COLUMNS));
  return brim_runs_print(runs);
}

/* Rejects an option that the command would ignore. */
static brim_status check_options(const brim_runs_options *o, const char *verb)
{
  const bool lists = !verb, prints = lists || strcmp(verb, "show") == 0 || strcmp(verb, "diff") == 0;
  const bool picks = lists || strcmp(verb, "tag") == 0 || strcmp(verb, "note") == 0 || strcmp(verb, "delete") == 0 ||
                     strcmp(verb, "prune") == 0 || strcmp(verb, "restore") == 0;
  const bool destroys =
      verb && (strcmp(verb, "empty") == 0 || strcmp(verb, "prune") == 0 || strcmp(verb, "delete") == 0);
  const struct {
    bool is_set, fits;
    const char *name;
  } given[] = {{o->where, picks, "--where"}, {o->sort, lists, "--sort"},
               {o->limit, lists, "--limit"}, {o->columns, lists, "--columns"},
               {o->json, prints, "--json"},  {o->csv, lists, "--csv"},
               {o->yes, destroys, "--yes"},  {o->remove, verb && strcmp(verb, "tag") == 0, "--remove"}};
  for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
    if (given[i].is_set && !given[i].fits)
      return brim_fail(BRIM_ECONFIG, "%s has no effect on brim runs%s%s: leave it out", given[i].name, verb ? " " : "",
                       verb ? verb : "");
  if (o->json && o->csv) return brim_fail(BRIM_ECONFIG, "--json and --csv exclude each other");
  return BRIM_OK;
}

static const brim_option options[] = {
    {"--where", BRIM_CLI_STRING(brim_runs_options, where), "EXPRESSION",
     "only runs that match, for example 'model=vit and test.accuracy>0.9 and tag=paper'"},
    {"--sort", BRIM_CLI_STRING(brim_runs_options, sort), "[-]KEY",
     "sort by a key; with '-' the largest first (default: -started)"},
    {"--limit", BRIM_CLI_STRING(brim_runs_options, limit), "N", "only the first N"},
    {"--columns", BRIM_CLI_STRING(brim_runs_options, columns), "KEY,...", "the columns: any keys"},
    {"--json", BRIM_CLI_FLAG(brim_runs_options, json), NULL,
     "print JSON: without --columns, everything about each run"},
    {"--csv", BRIM_CLI_FLAG(brim_runs_options, csv), NULL, "print CSV, with exact numbers"},
    {"--remove", BRIM_CLI_FLAG(brim_runs_options, remove), NULL, "tag: remove the tags"},
    {"--yes", BRIM_CLI_FLAG(brim_runs_options, yes), NULL, "delete --where, empty, prune: do not ask for confirmation"},
    {"--no-cache", BRIM_CLI_FLAG(brim_runs_options, no_cache), NULL, "read every run's folder, and write no cache"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  (void)cli;
  brim_runs_options o = {0};
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, options, &o, &operands);
  brim_runs runs = {.options = &o, .arena = &operands.arena};
  size_t v = sizeof verbs / sizeof verbs[0];
  if (operands.count > 0)
    for (v = 0; v < sizeof verbs / sizeof verbs[0] && strcmp(verbs[v].name, operands.word[0]) != 0;) v++;
  const bool is_verb = v < sizeof verbs / sizeof verbs[0];
  if (status == BRIM_OK) status = check_options(&o, is_verb ? verbs[v].name : NULL);
  if (status == BRIM_OK)
    status = is_verb ? verbs[v].run(&runs, operands.word + 1, operands.count - 1)
                     : list(&runs, operands.word, operands.count);
  brim_runs_release(&runs);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_runs = {
    "runs", "list, filter, tag, compare and delete runs", run_command,
    "usage: brim runs [FOLDER...] [--where EXPRESSION] [--sort [-]KEY] [--columns KEY,...] [--limit N]\n"
    "                 [--json | --csv]\n"
    "       brim runs show RUN... [--json]\n"
    "       brim runs diff RUN RUN... [--json]\n"
    "       brim runs tag TAG[,TAG] (RUN... | --where EXPRESSION [FOLDER...]) [--remove]\n"
    "       brim runs note TEXT (RUN... | --where EXPRESSION [FOLDER...])\n"
    "       brim runs delete (RUN... | --where EXPRESSION [FOLDER...] [--yes])\n"
    "       brim runs restore [RUN... | FOLDER... | --where EXPRESSION [FOLDER...]]\n"
    "       brim runs empty [FOLDER...] [--yes]\n"
    "       brim runs prune [FOLDER...] [--where EXPRESSION] [--yes]\n"
    "\n"
    "  brim runs                                      the runs in the folders runs and multirun, newest first\n"
    "  brim runs --where 'model=vit and test.accuracy>0.9'   some of them\n"
    "  brim runs --sort -test.accuracy --limit 5 --columns name,test.accuracy,lr   the five best\n"
    "  brim runs show runs/a                          a run's figures, settings and checkpoints\n"
    "  brim runs diff runs/a runs/b                   the keys and results that differ\n"
    "  brim runs tag paper runs/a runs/b              then --where tag=paper finds them\n"
    "  brim runs note 'the first with augmentation' runs/a   a note\n"
    "  brim runs delete --where status=failed         move runs to the trash; shows them and asks first\n"
    "  brim runs restore runs/a                       restore a deleted run; without a name, list deleted runs\n"
    "  brim runs restore --where status=failed        restore several\n"
    "  brim runs empty                                delete the runs in the trash for good\n"
    "  brim runs prune                                delete checkpoints that neither best nor last points to\n"
    "\n"
    "An expression compares keys with values: = != < <= > >=, ~ (contains, or matches a pattern with '*'), !~, joined\n"
    "by and, or, not and parentheses. Keys are name, status, model, dataset, started, seconds, loss, accuracy, tag,\n"
    "note; results such as test.accuracy or device_peak_bytes; and all keys of the configuration, such as\n"
    "optimizer.lr, or their ends (lr). A key alone is true if the run has it and it is not false. 90% is 0.9. A value\n"
    "with spaces or signs needs quotes. A value that no run can have, such as status=finishd, is an error.\n"
    "\n"
    "Before brim deletes runs that you have not named, it lists them and asks; without a terminal this needs --yes.\n"
    "\n"
    "brim reads runs from their folders, and keeps a cache that you may delete at any time. A deleted run moves to\n"
    "the folder .trash beside it. brim does not delete a run in progress, a folder that is not a run, or a link.\n",
    options};
