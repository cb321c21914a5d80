/* Ranks of Open MPI on one host share memory through files in /dev/shm. mpirun removes these files, but not if it is
 * killed. So each rank has its own folder, which it locks while it lives, and each rank that starts removes folders
 * that are not locked. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mpi.h"

#define SHARED "/dev/shm"
#define PREFIX "brim-mpi-"

static const char *const variables[] = {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"};
static char folder[sizeof SHARED "/" PREFIX "XXXXXX"];
static int own = -1; /* the descriptor of this rank's folder, which it locks */

/* Returns -1 if the folder belongs to another user, is in use or does not exist. */
static int open_locked(const char *path)
{
  struct stat now;
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0 && fstat(fd, &now) == 0 && now.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

/* Also closes the descriptor. */
static void remove_folder(int fd, const char *path)
{
  DIR *files = fdopendir(fd);
  for (struct dirent *entry; files && (entry = readdir(files));) (void)unlinkat(fd, entry->d_name, 0);
  if (files)
    closedir(files);
  else
    close(fd);
  (void)rmdir(path);
}

static void remove_abandoned(void)
{
  DIR *shared = opendir(SHARED);
  for (struct dirent *entry; shared && (entry = readdir(shared));) {
    char path[sizeof SHARED + sizeof entry->d_name];
    if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
    snprintf(path, sizeof path, "%s/%s", SHARED, entry->d_name);
    const int fd = open_locked(path);
    if (fd >= 0) remove_folder(fd, path);
  }
  if (shared) closedir(shared);
}

void mpi_segments_begin(void)
{
  char made[] = SHARED "/." PREFIX "XXXXXX"; /* a hidden name, so that no rank removes the folder before it is locked */
  if (!getenv("OMPI_COMM_WORLD_SIZE")) return;
  remove_abandoned();
  if (!mkdtemp(made)) return; /* Open MPI then uses its default folder */
  own = open_locked(made);
  snprintf(folder, sizeof folder, "%s/%s", SHARED, strrchr(made, '/') + 2);
  if (own < 0 || rename(made, folder) != 0) return;
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) setenv(variables[i], folder, 0);
}

void mpi_segments_end(void)
{
  if (own >= 0) remove_folder(own, folder);
  own = -1;
}
