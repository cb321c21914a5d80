/* The functions of brim_backend_ops for a device as a whole; see brim/backend.h. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H
#include "cuda.h"

/* [init] Counts the GPUs; ENODEVICE, with the reason, if the count is 0. */
brim_status cuda_device_find(int *count);
int cuda_device_count(void *self);
brim_status cuda_device_describe(void *self, int device, brim_device_info *out);
brim_status cuda_device_usage(void *self, int device, uint64_t *used, uint64_t *total);
brim_status cuda_device_users(void *self, int device, brim_device_user *out, size_t room, size_t *count);
brim_status cuda_device_select(void *self, int device);
brim_status cuda_device_lane(void *self, int32_t lanes, void **out);
void cuda_device_drop_lane(void *self, void *lane);
/* [any phase] Makes the device current in the calling thread, in which a lane may run for the first time. */
brim_status cuda_device_enter(const cuda_backend *b);
void cuda_device_takes(void *self, brim_device_takes *out);
/* [init] Adds a recorded program to the memory that the process takes, or subtracts it if it was dropped. */
void cuda_device_count_program(cuda_backend *b, uint64_t bytes, uint64_t nodes, bool is_dropped);
void cuda_device_needs(void *self, char *out, size_t room);
/* Returns the free memory of the selected device, or 0 if the driver does not report it. [init] */
uint64_t cuda_device_free_bytes(void);
uint64_t cuda_device_taken_since(uint64_t free_before);
/* Counts the decrease of free memory as memory of the libraries. [init] */
void cuda_device_count_library(cuda_backend *b, uint64_t free_before);
void cuda_device_release(cuda_backend *b); /* undoes cuda_device_select; does nothing if no device is selected */
uint64_t cuda_device_reserve_bytes(void *self, uint64_t feed_bytes);
brim_status cuda_device_open_feed(void *self, void *base, uint64_t feed_bytes);
brim_status cuda_device_place(void *self, int device, uint64_t bytes, void **base);
void cuda_device_unplace(void *self, void *base, uint64_t bytes);
brim_status cuda_device_upload(void *self, void *to, const void *from, uint64_t bytes);
brim_status cuda_device_download(void *self, void *to, const void *from, uint64_t bytes);
brim_status cuda_device_zero(void *self, void *to, uint64_t bytes);
brim_status cuda_device_synchronize(void *self);
brim_status cuda_device_feed(void *self, const brim_copy *copy, size_t count);
brim_status cuda_device_fetch(void *self, const brim_copy *copy, size_t count);
brim_status cuda_device_collect(void *self);
brim_status cuda_device_place_host(void *self, uint64_t bytes, void **at);
void cuda_device_unplace_host(void *self, void *at, uint64_t bytes);
brim_status cuda_device_copy(void *self, uint32_t queue, const brim_copy *copy, size_t count);
brim_status cuda_device_mark(void *self, uint32_t queue, uint32_t mark);
brim_status cuda_device_wait(void *self, uint32_t queue, uint32_t mark);
void *cuda_device_native_queue(void *self, uint32_t queue);

/* library.c. [init] Creates the handles of cuBLASLt and cuDNN for the selected device. */
brim_status cuda_library_open(cuda_backend *b);
void cuda_library_close(cuda_backend *b);

/* program.cu */
brim_status cuda_program_run(void *self, const brim_program_run *run);
void cuda_program_drop(void *self, void *record);
brim_status cuda_program_count(void *self, const brim_program_run *run, uint32_t *launches);
/* [step] Starts copying `copy` and the flags to pinned memory; at most CUDA_FETCH_PARTS copies and BRIM_FETCH_BYTES in
 * all. */
brim_status cuda_program_fetch(cuda_backend *b, const brim_copy *copy, size_t count, cuda_fetch *to);
/* [init] Starts a kernel and waits for it, so that the runtime does its lazy loading now. */
brim_status cuda_program_warm_up(cuda_backend *b);
#endif
