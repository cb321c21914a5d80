/* Where looks come from: this host, other hosts, or a file of recorded looks. */
#ifndef BRIM_MONITOR_SOURCE_H
#define BRIM_MONITOR_SOURCE_H
#include "monitor/look.h"
#include "plugin/registry.h"

typedef struct brim_source_options {
  const char *from;        /* file with looks as JSON, one after the other; NULL: the hosts */
  const char *const *host; /* asked by ssh; "localhost" is this host. None: this host */
  size_t hosts;
  double every;        /* seconds between two looks; 0: one look */
  double wait_seconds; /* most time that the first look waits for other hosts */
} brim_source_options;

typedef struct brim_source brim_source;

/* [init] The registry must outlive the source. ECONFIG: a host's name; ELOAD: the file cannot be read. */
brim_status brim_source_open(const brim_source_options *options, const brim_registry *registry, brim_source **out);
void brim_source_close(brim_source *source); /* may be NULL */
/* Releases `look` and fills it anew. Other hosts: with the newest that has arrived, so only the first look waits. A
 * file: with its next look, at its end with the last one again. ELOAD: the file has something else there; `look` is
 * then empty. */
brim_status brim_source_look(brim_source *source, brim_look *look);
/* Whether the last look of the file was taken. */
bool brim_source_is_over(const brim_source *source);
#endif
