/* Numbers and names of the safetensors format, for its reader and its writer. */
#ifndef BRIM_STORE_SAFETENSORS_FORMAT_H
#define BRIM_STORE_SAFETENSORS_FORMAT_H

#define BRIM_SAFETENSORS_LENGTH_BYTES 8
#define BRIM_SAFETENSORS_HEADER_MAX 100000000u /* bytes */
#define BRIM_SAFETENSORS_METADATA "__metadata__"
#endif
