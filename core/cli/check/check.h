/* `brim check`: what its parent, its child and the checks of each kind of plugin share.
 *
 * Nothing of a plugin is called in the process that the user has started: it starts itself again as a child, which
 * tries one thing after another and says before each what it is about to do. Where it crashes, or does not come back,
 * the parent knows what that was, and starts another one behind it. */
#ifndef BRIM_CLI_CHECK_CHECK_H
#define BRIM_CLI_CHECK_CHECK_H
#include "base/text.h"
#include "cli/cli.h"

enum brim_finding {
  BRIM_FOUND_OK,
  BRIM_FOUND_WARNING,
  BRIM_FOUND_FAILED,
  BRIM_FOUND_UNTRIED, /* a warning: neither this nor the plugin's other checks can be done without more from the user */
  BRIM_FOUND_WORDS    /* likewise, as the user's words are wrong: of all plugins of the file, that is what is told */
};

/* What the child calls it, and what the user reads. */
typedef struct brim_finding_name {
  const char *told, *shown;
} brim_finding_name;
extern const brim_finding_name brim_finding_names[];

/* What a check goes by. */
typedef struct brim_check {
  brim_cli *cli; /* its registry has the file in front of all others */
  const brim_plugin *plugin;
  const char *const *word; /* of the user: key=value, for the configuration */
  size_t words;
  bool failed;       /* an earlier check of the plugin has */
  bool blames_words; /* the last configuration failed for one of them */
  brim_text text;    /* what is said of it */
} brim_check;

typedef struct brim_check_kind {
  const char *name; /* "on_oom" */
  enum brim_finding (*run)(brim_check *c);
  bool needs_sound; /* of a plugin that has failed there is nothing to be learnt by it */
} brim_check_kind;

/* Each ends with name NULL. Without the first, the others of a plugin are not done. */
extern const brim_check_kind brim_policy_checks[], brim_model_checks[], brim_dataset_checks[], brim_selector_checks[],
    brim_optimizer_checks[], brim_schedule_checks[], brim_loss_checks[], brim_augment_checks[];

/* Sets the text; returns `finding`. */
enum brim_finding brim_check_say(brim_check *c, enum brim_finding finding, const char *format, ...) BRIM_PRINTF(3, 4);
/* The thread's error, behind what was being done. */
enum brim_finding brim_check_error(brim_check *c, const char *what);
/* The same, but for its further lines, which say to call this very command; `what` may be "". */
enum brim_finding brim_check_fail_short(brim_check *c, const char *what);
/* Behind a configuration that failed: BRIM_FOUND_WORDS with its error if that is for the user's words to mend, else
 * `finding` with the text that is there. */
enum brim_finding brim_check_words(brim_check *c, const char *error, enum brim_finding finding);
/* Says the last error. refused: it is of the check's configuration, so the user's words may be to blame, as above. */
enum brim_finding brim_check_blame(brim_check *c, bool refused);
/* The configuration of a run that takes the plugin, of the words given and then the user's. Freed with
 * brim_config_free. */
brim_status brim_check_config(brim_check *c, const char *const *word, size_t count, brim_config **out);

#define BRIM_CHECK_WARM_TIMES 20 /* that something is done before memory is counted */
#define BRIM_CHECK_MANY_TIMES 300
/* Bytes of this process. */
uint64_t brim_check_allocated(void);
/* Bytes that BRIM_CHECK_MANY_TIMES have kept each time since so many were allocated; few may be the C library's own,
 * and are none. */
uint64_t brim_check_kept(uint64_t before);

enum brim_check_trial { BRIM_TRIAL_DONE, BRIM_TRIAL_REFUSED, BRIM_TRIAL_FAILED };
/* Makes and asks a plugin with a further word of its configuration; REFUSED: by words of its own. Of what has FAILED
 * the text is set. */
typedef enum brim_check_trial (*brim_check_try_fn)(brim_check *c, const char *word);
/* Tries each parameter of the plugin with values at the ends of its range: "PREFIX.KEY=VALUE". */
enum brim_finding brim_check_parameters(brim_check *c, const char *prefix, brim_check_try_fn try);

/* ECONFIG with the plugins' files that are in a folder. */
brim_status brim_check_fail_folder(const char *folder);
/* Adds lines on what to do about a check of `file` that failed with this text. */
void brim_check_hint(const char *file, const char *check, const char *text, brim_text *out);

/* What the child tells, a line each on `fd`: "begin\tN\tPLUGIN\tCHECK\tNEXT", where NEXT is the number of the check
 * to go on with if this one fails; a finding's name, as "ok\tTEXT"; "end". Line breaks of texts are \x1f. Runs the
 * checks from number `first` on, up to the first that fails; 0 is the table. `failed`: the plugin of the check before
 * `first` has failed in one. */
#define BRIM_CHECK_BREAK '\x1f'
_Noreturn void brim_check_child(brim_cli *cli, const char *file, int fd, long first, bool failed,
                                const char *const *word, size_t words);
#endif
