/* `brim check`: declarations shared by its parent process, its child and the checks of each kind of plugin.
 *
 * The process that the user starts does not call functions of plugins. It starts brim again as a child, which announces
 * each check before it runs it. If the child crashes or hangs, the parent knows which check caused that, and starts
 * another child for the remaining checks. */
#ifndef BRIM_CLI_CHECK_CHECK_H
#define BRIM_CLI_CHECK_CHECK_H
#include "base/text.h"
#include "cli/cli.h"

enum brim_finding {
  BRIM_FOUND_OK,
  BRIM_FOUND_WARNING,
  BRIM_FOUND_FAILED,
  BRIM_FOUND_UNTRIED, /* a warning: the user must supply more before this or any other check of the plugin can run */
  BRIM_FOUND_WORDS    /* the user's words are wrong; reported instead of the findings for all plugins in the file */
};

/* A finding's name between child and parent, and the name that the user sees. */
typedef struct brim_finding_name {
  const char *sent, *shown;
} brim_finding_name;
extern const brim_finding_name brim_finding_names[];

/* The context of a check. */
typedef struct brim_check {
  brim_cli *cli; /* its registry searches the checked file before all others */
  const brim_plugin *plugin;
  const char *const *word; /* the user's words key=value, for the configuration */
  size_t words;
  bool failed;       /* an earlier check of the plugin failed */
  bool blames_words; /* one of the user's words caused the last configuration error */
  brim_text text;    /* description of the finding */
} brim_check;

enum brim_check_trial { BRIM_TRIAL_DONE, BRIM_TRIAL_REFUSED, BRIM_TRIAL_FAILED };
typedef struct brim_check_kind {
  const char *name;                        /* "on_oom" */
  enum brim_finding (*run)(brim_check *c); /* NULL: brim_check_parameters */
  bool needs_sound;                        /* skipped for a plugin with a failed check */
  /* For brim_check_parameters: creates the plugin with one more word in its configuration, and calls it. REFUSED: the
   * plugin rejected the word with an error message. Sets the text if it FAILED. */
  enum brim_check_trial (*try)(brim_check *c, const char *word);
} brim_check_kind;
#define BRIM_CHECK_PARAMETERS(try)                                                                                     \
  {                                                                                                                    \
    "parameters", NULL, true, try                                                                                      \
  }

/* Each list ends with name NULL. If the first check of a plugin fails, its other checks are skipped. */
extern const brim_check_kind brim_policy_checks[], brim_model_checks[], brim_dataset_checks[], brim_selector_checks[],
    brim_aggregator_checks[], brim_optimizer_checks[], brim_schedule_checks[], brim_loss_checks[],
    brim_augment_checks[];

/* Sets the check's text; returns `finding`. */
enum brim_finding brim_check_say(brim_check *c, enum brim_finding finding, const char *format, ...) BRIM_PRINTF(3, 4);
/* Reports the thread's error, after the text `what`, which names the failed action. */
enum brim_finding brim_check_error(brim_check *c, const char *what);
/* Reports only the first line of the error, because the other lines recommend this command; `what` may be "". */
enum brim_finding brim_check_fail_short(brim_check *c, const char *what);
/* Call after a configuration error: returns BRIM_FOUND_WORDS with its text if the user's words caused it, else
 * `finding` with the current text. */
enum brim_finding brim_check_words(brim_check *c, const char *error, enum brim_finding finding);
/* Reports the last error. refused: the check's configuration caused it, so the user's words may be the reason, as
 * above. */
enum brim_finding brim_check_blame(brim_check *c, bool refused);
/* Makes the configuration of a run that uses the plugin, from the given words (up to NULL), `further` (one more word,
 * or NULL) and the user's words. Free it with brim_config_free. */
brim_status brim_check_config(brim_check *c, const char *const *word, const char *further, brim_config **out);

#define BRIM_CHECK_WARM_TIMES 20 /* repetitions before memory is measured */
#define BRIM_CHECK_MANY_TIMES 300
/* Bytes that this process has allocated. */
uint64_t brim_check_allocated(void);
/* Bytes leaked per repetition, over BRIM_CHECK_MANY_TIMES repetitions, since `before` bytes were allocated. A few bytes
 * count as 0, because they may belong to the C library. */
uint64_t brim_check_kept(uint64_t before);
/* Reports that the plugin cannot be created with its defaults, with the thread's error. */
enum brim_finding brim_check_untried(brim_check *c);
/* Reports whether creating and destroying leaked memory, after BRIM_CHECK_MANY_TIMES repetitions since `before`. */
enum brim_finding brim_check_created(brim_check *c, uint64_t before);

/* Tries each parameter of the plugin with the values at the ends of its range. */
enum brim_finding brim_check_parameters(brim_check *c, const brim_check_kind *kind);
/* The result of a trial that ended with this status; `refused`: brim or the plugin rejected the configuration. */
enum brim_check_trial brim_check_tried(brim_check *c, const char *word, brim_status status, bool refused);

/* Returns ECONFIG, with a list of the plugins' files in a folder. */
brim_status brim_check_fail_folder(const char *folder);
/* Adds advice about a check of `file` that failed with this text. */
void brim_check_hint(const char *file, const char *check, const char *text, brim_text *out);

/* Runs the checks from number `first` on, up to the first that fails; 0 is the table. Reports on `fd`, one line each:
 * "begin\tN\tPLUGIN\tCHECK\tNEXT", where NEXT is the number of the check to continue with if this one fails; a
 * finding's name, as "ok\tTEXT"; "end". Line breaks in texts are written as \x1f. `failed`: the plugin of the check
 * before `first` has a failed check. */
#define BRIM_CHECK_BREAK '\x1f'
_Noreturn void brim_check_child(brim_cli *cli, const char *file, int fd, long first, bool failed,
                                const char *const *word, size_t words);
#endif
