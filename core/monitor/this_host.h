/* Looks at this host. */
#ifndef BRIM_MONITOR_THIS_HOST_H
#define BRIM_MONITOR_THIS_HOST_H
#include "monitor/look.h"
#include "plugin/registry.h"

/* The state between looks: instances of the backends, and folders of runs with the positions up to which they were
 * read. */
typedef struct brim_this_host brim_this_host;

/* [init] The registry must outlive the result. */
brim_this_host *brim_this_host_open(const brim_registry *registry);
void brim_this_host_close(brim_this_host *local); /* may be NULL */
/* Adds this host to `look`. A reading error becomes a line of `problem`. */
void brim_this_host_look(brim_this_host *local, brim_look *look);
#endif
