/* The source of looks: this host, other hosts, or a file with recorded looks. */
#ifndef BRIM_MONITOR_SOURCE_H
#define BRIM_MONITOR_SOURCE_H
#include "monitor/look.h"
#include "plugin/registry.h"

typedef struct brim_source_options {
  const char *from;        /* file with looks as JSON, one after another; NULL: use the hosts */
  const char *const *host; /* hosts to ask through ssh; "localhost" is this host. None: only this host */
  size_t hosts;
  double every;        /* seconds between two looks; 0: one look */
  double wait_seconds; /* longest time that the first look waits for other hosts */
} brim_source_options;

typedef struct brim_source brim_source;

/* [init] The registry must outlive the source. ECONFIG: a host's name is invalid; ELOAD: the file cannot be read. */
brim_status brim_source_open(const brim_source_options *options, const brim_registry *registry, brim_source **out);
void brim_source_close(brim_source *source); /* may be NULL */
/* Releases `look` and fills it again. From other hosts, takes the newest look that has arrived, so only the first look
 * waits. From a file, takes its next look, and at its end the last one again. ELOAD: the file's next part is not a
 * look; `look` is then empty. */
brim_status brim_source_look(brim_source *source, brim_look *look);
/* Whether the last look of the file was returned. */
bool brim_source_is_over(const brim_source *source);
#endif
