/* The executable; everything else is in libbrim. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
  return brim_main(argc, argv);
}
